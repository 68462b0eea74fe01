"""What does nothing for this model: KS201 no-effect-for-model, KS206 image-options-on-text-model.

Also where the flag saves little (KS209) and where it would do something (KS210).
"""

from __future__ import annotations

from collections.abc import Iterator

from kimi_serve.schemas.engine_facts import read_boolean
from kimi_serve.schemas.engine_names import K25, KIMI
from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.limits import load_limits
from kimi_serve.schemas.support import SupportRow

from ..resolver.engine_view import Given
from ..resolver.situation import FLAG, WORKER_NUM, Situation
from ..sources.characters import printable
from .image_work import encodes_only, text_only
from .processor_device import refused_device
from .wording import at, json_object, on

_ENCODER_GPU = "SGLANG_ENCODER_IMAGE_PROCESSOR_USE_GPU"
# Fields of the engine's own that hold for a model without images too.
_READ_BY = ("SGLANG_IMAGE_MAX_PIXELS", "SGLANG_RESIZE_RESAMPLE")


def flag_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the flag does not do, and where it would do something."""
    if situation.checkpoint is None:
        return
    off = text_only(situation)
    if not situation.has_images or off is not None:
        yield from _text_only_findings(situation, off)
        return
    if encodes_only(situation):
        yield from _encoder_findings(situation)
        return
    row = situation.row
    if row is None:
        if situation.is_version_known:
            yield _unknown_finding(situation)
    elif situation.forced is not None:
        yield from _forced_findings(situation, situation.forced, row)
    elif situation.kind == "none" and situation.gpu.is_present and situation.gpu.is_known:
        yield from _unused_gpu_findings(situation)


def _unused_gpu_findings(situation: Situation) -> Iterator[Finding]:
    """Say that the built-in workers leave a GPU alone for want of libraries (KS210)."""
    if situation.has_gpu_extra:
        return
    if situation.hardware is None:
        message = (
            "a CUDA device is there, and who uses it depends on what is installed: the built-in "
            "workers do with the gpu extra, and stay on the CPU without"
        )
    else:
        message = "a CUDA device is there and not used: the gpu extra is not installed"
    remedy = f"{FLAG}: true makes the CPU explicit; pip install 'kimi-serve[gpu]' uses the GPU"
    yield on(situation, "KS210", FLAG, message, remedy)


def _text_only_findings(situation: Situation, off: Given | None) -> Iterator[Finding]:
    model = situation.architecture
    reason = f"{model} takes no images" if off is None else f"{off.name} turns images off"
    related = () if off is None else (off.origin,)
    for value in situation.loaded.values:
        is_set = value.path.startswith("image.") and value.origin.kind != "default"
        if is_set and (value.path != FLAG or situation.settings.image.force_cpu_preprocessing):
            given = Given(value.path, "", situation.origin(value.path), value.path)
            message = f"{value.path} has no effect: {reason}"
            yield at("KS206", given, message, "remove it", related=related)
    forced = situation.forced
    if forced is not None and forced.path not in ("", FLAG):
        message = f"{forced.name} has no effect: {reason}"
        yield at("KS206", forced, message, "remove it", related=related)


def _encoder_findings(situation: Situation) -> Iterator[Finding]:
    """Say that SGLang's encoder server goes by a variable of its own (KS201)."""
    forced, gpu = situation.forced, situation.variable(_ENCODER_GPU)
    if forced is None:
        return
    is_gpu = gpu is not None and read_boolean("env-bool", gpu.text) is True
    ends = "puts them on the GPU" if is_gpu else "is off, so they are on the CPU already"
    message = (
        f"{forced.name} has no effect with --encoder-only: that server prepares images where "
        f"{_ENCODER_GPU} says, which {ends}"
    )
    help = f"remove {_ENCODER_GPU}" if is_gpu else "remove it"
    related = () if gpu is None else (gpu.at_value.origin,)
    severity: Severity = "warning" if is_gpu else "info"
    yield at("KS201", forced, message, help, severity=severity, related=related)


def _unknown_finding(situation: Situation) -> Finding:
    message = (
        f"the support table has no row for {situation.architecture} on {situation.engine_name}: "
        f"which devices its images use, and what {FLAG} does, is not known"
    )
    if situation.forced is None:
        return on(situation, "KS201", "model.path", message, severity="info")
    return at("KS201", situation.forced, message)


def _forced_findings(situation: Situation, forced: Given, row: SupportRow) -> Iterator[Finding]:
    name = forced.name
    if row.flag == "needless":
        message = (
            f"{name} changes nothing for {situation.architecture} on {situation.engine_name}: its "
            "images are on the CPU already"
        )
        yield at("KS201", forced, message, severity="info")
        return
    if row.flag == "ignored":
        yield _ignored_finding(situation, forced, row)
        return
    gpu = situation.gpu
    if gpu.is_known and not gpu.is_present:
        message = f"{name} changes nothing here: no CUDA device visible ({gpu.reason})"
        yield at("KS202", forced, message, severity="info")
    if situation.num_workers == 1:
        message = (
            f"{name} with {WORKER_NUM} 1 saves one CUDA context at most "
            f"({situation.settings.gpu.worker_context_mib} MiB)"
        )
        yield at("KS209", forced, message)


def _ignored_finding(situation: Situation, forced: Given, row: SupportRow) -> Finding:
    honouring = situation.support.honouring(situation.kind, situation.version)
    is_missing = situation.gpu.is_known and not situation.gpu.is_present
    here = " (none is here)" if is_missing else ""
    message = (
        f"{forced.name} has no effect for {situation.architecture} on {situation.engine_name}: "
        f"the engine {_gpu_work(row)} on the GPU whenever a CUDA device is visible{here}; this "
        f"version honours it for {', '.join(honouring) or 'no architecture'} only"
    )
    return at("KS201", forced, message, _what_works(row))


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


def variable_findings(situation: Situation) -> Iterator[Finding]:
    """Say which variables this model's image processor never reads (KS201)."""
    if situation.checkpoint is None:
        return
    for name in _READ_BY:
        given = situation.variable(name)
        row = load_limits().readers(situation.kind, situation.version, name)
        if given is not None and row is not None and not situation.is_one_of(row.architectures):
            message = (
                f"{name} has no effect for {situation.architecture} on {situation.engine_name}: "
                "only the image processors of Qwen-VL, its relatives and Ernie read it"
            )
            yield at("KS201", given, message, "remove it")


def slow_processor_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the Pillow backend does not move to the CPU on SGLang (KS201)."""
    row = situation.row
    given = situation.flag("--disable-fast-image-processor")
    if given is None:
        given = situation.flag("--image-processor-backend")
        given = given if given is not None and given.text == "pil" else None
    if situation.kind != "sglang" or row is None or given is None or given.text == "false":
        return
    if row.preprocess == "cuda" and "pil" not in row.force_preprocess:
        message = (
            f"{given.name} has no effect for {situation.architecture} on {situation.engine_name}: "
            "its own image processor does not look at it"
        )
        yield at("KS201", given, message, _what_works(row))
    elif row.decode == "cuda":
        message = (
            f"{given.name} moves the preprocessing of {situation.architecture} only: JPEG is still "
            "decoded on the GPU, and a tensor from there fails in the Pillow processor"
        )
        yield at("KS201", given, message, _what_works(row))


def kimi_on_vllm_findings(situation: Situation) -> Iterator[Finding]:
    """Say which options vLLM takes and Kimi's processor never sees (KS201)."""
    if situation.kind != "vllm" or not situation.is_one_of(KIMI):
        return
    yield from _image_limit(situation)
    yield from _processor_device(situation)
    yield from _processor_kwargs(situation)


def _kimi_there(situation: Situation) -> str:
    return f"{situation.architecture} on {situation.engine_name}"


def _image_limit(situation: Situation) -> Iterator[Finding]:
    limit = situation.flag("--limit-mm-per-prompt")
    if limit is not None and situation.is_one_of((K25,)) and "image" in json_object(limit):
        message = (
            f"the image limit of {limit.name} has no effect for {_kimi_there(situation)}: its "
            "images count as vision_chunk, which stays at 999"
        )
        yield at("KS201", limit.at_value, message, 'limit {"vision_chunk": N}')


def _processor_device(situation: Situation) -> Iterator[Finding]:
    device = situation.flag("--mm-processor-device")
    if device is None:
        return
    there = _kimi_there(situation)
    if device.text == "cpu":
        message = f"{device.name} cpu changes nothing for {there}: it is there already"
        yield at("KS201", device, message, "remove it", severity="info")
    elif device.text != "auto" and not device.is_open and not refused_device(situation):
        message = (
            f"{device.name} {device.text} has no effect for {there}: its images are preprocessed "
            "on the CPU, whatever the log says"
        )
        yield at("KS201", device, message, "remove it")


def _processor_kwargs(situation: Situation) -> Iterator[Finding]:
    kwargs = situation.flag("--mm-processor-kwargs")
    if kwargs is None:
        return
    dropped = json_object(kwargs)
    if refused_device(situation):
        dropped.pop("device", None)  # it has an effect: the engine does not start
    if dropped:
        keys = ", ".join(map(printable, dropped))
        there = _kimi_there(situation)
        message = f"{kwargs.name} has no effect for {there}: its processor drops {keys}"
        yield at("KS201", kwargs, message, "remove it; the checkpoint's own file has the limits")


RULES = (
    flag_findings,
    variable_findings,
    slow_processor_findings,
    kimi_on_vllm_findings,
)
