"""`kimi-serve preprocess`: image files through the worker's own processor, in this process."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image, ImageDraw

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.preprocess.images.kimi import plan_resize, resize_pixels
from kimi_serve.preprocess.tensor_file import Tensor, safetensors_chunks
from kimi_serve.schemas.errors import ConfigError, MediaError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.worker import WorkerSpec

_GRID_COLOUR = (255, 0, 102)


def preprocess_files(
    spec: WorkerSpec, files: Sequence[Path], *, out: Path | None, picture: Path | None
) -> Iterator[str]:
    """Process `files` in order and give a line for each; then write what was asked for.

    Raises ConfigError naming every file that cannot be read or is no acceptable image.
    """
    if picture is not None and len(files) != 1:
        raise ConfigError("--picture draws one image", hint="name one file")
    if picture is not None and picture.suffix.lower() != ".png":
        raise ConfigError(f"--picture {picture}: the picture is a PNG", hint="end its name in .png")
    processor = ImageProcessor(spec.resize, spec.rules, spec.image_kernel)
    done: list[tuple[Path, ImageFacts]] = []
    pixels: list[memoryview] = []
    faults: list[str] = []
    for file in files:
        try:
            image, values = processor.process_array(_read(file))
        except (MediaError, ConfigError) as error:
            faults.append(f"{file}: {error.message}")
            continue
        done.append((file, image))
        if out is not None:
            pixels.append(values.data.cast("B"))
        yield _line(file, image)
    if faults:
        raise ConfigError("\n".join(faults), hint="nothing was written" if out else None)
    if out is not None:
        _write_tensors(spec, done, pixels, out)
        yield f"wrote {out}"
    if picture is not None:
        _draw(spec, _read(files[0]), picture)
        yield f"wrote {picture}"


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(str(error.strerror)) from None


def _line(file: Path, image: ImageFacts) -> str:
    upright = ", turned upright" if image.orientation_applied else ""
    _, height, width = image.grid_thw
    return (
        f"{file}: {image.format} {image.width}x{image.height}{upright} -> "
        f"{image.resized[0]}x{image.resized[1]}, {width}x{height} patches, "
        f"{image.num_tokens} tokens; decode {image.decode_ms:.1f} ms, "
        f"preprocess {image.preprocess_ms:.1f} ms"
    )


def _write_tensors(
    spec: WorkerSpec,
    done: Sequence[tuple[Path, ImageFacts]],
    pixels: Sequence[memoryview],
    out: Path,
) -> None:
    grids = array("q", [side for _, image in done for side in image.grid_thw])
    patches = sum(image.shape[0] for _, image in done)
    shape = [patches, *done[0][1].shape[1:]]
    tensors: list[Tensor[memoryview | bytes]] = [
        Tensor("pixel_values", spec.rules.dtype, shape, pixels),
        Tensor("grid_thws", "int64", [len(done), 3], [grids.tobytes()]),
    ]
    images = [
        {"file": str(file), "num_tokens": image.num_tokens, "sha256": image.sha256}
        for file, image in done
    ]
    try:
        with out.open("wb") as stream:
            stream.writelines(safetensors_chunks(tensors, {"images": json.dumps(images)}))
    except OSError as error:
        raise ConfigError(f"{out}: {error.strerror}") from None


def _draw(spec: WorkerSpec, data: bytes, picture: Path) -> None:
    """Draw the padded canvas that is cut into patches, one square a token."""
    decoded = decode_image(data, spec.rules)
    height, width = decoded.pixels.shape[:2]
    plan = plan_resize(width, height, spec.resize)
    canvas = Image.new("RGB", (plan.padded_width, plan.padded_height))
    canvas.paste(Image.fromarray(resize_pixels(decoded.pixels, plan)))
    draw = ImageDraw.Draw(canvas)
    side = spec.resize.patch_size * spec.resize.merge_kernel_size
    for x in range(side, canvas.width, side):
        draw.line([(x, 0), (x, canvas.height)], fill=_GRID_COLOUR)
    for y in range(side, canvas.height, side):
        draw.line([(0, y), (canvas.width, y)], fill=_GRID_COLOUR)
    try:
        canvas.save(picture, format="PNG")
    except OSError as error:
        raise ConfigError(f"{picture}: {error.strerror or error}") from None
