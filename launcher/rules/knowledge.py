"""What is not known of a launch: the model, the engine's version, what blocks of a checkpoint mean.

KS105 missing-value, KS207 engine-version-unchecked, KS208 checkpoint-disagreement.
"""

from __future__ import annotations

from collections.abc import Iterator

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.versions import is_same_release, version_key

from ..resolver.situation import FLAG, Situation
from .wording import on


def checkpoint_findings(situation: Situation) -> Iterator[Finding]:
    """Say that the demo is served (KS105), and where blocks contradict each other (KS208)."""
    if situation.checkpoint is None:
        return
    if situation.checkpoint.origin == "bundled" and situation.kind == "none":
        message = (
            "no model is configured: the bundled demo checkpoint is served (real image parameters "
            "and special ids, toy vocabulary)"
        )
        help = "set model.path (--model-path, KIMI_SERVE_MODEL__PATH)"
        yield on(situation, "KS105", "model.path", message, help, severity="warning")
    for sentence in situation.checkpoint.disagreements:
        yield on(situation, "KS208", "model.path", sentence)


def version_findings(situation: Situation) -> Iterator[Finding]:
    """Say that the support table was not made for this version of the engine (KS207)."""
    if situation.kind == "none":
        return
    newest = situation.support.newest[situation.kind]
    yield from _install_findings(situation)
    if not situation.is_version_known:
        message = (
            f"{situation.engine_name} was not checked: the support table covers no such version, "
            f"so its devices and what it does with {FLAG} are not known"
        )
        help = f"{situation.kind} {newest} was checked"
        yield on(situation, "KS207", "engine.version", message, help)
    elif version_key(situation.version) > version_key(newest):
        message = f"{situation.engine_name} is newer than {newest}, which was checked last"
        yield on(situation, "KS207", "engine.version", message, severity="info")


def _install_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the engine's interpreter has, where it was asked (KS207)."""
    install, said = situation.install, situation.settings.engine.version
    if install is None:
        return
    if install.problem:
        help = "set engine.python to the interpreter that has it; serve cannot start without"
        message = f"{situation.kind} is not to be had here: {install.problem}"
        yield on(situation, "KS207", "engine.python", message, help, severity="info")
    elif install.version is None and said is None:
        message = f"{install.python} does not say which version of {situation.kind} it has"
        help = "set engine.version"
        yield on(situation, "KS207", "engine.version", message, help, severity="info")
    elif said and install.version and not is_same_release(said, install.version):
        message = f"engine.version says {said}, installed is {install.version} ({install.python})"
        help = "remove engine.version, or name the right interpreter in engine.python"
        yield on(situation, "KS207", "engine.version", message, help)


RULES = (checkpoint_findings, version_findings)
