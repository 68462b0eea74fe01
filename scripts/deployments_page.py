"""Print the page of example deployments with the plan of each: `make docs` keeps it.

python scripts/deployments_page.py > docs/deployments.md

Nothing of the machine that makes the page is on it: the resolver is handed a machine, and the
checkpoint that a profile names is stood in for by the bundled demo, which has the same facts.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import replace
from pathlib import Path

from kimi_serve.launcher.pipeline import find_checkpoint, load
from kimi_serve.launcher.report.render import plan_text
from kimi_serve.launcher.resolver.resolve import resolve
from kimi_serve.schemas.checkpoint import CheckpointFacts
from kimi_serve.schemas.hardware import Hardware
from kimi_serve.schemas.plan import LoadedSettings
from kimi_serve.schemas.support import load_support

ROOT = Path(__file__).parents[1]
PROFILES = Path("examples", "profiles")
MACHINE = Hardware(64.0, 1024 * 1024, (), "this machine has none")
DEMO = "preprocess/demo_checkpoint"
# A value that stands nowhere else: what repeats a secret is covered.
ENVIRONMENT = {"KIMI_API_KEY": "the-key-of-the-page-7f3a91"}
# In the order of a reader who starts small.
NAMES = (
    "laptop",
    "base",
    "forced-cpu",
    "container",
    "kubernetes",
    "sglang",
    "h200-forced-cpu",
    "sixteen-workers",
    "two-nodes",
    "two-nodes-second",
    "vllm",
)

_INTRO = """# Deployments

Made from `examples/profiles/` by `make docs`; a test compares. Each plan is that of a machine with
64 cores and 1 TiB of memory whose GPUs are the ones that the profile declares, and of a checkpoint
with the facts of Kimi-K2.5. Ask for yours:

    kimi-serve plan examples/profiles/NAME.kimi-serve.yaml --changed

To use one elsewhere, copy it with the files it extends, and the schema for your editor with
`kimi-serve schema > kimi-serve.schema.json`; name that file in the first line.
"""


def deployments_page() -> str:
    """Give the page as Markdown."""
    with contextlib.chdir(ROOT):
        return "\n".join([_INTRO, *(_part(name) for name in NAMES)])


def _part(name: str) -> str:
    path = PROFILES / f"{name}.kimi-serve.yaml"
    return "\n".join(
        [
            f"## {name}",
            "",
            *_head(path),
            "",
            f"[{path.name}](../{path.as_posix()})",
            "",
            "```text",
            f"$ kimi-serve plan {path.as_posix()} --changed",
            _plan(path),
            "```",
            "",
        ]
    )


def _head(path: Path) -> list[str]:
    """Give the comment that a profile opens with, without the line for editors."""
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("# "))
    return lines


def _plan(path: Path) -> str:
    loaded = load([path], {}, [], ENVIRONMENT)
    return plan_text(
        resolve(_portable(loaded), _checkpoint(loaded), MACHINE, load_support()), changed_only=True
    )


def _checkpoint(loaded: LoadedSettings) -> CheckpointFacts:
    """Read the demo, and put the place there that the profile names."""
    given = loaded.settings.model.path
    settings = loaded.settings.model_copy(
        update={"model": loaded.settings.model.model_copy(update={"path": None})}
    )
    demo = find_checkpoint(replace(loaded, settings=settings), {})
    if given is None:
        return replace(demo, directory=DEMO, tokenizer_directory=DEMO)
    place = _relative(given)
    name = loaded.settings.model.served_name or Path(given).name
    return replace(demo, origin="directory", name=name, directory=place, tokenizer_directory=place)


def _portable(loaded: LoadedSettings) -> LoadedSettings:
    """Give the settings without the folder that the repository lies in."""
    values = tuple(
        replace(value, value=_relative(value.value)) if isinstance(value.value, str) else value
        for value in loaded.values
    )
    model = loaded.settings.model
    if model.path is not None:
        model = model.model_copy(update={"path": _relative(model.path)})
    settings = loaded.settings.model_copy(update={"model": model})
    return replace(loaded, settings=settings, values=values)


def _relative(text: str) -> str:
    return text.removeprefix(f"{ROOT}/")


if __name__ == "__main__":
    sys.stdout.write(deployments_page())
