"""The built-in workers: what they can serve, and the spec of each."""

from __future__ import annotations

from kimi_serve.schemas.colour import parse_colour
from kimi_serve.schemas.engine_names import VISIBLE
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.patch_bound import slot_bytes
from kimi_serve.schemas.plan import PlannedDevice
from kimi_serve.schemas.vocabulary import ENGINES
from kimi_serve.schemas.worker import Device, ImageRules, ResizeConfig, TokenizerSpec, WorkerSpec

from .devices import Devices
from .situation import Situation
from .worker_memory import MIB, worker_memory

SLOTS = 3  # one being written, one being read by the front, one waiting to be sent

_GIB = str(2**30)


def worker_specs(situation: Situation, devices: Devices) -> tuple[WorkerSpec, ...]:
    """Give the spec of every built-in worker; none when an engine serves.

    Raises PlanError for a checkpoint that the built-in workers cannot serve.
    """
    if situation.kind != "none":
        return ()
    resize = _require_images(situation)
    settings = situation.settings
    decode, preprocess = _known(devices.decode.value), _known(devices.preprocess.value)
    rules = _image_rules(situation)
    tokenizer = _tokenizer(situation)
    size = slot_bytes(resize, rules.dtype)
    # A CUDA driver maps memory of the host that no arithmetic of ours knows.
    memory_mib = worker_memory(situation, size).value if decode == preprocess == "cpu" else 0
    env = worker_env(preprocess, _visible_devices(situation))
    budget_mib = settings.gpu.worker_budget_mib
    return tuple(
        WorkerSpec(
            index=index,
            decode_device=decode,
            preprocess_device=preprocess,
            resize=resize,
            rules=rules,
            tokenizer=tokenizer,
            slots=SLOTS,
            slot_bytes=size,
            memory_bytes=memory_mib * MIB,
            env=env,
            log_level=settings.log.level,
            log_format=settings.log.format,
            image_kernel=settings.image.kernel,
            gpu_budget_bytes=None if budget_mib is None else budget_mib * MIB,
        )
        for index in range(situation.num_workers)
    )


def worker_env(device: Device, visible: str | None = None) -> tuple[tuple[str, str], ...]:
    """Give the variables of one worker, to be set before its first import.

    A CUDA worker uses the first device of `visible`, numbered as NVML numbers them.
    """
    hidden = {VISIBLE: ""}
    if device == "cuda":
        hidden = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        hidden |= {} if visible is None else {VISIBLE: visible}
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    threads = dict.fromkeys(names, "1")
    # Without these glibc gives every big pixel buffer back and faults it in anew for the next
    # image: measured with two workers, keeping them is worth 48 % of throughput. One arena, because
    # a second thread's own ignores the trim threshold: 12,288 page faults for every JPEG of
    # 4500x3000 with it, at most 6 without.
    memory = {
        "MALLOC_MMAP_THRESHOLD_": _GIB,
        "MALLOC_TRIM_THRESHOLD_": _GIB,
        "MALLOC_ARENA_MAX": "1",
        # What Pillow decodes lies in one piece up to 64 megapixels, and the kernel reads it there:
        # 4 to 10 % less time for 12 megapixels of WebP, grey PNG or CMYK.
        "PILLOW_BLOCK_SIZE": "256m",
    }
    variables = hidden | threads | {"TOKENIZERS_PARALLELISM": "false"} | memory
    return tuple(variables.items())


def _visible_devices(situation: Situation) -> str | None:
    """Give CUDA_VISIBLE_DEVICES of CUDA workers: what the plan counts with, else what is there."""
    ids = situation.settings.gpu.ids
    if ids:
        return ids[0]
    return (situation.env or {}).get(VISIBLE)


def _require_images(situation: Situation) -> ResizeConfig:
    checkpoint = situation.known_checkpoint
    others = _engines_for(situation)
    if not situation.has_images and not (situation.row is None and others):
        raise PlanError(
            f"{checkpoint.name} is a text-only checkpoint ({situation.architecture}, no vision "
            "part in config.json): there are no images to preprocess",
            hint="set model.path to a Kimi-K2.5, K2.6 or K2.7 checkpoint",
        )
    if situation.row is None:
        raise _unsupported(situation, others)
    if checkpoint.resize is None:
        raise PlanError(
            f"{checkpoint.name} ({situation.architecture}) has no image processor parameters",
            hint="add its preprocessor_config.json or processor_config.json to "
            f"{checkpoint.directory}",
        )
    return checkpoint.resize


def _unsupported(situation: Situation, others: list[str]) -> PlanError:
    supported = situation.support.built_in()
    hint = (
        f"set engine.kind to {' or '.join(others)} for this model"
        if others
        else "set model.path to a checkpoint of a supported architecture"
    )
    return PlanError(
        f"the built-in workers do not support {situation.architecture}; they support "
        f"{', '.join(supported)}",
        hint=hint,
    )


def _engines_for(situation: Situation) -> list[str]:
    """List the engines that have a row for this checkpoint's architecture."""
    support = situation.support
    return [
        kind
        for kind in ENGINES
        if support.find(kind, support.newest[kind], situation.architectures)
    ]


def _image_rules(situation: Situation) -> ImageRules:
    image = situation.settings.image
    return ImageRules(
        policy=image.policy,
        background=parse_colour(image.background),
        dtype=image.dtype,
        max_pixels=image.max_pixels,
        max_bytes=situation.settings.media.max_bytes,
        formats=image.formats,
    )


def _tokenizer(situation: Situation) -> TokenizerSpec | None:
    checkpoint = situation.known_checkpoint
    if situation.settings.tokenizer.skip_init:
        return None
    if checkpoint.tokenizer_kind is None:
        raise PlanError(
            f"{checkpoint.tokenizer_directory} holds no tokenizer (tokenizer.json or "
            "tiktoken.model)",
            hint="set model.tokenizer_path, or tokenizer.skip_init: true to serve images only",
        )
    if not checkpoint.has_chat_template:
        raise PlanError(
            f"{checkpoint.directory} has no chat template (chat_template.jinja, or chat_template "
            "in tokenizer_config.json)",
            hint="add one, or set tokenizer.skip_init: true to serve images only",
        )
    return TokenizerSpec(
        directory=checkpoint.tokenizer_directory,
        kind=checkpoint.tokenizer_kind,
        placeholder_id=checkpoint.placeholder_id,
        model_directory=checkpoint.directory,
    )


def _known(device: PlannedDevice) -> Device:
    assert device != "unknown", "the built-in workers are in the support table"
    return device
