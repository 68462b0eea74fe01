"""What a launch says about its settings beside the devices and the budget.

Rules that are met here and in `budget`:
KS105 missing-value, KS201 no-effect-for-model, KS202 no-effect-without,
KS206 image-options-on-text-model, KS207 engine-version-unchecked (not in the table's range, or
newer than what was read), KS208 checkpoint-disagreement (two blocks of a checkpoint contradict
each other), KS209 forced-for-one-worker (the flag can save one context at most), KS210
cpu-not-forced (a GPU is there and the workers do not use it), KS301 worker-gpu-headroom,
KS302 gpu-preprocess-fanout, KS305 cpu-oversubscription.
"""

from __future__ import annotations

from collections.abc import Iterator

from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.support import SupportRow, version_key

from .situation import FLAG, WORKER_NUM, Situation


def checkpoint_findings(situation: Situation) -> Iterator[Finding]:
    """Say that the demo is served (KS105), and where blocks contradict each other (KS208)."""
    if situation.checkpoint.origin == "bundled":
        yield _finding(
            situation,
            "KS105",
            "warning",
            "model.path",
            "no model is configured: the bundled demo checkpoint is served (real image parameters "
            "and special ids, toy vocabulary)",
            "set model.path (--model-path, KIMI_SERVE_MODEL__PATH)",
        )
    for sentence in situation.checkpoint.disagreements:
        yield _finding(situation, "KS208", "warning", "model.path", sentence)


def version_findings(situation: Situation) -> Iterator[Finding]:
    """Say that the support table was not made for this version of the engine (KS207)."""
    if situation.kind == "none":
        return
    newest = situation.support.newest[situation.kind]
    if not situation.is_version_known:
        message = (
            f"{situation.engine_name} was not checked: the support table covers no such version, "
            f"so its devices and what it does with {FLAG} are not known"
        )
        help = f"{situation.kind} {newest} was checked"
        yield _finding(situation, "KS207", "warning", "engine.version", message, help)
    elif version_key(situation.version) > version_key(newest):
        message = f"{situation.engine_name} is newer than {newest}, which was checked last"
        yield _finding(situation, "KS207", "info", "engine.version", message)


def flag_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the flag does not do, and where it would do something."""
    if not situation.has_images:
        yield from _text_only_findings(situation)
        return
    row = situation.row
    if row is None:
        if situation.is_version_known:
            yield _unknown_finding(situation)
    elif situation.is_forced:
        yield from _forced_findings(situation, row)
    elif situation.kind == "none" and situation.gpu.is_present:
        message = f"a CUDA device is there and not used: {row.source}"
        help = f"{FLAG}: true makes it explicit"
        yield _finding(situation, "KS210", "info", FLAG, message, help)


def _text_only_findings(situation: Situation) -> Iterator[Finding]:
    for value in situation.loaded.values:
        is_set = value.path.startswith("image.") and value.origin.kind != "default"
        if is_set and (value.path != FLAG or situation.is_forced):
            message = f"{value.path} has no effect: {situation.architecture} takes no images"
            yield _finding(situation, "KS206", "warning", value.path, message, "remove it")


def _unknown_finding(situation: Situation) -> Finding:
    message = (
        f"the support table has no row for {situation.architecture} on {situation.engine_name}: "
        f"which devices its images use, and what {FLAG} does, is not known"
    )
    path = FLAG if situation.is_forced else "model.path"
    return _finding(situation, "KS201", "warning", path, message)


def _forced_findings(situation: Situation, row: SupportRow) -> Iterator[Finding]:
    if row.flag == "needless":
        message = (
            f"{FLAG} changes nothing for {situation.architecture} on {situation.engine_name}: its "
            "images are on the CPU already"
        )
        yield _finding(situation, "KS201", "info", FLAG, message)
        return
    if row.flag == "ignored":
        yield _ignored_finding(situation, row)
        return
    if not situation.gpu.is_present:
        message = f"{FLAG} changes nothing here: no CUDA device visible ({situation.gpu.reason})"
        yield _finding(situation, "KS202", "info", FLAG, message)
    if situation.num_workers == 1:
        message = (
            f"{FLAG} with {WORKER_NUM} 1 saves one CUDA context at most "
            f"({situation.settings.gpu.worker_context_mib} MiB)"
        )
        yield _finding(situation, "KS209", "info", FLAG, message)


def _ignored_finding(situation: Situation, row: SupportRow) -> Finding:
    honouring = situation.support.honouring(situation.kind, situation.version)
    here = "" if situation.gpu.is_present else " (none is here)"
    message = (
        f"{FLAG} has no effect for {situation.architecture} on {situation.engine_name}: the engine "
        f"{_gpu_work(row)} on the GPU whenever a CUDA device is visible{here}; this version "
        f"honours it for {', '.join(honouring) or 'no architecture'} only"
    )
    return _finding(situation, "KS201", "warning", FLAG, message, _what_works(row))


def _gpu_work(row: SupportRow) -> str:
    work = {"decodes JPEG": row.decode, "preprocesses images": row.preprocess}
    return " and ".join(verb for verb, device in work.items() if device == "cuda")


def _what_works(row: SupportRow) -> str:
    ways = (
        ("decode", row.decode, row.force_decode),
        ("preprocess", row.preprocess, row.force_preprocess),
    )
    return ". ".join(
        f"To {verb} on the CPU: {way or 'nothing helps in this version'}"
        for verb, device, way in ways
        if device == "cuda"
    )


def unused_findings(situation: Situation) -> Iterator[Finding]:
    """Say which settings the built-in workers do not use (KS202)."""
    if situation.kind != "none":
        return
    settings = situation.settings
    if settings.model.trust_remote_code:
        message = "model.trust_remote_code has no effect: the built-in workers run no remote code"
        yield _finding(situation, "KS202", "info", "model.trust_remote_code", message)
    for path, is_set in (
        ("media.allowed_domains", bool(settings.media.allowed_domains)),
        ("media.allowed_local_dirs", bool(settings.media.allowed_local_dirs)),
    ):
        if is_set:
            message = (
                f"{path} has no effect yet: fetching comes with a later version, and every remote "
                "or local reference is refused meanwhile"
            )
            yield _finding(
                situation, "KS202", "warning", path, message, "send images as data: URLs"
            )


def _finding(
    situation: Situation,
    rule: str,
    severity: Severity,
    path: str,
    message: str,
    help: str | None = None,
) -> Finding:
    return Finding(rule, severity, message, situation.loaded.origin(path), path, help)
