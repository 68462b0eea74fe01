"""The CUDA path on torch's CPU device: equal to the CPU path in every bit, whatever goes wrong.

Only the GPU's JPEG decoder is left out, which tests/gpu looks at; stand-ins play it here.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_samples import DATA, DISPLAY, KIMI, encoded, picture
from PIL import Image

from kimi_serve.preprocess.cuda import decoders, image_processor, libraries, memory
from kimi_serve.preprocess.cuda.device import Device, open_device
from kimi_serve.preprocess.cuda.image_processor import DeviceImageProcessor
from kimi_serve.preprocess.images.decode import JpegHeader, decode_image
from kimi_serve.preprocess.images.image_processor import ImageProcessor
from kimi_serve.schemas.errors import MediaTooLargeError, MissingDependencyError, RequestError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.worker import ImageRules, ResizeConfig

torch: Any = pytest.importorskip("torch", reason="the gpu extra (torch) is not installed")
torch.set_num_threads(1)

FILES = sorted(
    file for folder in ("golden", "images") for file in (DATA / folder).iterdir()
    if file.suffix != ".json" and "3000x4000" not in file.name  # 12 megapixels: half a minute here
)  # fmt: skip
SMALL_LIMIT = replace(KIMI, in_patch_limit=64)
CLIP = replace(KIMI, image_mean=(0.48, 0.46, 0.41), image_std=(0.27, 0.26, 0.28))
JPEG = encoded(picture(), "JPEG", subsampling=0)


def on_device(
    resize: ResizeConfig = KIMI,
    rules: ImageRules = DISPLAY,
    budget_bytes: int | None = None,
    **options: Any,
) -> DeviceImageProcessor:
    return DeviceImageProcessor(resize, rules, Device(torch, "cpu", budget_bytes), **options)


def outcome(processor: ImageProcessor, data: bytes) -> tuple[ImageFacts, Any] | RequestError:
    try:
        return processor.process_array(data)
    except RequestError as error:
        return error


def assert_equal(data: bytes, device: DeviceImageProcessor, name: str = "") -> None:
    made = outcome(ImageProcessor(device.resize, device.rules), data)
    if isinstance(made, RequestError):
        refused = outcome(device, data)
        assert isinstance(refused, type(made))
        assert refused.message == made.message
        return
    facts, wanted = made
    found_facts, found = device.process_array(data)
    assert found.dtype == wanted.dtype
    assert np.array_equal(found.view(np.uint8), wanted.view(np.uint8)), name
    for field in ("width", "height", "format", "orientation_applied", "resized", "grid_thw"):
        assert getattr(found_facts, field) == getattr(facts, field), field
    assert found_facts.sha256 != facts.sha256


@pytest.mark.parametrize("file", FILES, ids=[file.name for file in FILES])
def test_every_sample_is_equal_in_every_bit(file: Path) -> None:
    assert_equal(file.read_bytes(), on_device())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "uint8"])
@pytest.mark.parametrize("resize", [KIMI, SMALL_LIMIT, CLIP], ids=["kimi", "small", "clip"])
@pytest.mark.parametrize("policy", ["display", "checkpoint"])
def test_types_limits_and_policies(dtype: Any, resize: ResizeConfig, policy: Any) -> None:
    device = on_device(resize, replace(DISPLAY, dtype=dtype, policy=policy))
    for name in ("golden/rgba_300x200.png", "images/base_420.jpg", "images/gray.jpg",
                 "images/exif_rot6_bigendian.jpg", "golden/photo420_201x151.jpg"):  # fmt: skip
        assert_equal((DATA / name).read_bytes(), device, name)


@pytest.mark.parametrize("strip", [1, 200_000, 2**40])
def test_strips_do_not_show(strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "STRIP_BYTES", strip)
    random = np.random.default_rng(3)
    for width, height in ((500, 700), (701, 333), (60, 1000), (13, 13)):
        pixels = random.integers(0, 256, (height, width, 3), np.uint8)
        assert_equal(encoded(Image.fromarray(pixels), "PNG"), on_device(SMALL_LIMIT))


def test_it_writes_into_the_callers_buffer_and_refuses_a_short_one() -> None:
    device = on_device()
    facts, wanted = device.process_array(JPEG)
    out = bytearray(facts.nbytes + 8)
    device.process(JPEG, memoryview(out))
    assert out == wanted.tobytes() + bytes(8)
    with pytest.raises(MediaTooLargeError, match=f"needs {facts.nbytes} bytes"):
        device.process(JPEG, memoryview(bytearray(facts.nbytes - 1)))


# The decoder on the device, played by the CPU's


class Decoder:
    name = "stand-in"

    def __init__(self, fault: Exception | None = None, shape: tuple[int, ...] = ()) -> None:
        self.fault = fault
        self.shape = shape
        self.calls = 0

    def takes(self, header: JpegHeader) -> bool:
        return header.subsampling in ("444", "Gray")

    def decode(self, data: bytes) -> Any:
        self.calls += 1
        if self.fault is not None:
            raise self.fault
        if self.shape:
            return torch.zeros(self.shape, dtype=torch.uint8)
        pixels = decode_image(data, replace(DISPLAY, policy="checkpoint")).pixels
        return torch.from_numpy(pixels.copy()).permute(2, 0, 1)


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("policy", ["display", "checkpoint"])
def test_orientation_on_the_device_is_that_on_the_cpu(value: int, policy: Any) -> None:
    exif = picture().getexif()
    exif[0x0112] = value
    decoder = Decoder()
    device = on_device(SMALL_LIMIT, replace(DISPLAY, policy=policy), decoders=[decoder])
    image = picture().resize((300, 200))
    assert_equal(encoded(image, "JPEG", subsampling=0, exif=exif), device)
    assert decoder.calls == 1
    assert device.fallback is None


def test_grey_has_three_channels_and_other_jpegs_stay_on_the_cpu() -> None:
    decoder = Decoder()
    device = on_device(decoders=[decoder])
    assert_equal(encoded(picture().convert("L"), "JPEG"), device)
    assert decoder.calls == 1
    for data in (
        encoded(picture(), "JPEG", subsampling=2),
        encoded(picture().convert("CMYK"), "JPEG"),
        encoded(picture(), "PNG"),
        JPEG[:-2],
    ):
        assert_equal(data, device)
    assert decoder.calls == 1


@pytest.mark.parametrize(
    ("decoder", "fallback"),
    [
        (Decoder(RuntimeError("unsupported")), "decoder-refused"),
        (Decoder(shape=(1, 30, 40)), "decoder-refused"),
        (Decoder(torch.OutOfMemoryError("CUDA out of memory")), "out-of-memory"),
        (Decoder(RuntimeError("Error while decoding: out of memory")), "out-of-memory"),
    ],
)
def test_what_the_decoder_refuses_is_decoded_on_the_cpu(
    decoder: Decoder, fallback: str, caplog: pytest.LogCaptureFixture
) -> None:
    device = on_device(decoders=[decoder])
    with caplog.at_level(logging.WARNING):
        assert_equal(JPEG, device)
    assert device.fallback == fallback
    assert f"{fallback}: an image of 40 x 30 is redone on the CPU: it needs" in caplog.text
    device.process_array(encoded(picture(), "PNG"))
    assert device.fallback is None


def test_out_of_memory_is_redone_on_the_cpu_with_the_arithmetic(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")

    decoder = Decoder()
    device = on_device(decoders=[decoder])
    released: list[bool] = []
    monkeypatch.setattr(device.device, "release_memory", lambda: released.append(True))
    monkeypatch.setattr(image_processor.Pipeline, "write", fail)
    with caplog.at_level(logging.WARNING):
        assert_equal(JPEG, device)
        assert_equal(encoded(picture(), "PNG"), device)
    assert device.fallback == "out-of-memory"
    assert len(released) == 2
    assert "gpu.worker_budget_mib is null, free: unknown; CUDA out of memory" in caplog.text


def test_the_size_that_is_told_is_that_of_the_image_not_of_the_patches(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    device = on_device(resize=replace(KIMI, in_patch_limit=1), decoders=[Decoder()])
    monkeypatch.setattr(image_processor.Pipeline, "write", fail)
    with caplog.at_level(logging.WARNING):
        assert device.process_array(JPEG)[0].resized != (40, 30)
    assert "out-of-memory: an image of 40 x 30 is redone on the CPU" in caplog.text


def test_an_image_beyond_the_budget_never_reaches_the_device(
    caplog: pytest.LogCaptureFixture,
) -> None:
    decoder = Decoder()
    device = on_device(budget_bytes=6 * memory.MIB, decoders=[decoder])
    data = encoded(picture().resize((2000, 1500)), "JPEG", subsampling=0)
    with caplog.at_level(logging.WARNING):
        assert_equal(data, device)
    assert (device.fallback, decoder.calls) == ("over-budget", 0)
    assert "gpu.worker_budget_mib is 6" in caplog.text
    assert_equal(JPEG, device)
    assert (device.fallback, decoder.calls) == (None, 1)


def test_a_lost_context_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    device = on_device(decoders=[Decoder(RuntimeError("CUDA error"))])
    monkeypatch.setattr(device.device, "name", "cuda")
    monkeypatch.setattr(torch.cuda, "synchronize", lost)
    with pytest.raises(SystemExit):
        device.process_array(JPEG)


# What the libraries are asked


def test_nvjpeg_takes_what_has_no_subsampling_and_asks_for_rgb() -> None:
    pytest.importorskip("torchvision", reason="the gpu extra (torchvision) is not installed")
    nvjpeg = decoders.NvJpeg(torch, "cpu")
    takes = {name: nvjpeg.takes(JpegHeader((8, 8), 1, name)) for name in
             ("444", "Gray", "422", "420", "440", "411")}  # fmt: skip
    assert [name for name, taken in takes.items() if taken] == ["444", "Gray"]
    for data in (JPEG, encoded(picture().convert("L"), "JPEG")):
        planes = nvjpeg.decode(data)
        assert (tuple(planes.shape), planes.dtype) == ((3, 30, 40), torch.uint8)
        assert np.array_equal(planes.permute(1, 2, 0).numpy(), decode_image(data, DISPLAY).pixels)


def test_a_missing_extra_names_its_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(libraries.importlib, "import_module", absent)
    with pytest.raises(MissingDependencyError) as raised:
        open_device("cuda", None)
    assert raised.value.hint == "pip install 'kimi-serve[gpu]'"
    assert libraries.load_image_codec() is None
