"""JPEG on the GPU: which files, by which library, and what it offers.

torchvision (up to 0.29.1 at least) creates its nvJPEG handle with default flags, which repeat
subsampled chroma instead of interpolating it; that costs accuracy on small coloured text. So it
gets the JPEGs without subsampling only. nvidia.nvimgcodec can interpolate and takes the others,
where it is installed. What neither takes is decoded on the CPU.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

from ..images.decode import JpegHeader
from .libraries import Tensor, load_image_codec, load_image_io

# As simplejpeg names them.
_UNSAMPLED = {"444", "Gray"}
_SAMPLED = {"422", "420", "440"}


class JpegDecoder(Protocol):
    """Decodes whole JPEGs on the device."""

    name: str

    def takes(self, header: JpegHeader) -> bool:
        """Say whether the result would be what the CPU decoder gives, within the stated bound."""
        ...

    def decode(self, data: bytes) -> Tensor:
        """Give uint8 [3, height, width] on the device; raises RuntimeError for what it refuses."""
        ...


class NvJpeg:
    """nvJPEG through torchvision."""

    name = "nvjpeg"

    def __init__(self, torch: Any, device: str) -> None:
        self._torch = torch
        self._device = device
        self._io = load_image_io()

    def takes(self, header: JpegHeader) -> bool:
        return header.subsampling in _UNSAMPLED

    def decode(self, data: bytes) -> Tensor:
        encoded = self._torch.frombuffer(bytearray(data), dtype=self._torch.uint8)
        # Unchanged would give grey pictures one channel.
        mode = self._io.ImageReadMode.RGB
        with warnings.catch_warnings():
            # Deprecated since 0.29 in favour of torchcodec, which is not part of the extra.
            warnings.simplefilter("ignore")
            return self._io.decode_jpeg(encoded, mode=mode, device=self._device)


class NvImageCodec:
    """nvJPEG through nvImageCodec, with interpolated chroma."""

    name = "nvimgcodec"

    def __init__(self, torch: Any, codec: Any) -> None:
        self._torch = torch
        self._decoder = codec.Decoder(
            device_id=0, max_num_cpu_threads=1, options=":num_cuda_streams=1 :fancy_upsampling=1"
        )
        self._parameters = codec.DecodeParams(
            sample_format=codec.SampleFormat.P_RGB, apply_exif_orientation=False
        )

    def takes(self, header: JpegHeader) -> bool:
        return header.subsampling in _SAMPLED

    def decode(self, data: bytes) -> Tensor:
        stream = self._torch.cuda.current_stream().cuda_stream
        image = self._decoder.decode(data, params=self._parameters, cuda_stream=stream)
        if image is None:
            raise RuntimeError("nvImageCodec gives no picture")
        return self._torch.from_dlpack(image.to_dlpack(cuda_stream=stream))


def gpu_decoders(torch: Any, device: str) -> tuple[JpegDecoder, ...]:
    """Give the decoders that are installed."""
    nvjpeg = NvJpeg(torch, device)
    codec = load_image_codec()
    return (nvjpeg,) if codec is None else (nvjpeg, NvImageCodec(torch, codec))
