"""Run as a program, in an interpreter of its own: other ways to make the same pixels, with torch.

    python -P -m kimi_serve.launcher.verify.children WAY FOLDER PARENT

FOLDER has `config.json` (resize parameters and rules) and the images, each a file NAME.image; it
gets NAME.npz with `values` and `grid`. "transformers" is its native processor, fed with RGB so
that arithmetic is compared and no policy; "device" is our CUDA path on torch's CPU device. PARENT
is the pid of whoever waits for the answer.
"""

from __future__ import annotations

import importlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kimi_serve.preprocess.workers.process import die_with_parent

Way = Callable[[bytes], tuple[Any, list[int]]]


def main(way: str, folder: Path) -> None:
    """Process every image of the folder; prints what did it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    warnings.simplefilter("ignore")
    name, make = {"transformers": _transformers, "device": _device}[way](config)
    print(name, flush=True)  # noqa: T201 - the answer
    for file in sorted(folder.glob("*.image")):
        values, grid = make(file.read_bytes())
        np.savez(file.with_suffix(".npz"), values=values, grid=np.array(grid))


def _transformers(config: dict[str, Any]) -> tuple[str, Way]:
    from .reference import rgb_pixels

    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    transformers: Any = importlib.import_module("transformers")
    resize = config["resize"]
    side = resize["patch_limit_on_one_side"]
    processor = transformers.Kimi_K25ImageProcessor(
        max_patches=resize["in_patch_limit"],
        size={"max_height": side, "max_width": side},
        patch_size=resize["patch_size"],
        merge_size=resize["merge_kernel_size"],
        image_mean=resize["image_mean"],
        image_std=resize["image_std"],
    )

    def make(data: bytes) -> tuple[Any, list[int]]:
        found = processor(images=[rgb_pixels(data)], return_tensors="pt")
        return found["pixel_values"].numpy(), found["image_grid_thw"].tolist()[0]

    return f"transformers {transformers.__version__}'s native processor", make


def _device(config: dict[str, Any]) -> tuple[str, Way]:
    from kimi_serve.preprocess.cuda.device import open_device
    from kimi_serve.preprocess.cuda.image_processor import DeviceImageProcessor
    from kimi_serve.schemas.worker import ImageRules, ResizeConfig

    rules = config["rules"] | {
        name: tuple(config["rules"][name]) for name in ("background", "formats")
    }
    resize = config["resize"] | {
        name: tuple(config["resize"][name]) for name in ("image_mean", "image_std")
    }
    device = open_device("cpu", None)
    processor = DeviceImageProcessor(ResizeConfig(**resize), ImageRules(**rules), device)

    def make(data: bytes) -> tuple[Any, list[int]]:
        facts, values = processor.process_array(data)
        return values, list(facts.grid_thw)

    return f"the CUDA path's arithmetic on the CPU device of torch {device.torch.__version__}", make


if __name__ == "__main__":
    die_with_parent(int(sys.argv[3]))
    main(sys.argv[1], Path(sys.argv[2]))
