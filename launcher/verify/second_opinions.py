"""Other ways to make the same pixels, each in an interpreter of its own: this one has no torch."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from kimi_serve.schemas.image_facts import ImageFacts
from kimi_serve.schemas.worker import ImageRules, ResizeConfig

from .images import Sample
from .parity import EXACT, TRANSFORMERS_EQUAL, TRANSFORMERS_RESIZED, Made, compare
from .results import Comparison, ImageParity

_TIMEOUT_S = 600
_NEEDED = {"transformers": ("torch", "transformers"), "device": ("torch",)}

Ours = Callable[[Sample], tuple[ImageFacts, Made]]


@dataclass(frozen=True, slots=True)
class SecondOpinion:
    """One other way: what it is compared with, and under which policy."""

    way: Literal["transformers", "device"]
    resize: ResizeConfig
    rules: ImageRules

    @property
    def missing(self) -> str:
        """Say what is not installed; "" where all is there."""
        return missing(self.way)

    def compare(self, samples: Sequence[Sample], ours: Ours) -> tuple[Comparison | None, str]:
        """Give the comparison, or None and the reason."""
        with tempfile.TemporaryDirectory(prefix="kimi-serve-verify-") as name:
            folder = Path(name)
            config = {"resize": asdict(self.resize), "rules": asdict(self.rules)}
            (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
            for index, sample in enumerate(samples):
                (folder / f"{index:04}.image").write_bytes(sample.data)
            title, why = self._run(folder)
            if why:
                return None, why
            images = tuple(
                self._compared(sample, ours, folder / f"{index:04}.npz")
                for index, sample in enumerate(samples)
            )
        policy = f"image.policy: {self.rules.policy}"
        return Comparison(f"forced CPU beside {title} ({policy})", images), ""

    def _run(self, folder: Path) -> tuple[str, str]:
        command = [sys.executable, "-P", "-m", "kimi_serve.launcher.verify.children", self.way]
        try:
            ran = subprocess.run(
                [*command, folder, str(os.getpid())],
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "", f"it did not finish within {_TIMEOUT_S} s"
        if ran.returncode != 0:
            said = ran.stderr.strip().splitlines() or ["it said nothing"]
            return "", f"it failed: {said[-1][:300]}"
        return ran.stdout.strip().splitlines()[0], ""

    def _compared(self, sample: Sample, ours: Ours, file: Path) -> ImageParity:
        facts, made = ours(sample)
        with np.load(file) as found:
            grid: list[int] = found["grid"].tolist()
            tokens = grid[0] * grid[1] * grid[2] // self.resize.merge_kernel_size**2
            theirs = Made(found["values"], (grid[0], grid[1], grid[2]), tokens)
        file.unlink()
        bound = EXACT
        if self.way == "transformers":
            is_resized = (facts.width, facts.height) != facts.resized
            bound = TRANSFORMERS_RESIZED if is_resized else TRANSFORMERS_EQUAL
        return compare(sample.name, facts, self.resize, made, theirs, bound)


def missing(way: str) -> str:
    """Say what a way needs and is not installed; "" where all is there."""
    names = [name for name in _NEEDED[way] if importlib.util.find_spec(name) is None]
    return f"{' and '.join(names)} not installed" if names else ""
