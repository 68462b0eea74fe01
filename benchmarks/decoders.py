"""Decoders of PNG and WebP beside ours: milliseconds, bits, and what it costs to have them.

    pip install imagecodecs opencv-python-headless pyspng pyvips pyvips-binary webp
    python benchmarks/decoders.py [--rounds N] [--png | --webp]

Who is not installed is named and left out. One process, one thread, the memory settings of a CPU
worker, turn by turn; CPU time until RGB bytes are there, in a buffer of ours where the decoder can
write to one. docs/decoders.md has the figures that the choice was made by.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import numpy as np
from common import RULES, Call, photo, race
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from kimi_serve.launcher.resolver.worker_specs import worker_env
from kimi_serve.preprocess.images.decode import PixelPool, decode_image
from kimi_serve.preprocess.native.kernel import unfilter

Pixels = NDArray[np.uint8]
Candidate = Callable[[bytes, Pixels], Any]
SIZES = {"1080p": (1920, 1080), "12 MP": (4000, 3000)}
POOL = PixelPool()


def screen(width: int, height: int) -> Pixels:
    """Make what a screenshot has: flat areas, lines of text, a gradient."""
    image = Image.new("RGB", (width, height), (246, 248, 250))
    draw, rng = ImageDraw.Draw(image), np.random.default_rng(1)
    draw.rectangle((0, 0, width, 48), fill=(36, 41, 47))
    draw.rectangle((0, 48, width // 6, height), fill=(230, 235, 240))
    for y in range(60, height - 12, 14):
        for x, words in ((10, 4), (width // 6 + 20, int(rng.integers(5, 28)))):
            text = " ".join(
                "".join(chr(97 + letter) for letter in rng.integers(0, 26, rng.integers(2, 10)))
                for _ in range(words)
            )
            draw.text((x, y), text, fill=(int(rng.integers(0, 140)), 40, 90))
    for y in range(height // 4):
        draw.line((width * 3 // 4, height // 8 + y, width - 20, height // 8 + y), (y % 256, 120, 9))
    return np.asarray(image)


def files(kind: str) -> Iterator[tuple[str, bytes]]:
    options: dict[str, Any] = {"quality": 85, "method": 2} if kind == "WEBP" else {}
    for size, sides in SIZES.items():
        for name, make in (("photo", photo), ("screen", screen)):
            for mode in ("RGB", "RGBA") if kind == "PNG" and name == "screen" else ("RGB",):
                out = BytesIO()
                image = Image.fromarray(make(*sides)).convert(mode)
                image.save(out, kind, **options)
                yield f"{size} {name}, {mode}", out.getvalue()


def ours(data: bytes, _: Pixels) -> Any:
    return _in_reach(decode_image(data, RULES, POOL, unfilter).picture)


def pillow(data: bytes, _: Pixels) -> Any:
    return _in_reach(decode_image(data, RULES, POOL).picture)


def _in_reach(picture: Pixels | Image.Image) -> Any:
    """Copy what the kernel cannot read where it lies."""
    if isinstance(picture, Image.Image):
        try:
            picture.__arrow_c_array__()
        except ValueError:
            return np.asarray(picture)
    return picture


def candidates(kind: str) -> Iterator[tuple[str, Candidate]]:
    """Give everyone who is installed."""
    yield "Pillow", pillow
    if kind == "PNG":
        yield "ours", ours
    if imagecodecs := _module("imagecodecs"):
        names = ("png", "spng") if kind == "PNG" else ("webp",)
        for name in names:
            decode = getattr(imagecodecs, f"{name}_decode")
            yield f"imagecodecs {name}", functools.partial(_into, decode)
    if kind == "PNG" and (pyspng := _module("pyspng")):
        yield "pyspng", lambda data, out: pyspng.load(data, "RGB")
    if kind == "WEBP" and (webp := _module("webp")):
        mode = webp.WebPColorMode.RGB
        yield "webp", lambda data, out: webp.WebPData.from_buffer(data).decode(color_mode=mode)
    if pyvips := _module("pyvips"):
        pyvips.cache_set_max(0)
        yield "pyvips", lambda data, out: _vips(pyvips, data)
    if cv2 := _module("cv2"):
        cv2.setNumThreads(1)
        flag = cv2.IMREAD_COLOR_RGB
        yield "OpenCV", lambda data, out: cv2.imdecode(np.frombuffer(data, np.uint8), flag)


def _into(decode: Any, data: bytes, out: Pixels) -> Any:
    # Its output must have the channels of the file.
    if data[25] == 6 and data[1:4] == b"PNG":
        return decode(data)[..., :3].copy()
    return decode(data, out=out)


def _vips(pyvips: Any, data: bytes) -> Any:
    image = pyvips.Image.new_from_buffer(data, "", access="sequential")
    image = image[:3] if image.bands == 4 else image
    return np.frombuffer(image.write_to_memory(), np.uint8).reshape(image.height, image.width, 3)


def _module(name: str) -> Any:
    if importlib.util.find_spec(name) is None:
        print(f"not installed: {name}", file=sys.stderr)
        return None
    return importlib.import_module(name)


def compare(kind: str, rounds: int) -> None:
    """Print milliseconds and how many times as fast as Pillow, one row a file."""
    found = dict(candidates(kind))
    print(f"| {kind}, CPU ms (times as fast) | {' | '.join(found)} |")
    print("| --- " * (1 + len(found)) + "|")
    for name, data in files(kind):
        expected = np.asarray(pillow(data, np.empty(0, np.uint8))).copy()
        out = np.empty(expected.shape, np.uint8)
        calls: dict[str, Call] = {}
        for who, decode in found.items():
            if not np.array_equal(np.asarray(decode(data, out)), expected):
                print(f"{who} differs from Pillow: {name}", file=sys.stderr)
            calls[who] = functools.partial(decode, data, out)
        taken = race(calls, rounds)
        cells = (f"{taken[who]:.1f} ({taken['Pillow'] / taken[who]:.2f})" for who in found)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


IMPORT = """
import os, sys, time
import numpy, PIL.Image
def private():
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))
def libraries():
    return len({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line})
threads, memory, files = len(os.listdir("/proc/self/task")), private(), libraries()
began = time.process_time()
__import__(sys.argv[1])
print(f"| {sys.argv[1]} | {1000 * (time.process_time() - began):.0f} | {private() - memory} | "
      f"{libraries() - files} | {len(os.listdir('/proc/self/task')) - threads} |")
"""


def costs() -> None:
    """Print what an import adds to a process that has numpy and Pillow."""
    print("| import | CPU ms | private KiB | libraries mapped | threads |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    names = ("zlib_ng.zlib_ng", "pyspng", "imagecodecs._png", "imagecodecs._spng",
             "imagecodecs._webp", "webp", "pyvips", "cv2")  # fmt: skip
    for name in names:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            subprocess.run([sys.executable, "-c", IMPORT, name], check=True)


def as_a_worker() -> None:
    """Start again with the variables of a CPU worker, which the allocator reads at its start."""
    wanted = dict(worker_env("cpu")) | {"VIPS_CONCURRENCY": "1"}
    if any(os.environ.get(name) != value for name, value in wanted.items()):
        os.environ.update(wanted)
        os.execv(sys.executable, [sys.executable, *sys.argv])


def main() -> None:
    as_a_worker()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--png", action="store_const", const=("PNG",), dest="kinds")
    parser.add_argument("--webp", action="store_const", const=("WEBP",), dest="kinds")
    arguments = parser.parse_args()
    for kind in arguments.kinds or ("PNG", "WEBP"):
        compare(kind, arguments.rounds)
        print()
    costs()


if __name__ == "__main__":
    main()
