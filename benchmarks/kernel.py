"""The native kernel beside Pillow, numpy and the checkpoint's order of steps, on one thread.

    python benchmarks/kernel.py [--rounds N] [--json FILE]

The candidates of a row are interleaved in this process, each round in another order;
medians of process CPU time are compared, so a busy machine blurs the ratios only a little. The
pictures are smooth colour with sensor-like noise. Exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path

import numpy as np
from bars import BARS, Ratios, missed
from common import BICUBIC, KIMI, Call, on_one_thread, photo, race
from PIL import Image

from kimi_serve.preprocess.images.kimi import plan_resize
from kimi_serve.preprocess.native import kernel
from kimi_serve.schemas.vocabulary import ImageDtype


def show(title: str, times: dict[str, float]) -> None:
    print(f"\n{title}")
    for name, value in times.items():
        print(f"  {name:32} {value:8.2f} ms")


def resize_ratios(name: str, width: int, height: int, rounds: int) -> Ratios:
    pixels = photo(width, height)
    image, plan = Image.fromarray(pixels), plan_resize(width, height, KIMI)
    size = plan.new_width, plan.new_height
    calls: dict[str, Call] = {"pillow": lambda: image.resize(size, BICUBIC)}
    for level in kernel.supported_levels():
        calls[level] = partial(kernel.resize, level, pixels, size, vertical_first=False)
    times = race(calls, rounds)
    show(f"resize {name}, {width}x{height} -> {size[0]}x{size[1]}", times)
    return {f"resize {name}: pillow / {x}": times["pillow"] / times[x] for x in times}


def patch_ratios(name: str, width: int, height: int, rounds: int) -> Ratios:
    pixels, plan = photo(width, height), plan_resize(width, height, KIMI)
    image = Image.fromarray(pixels)
    out = np.ones(plan.num_patches * 588, np.float32)
    other = out.copy()
    calls: dict[str, Call] = {"memcpy": lambda: np.copyto(out, other)}
    dtypes: tuple[ImageDtype, ...] = ("float32", "bfloat16", "uint8")
    for level in kernel.supported_levels():
        for dtype in dtypes:
            writer = kernel.NativeWriter(KIMI, dtype, level)
            calls[f"{level} {dtype}"] = partial(writer.write, pixels, plan, out)
        writer = kernel.NativeWriter(KIMI, "float32", level)
        calls[f"{level} float32 of a Pillow image"] = partial(writer.write, image, plan, out)
    times = race(calls, rounds)
    show(f"pad, normalise, patchify {name}; memcpy is of the float32 output", times)
    best = kernel.supported_levels()[0]
    ratios = {f"patches {name} {x} / memcpy": times[x] / times["memcpy"] for x in times}
    ratios[f"patches {name} float32: native / memcpy"] = times[f"{best} float32"] / times["memcpy"]
    return ratios


def judge(ratios: Ratios) -> int:
    """Print every ratio, with its bar where it has one; give the number of bars missed."""
    bars = {bar.name: bar for bar in BARS}
    print("\nratios")
    for name, ratio in ratios.items():
        bar = bars.get(name)
        words = "" if bar is None else f"  {bar.words}{'' if bar.fits(ratio) else ': MISSED'}"
        print(f"  {name:56} {ratio:6.2f}{words}")
    return len(missed(ratios))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    on_one_thread()
    if kernel.missing:
        print(kernel.missing)
        return 1
    rounds: int = options.rounds
    ratios: Ratios = {}
    ratios |= resize_ratios("12 MP", 4000, 3000, rounds)
    ratios |= resize_ratios("48 MP", 8000, 6000, max(3, rounds // 3))
    for name, width, height in (("224", 224, 224), ("480p", 640, 480), ("1080p", 1920, 1080)):
        ratios |= patch_ratios(name, width, height, 3 * rounds)
    if options.json is not None:
        options.json.write_text(json.dumps(ratios, indent=1) + "\n", encoding="utf-8")
    return 1 if judge(ratios) else 0


if __name__ == "__main__":
    sys.exit(main())
