"""One image from encoded bytes to patches, on a device where it can be and else on the CPU."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kimi_serve.schemas.errors import MediaTooLargeError
from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.vocabulary import GpuFallback, ImageKernel
from kimi_serve.schemas.worker import ImageRules, ResizeConfig

from ..images.decode import DecodedImage, JpegHeader, decode_image, inspect_jpeg
from ..images.image_processor import Decoded, ImageProcessor
from ..images.kimi import ResizePlan, plan_resize
from ..images.normalise import NUMPY_DTYPES, Buffer
from .decoders import JpegDecoder, gpu_decoders
from .device import Device, open_device
from .libraries import Tensor
from .memory import MIB, StripPlan, plan_strips
from .pipeline import Pipeline

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_MakeOut = Callable[[ResizePlan], Buffer]


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """What is said of an image that was decoded on the device."""

    size: tuple[int, int]
    format: str
    orientation_applied: bool


class DeviceImageProcessor(ImageProcessor):
    """The image processor of a CUDA worker; as the CPU's, it does one image at a time.

    So its memory is that of the largest image, however many a request has. `fallback` says why
    the last image was redone on the CPU, if it was.
    """

    def __init__(
        self,
        resize: ResizeConfig,
        rules: ImageRules,
        device: Device,
        decoders: Sequence[JpegDecoder] = (),
        kernel: ImageKernel = "auto",
    ) -> None:
        super().__init__(resize, rules, kernel)
        self.device = device
        self.decoders = tuple(decoders)
        self._pipeline = Pipeline(device.torch, device.name, resize, rules.dtype)
        # The GPU's JPEG decoder gives other pixels: what it made is not what the CPU made.
        self._hash_prefix += b"cuda\0"

    def process(self, data: bytes, out: Buffer) -> ImageFacts:
        """Write the patches of one image to the start of `out`."""

        def given(plan: ResizePlan) -> Buffer:
            needed = self._output_bytes(plan)
            if needed > out.nbytes:
                message = f"the image needs {needed} bytes of output; the buffer has {out.nbytes}"
                raise MediaTooLargeError(message)
            return out

        return self._run(data, given)

    def process_array(self, data: bytes) -> tuple[ImageFacts, NDArray[Any]]:
        """Process into an array of its own, [num_patches, 3, patch, patch]; bfloat16 as uint16."""
        made: list[NDArray[Any]] = []

        def make(plan: ResizePlan) -> Buffer:
            made.append(np.empty(self._shape(plan), NUMPY_DTYPES[self.rules.dtype]))
            return made[0]

        facts = self._run(data, make)
        return facts, made[0]

    def release_memory(self) -> None:
        super().release_memory()
        self.device.release_memory()

    def _run(self, data: bytes, make_out: _MakeOut) -> ImageFacts:
        started = perf_counter()
        self.fallback = None
        header = inspect_jpeg(data, self.rules) if self.decoders else None
        planes = None if header is None else self._decode_on_device(data, header)
        decoded: Decoded
        on_host: DecodedImage | None = None
        if planes is not None and header is not None:
            size = (int(planes.shape[2]), int(planes.shape[1]))
            decoded = _OnDevice(size, "jpeg", header.orientation != 1)
        else:
            decoded = on_host = self._decode_on_host(data)
        decoded_at = perf_counter()
        plan = plan_resize(*decoded.size, self.resize)
        out = make_out(plan)
        strips = self._strips(decoded.size, plan)
        if not self._write_on_device(planes, decoded, plan, strips, out):
            planes = None
            if on_host is None:
                on_host = self._decode_on_host(data)
            self._writer.write(on_host.picture, plan, out)
        return self._processed(data, decoded, plan, started, decoded_at)

    def _decode_on_host(self, data: bytes) -> DecodedImage:
        return decode_image(data, self.rules, self._pool, self.kernel.unfilter)

    def _decode_on_device(self, data: bytes, header: JpegHeader) -> Tensor | None:
        decoder = next((each for each in self.decoders if each.takes(header)), None)
        if decoder is None:
            return None
        width, height = header.size
        upright = (height, width) if header.orientation >= 5 else (width, height)
        plan = plan_resize(*upright, self.resize)
        strips = self._strips(upright, plan, is_turned=header.orientation != 1)

        def decode() -> Tensor:
            planes = decoder.decode(data)
            if tuple(planes.shape) != (3, height, width):
                raise RuntimeError(f"{decoder.name} gives {tuple(planes.shape)}")
            return _upright(planes, header.orientation)

        return self._attempt(upright, strips, decode, "decoder-refused")

    def _write_on_device(
        self,
        planes: Tensor | None,
        decoded: Decoded,
        plan: ResizePlan,
        strips: StripPlan,
        out: Buffer,
    ) -> bool:
        def write() -> bool:
            uploaded = self._upload(decoded) if isinstance(decoded, DecodedImage) else planes
            self._pipeline.write(uploaded, plan, strips, out)
            return True

        if self.fallback in ("over-budget", "out-of-memory"):
            return False  # the decoder met it already
        return bool(self._attempt(decoded.size, strips, write, "device-error"))

    def _upload(self, decoded: DecodedImage) -> Tensor:
        """Copy the pixels to the device, once, as bytes."""
        pixels = np.ascontiguousarray(decoded.pixels)
        if not pixels.flags.writeable:
            pixels = pixels.copy()  # torch takes no read-only memory, and writes none
        return self.device.torch.from_numpy(pixels).to(self.device.name).permute(2, 0, 1)

    def _attempt(
        self,
        size: tuple[int, int],
        strips: StripPlan,
        work: Callable[[], _T],
        otherwise: GpuFallback,
    ) -> _T | None:
        """Do something on the device; None, with the reason in `fallback`, where it cannot be."""
        budget = self.device.budget_bytes
        if budget is not None and strips.peak_bytes > budget:
            self._fall_back("over-budget", size, strips, "")
            return None
        try:
            return work()
        except self.device.torch.OutOfMemoryError as error:
            reason: GpuFallback = "out-of-memory"
            said = str(error)
        except RuntimeError as error:
            said = str(error)
            # The decoder's allocations fail in its own words.
            reason = "out-of-memory" if "out of memory" in said else otherwise
        # The error is gone by now, and with it the buffers that its traceback held.
        if reason != "out-of-memory":
            self.device.require_working()
        self._fall_back(reason, size, strips, said)
        return None

    def _fall_back(
        self, reason: GpuFallback, size: tuple[int, int], strips: StripPlan, said: str
    ) -> None:
        self.fallback = reason
        self.device.release_memory()
        budget = self.device.budget_bytes
        logger.warning(
            "%s: an image of %d x %d is redone on the CPU: it needs %d MiB (%d decoded, %d for a "
            "strip), gpu.worker_budget_mib is %s, free: %s%s",
            reason,
            *size,
            -(-strips.peak_bytes // MIB),
            -(-strips.decoded_bytes // MIB),
            -(-strips.strip_bytes // MIB),
            "null" if budget is None else budget // MIB,
            self.device.free_text(),
            f"; {said.splitlines()[0][:200]}" if said else "",
        )

    def _strips(
        self, size: tuple[int, int], plan: ResizePlan, *, is_turned: bool = False
    ) -> StripPlan:
        resized = (plan.new_width, plan.new_height)
        return plan_strips(size, resized, self.resize, self.rules.dtype, is_turned=is_turned)


def open_image_processor(
    resize: ResizeConfig,
    rules: ImageRules,
    budget_bytes: int | None,
    kernel: ImageKernel = "auto",
) -> DeviceImageProcessor:
    """Make the processor of a CUDA worker and run one picture through it."""
    device = open_device("cuda", budget_bytes)
    decoders = gpu_decoders(device.torch, device.name)
    processor = DeviceImageProcessor(resize, rules, device, decoders, kernel)
    # Loads nvJPEG and the kernels: not the first client's time, and part of what is measured.
    picture = BytesIO()
    Image.new("RGB", (64, 48), (200, 90, 30)).save(picture, "JPEG", subsampling=0)
    if "jpeg" in rules.formats:
        processor.process_array(picture.getvalue())
    return processor


def _upright(planes: Tensor, orientation: int) -> Tensor:
    """Undo an EXIF orientation on [3, height, width], as `images.display.upright` does."""
    if orientation >= 5:
        planes = planes.transpose(1, 2)
    axes = {2: [2], 3: [1, 2], 4: [1], 6: [2], 7: [1, 2], 8: [1]}.get(orientation)
    return planes if axes is None else planes.flip(axes)
