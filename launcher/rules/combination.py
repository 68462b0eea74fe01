"""What an engine cannot do together (KS203), on this hardware (KS204), or at its age (KS205)."""

from __future__ import annotations

import math
from collections.abc import Iterator

from kimi_serve.schemas.engine_facts import checked_versions, read_boolean
from kimi_serve.schemas.engine_names import K25, KIMI
from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.versions import version_key

from ..engines.common import DRAIN, drain_seconds, is_on
from ..resolver.engine_view import ARGS, OWNED, Given
from ..resolver.situation import FLAG, Situation
from .given import config_argument
from .processor_device import device_findings
from .transport import gpu_transport
from .wording import at, on


def several_workers(situation: Situation) -> Iterator[Finding]:
    """Say what SGLang cannot do with several tokenizer workers."""
    workers = situation.given("tokenizer.worker_num")
    if situation.kind != "sglang" or workers is None or situation.num_workers < 2:
        return
    count = f"{workers.text} tokenizer workers"
    for key, consequence in (
        (
            situation.given("server.api_key"),
            "every worker refuses to start after the model has loaded, and the process exits "
            "with code 0",
        ),
        (
            situation.flag("--admin-api-key"),
            "nothing checks the key there, and the admin routes answer everybody",
        ),
    ):
        if key is not None:
            message = f"{count} on {situation.engine_name} cannot have {key.name}: "
            help = "use one worker, or check keys in a proxy in front of the engine"
            related = (workers.at_value.origin,)
            yield at("KS203", key, message + consequence, help, related=related)
    grpc = situation.flag("--grpc-port") or situation.variable("SGLANG_GRPC_PORT")
    if grpc is not None and situation.flag("--smg-grpc-mode") is None:
        message = f"{grpc.name} does not work with {count}: the engine refuses to start"
        related = (workers.at_value.origin,)
        yield at("KS203", grpc, message, "use one of them", related=related)
    elastic = situation.flag("--elastic-ep-backend")
    if elastic is not None and elastic.text != "none":
        message = f"{elastic.name} cannot scale up with {count}: the engine asserts there is one"
        related = (workers.at_value.origin,)
        yield at("KS203", elastic, message, "use one of them", related=related)


def sglang_pairs(situation: Situation) -> Iterator[Finding]:
    """Say which other options of SGLang exclude each other."""
    if situation.kind != "sglang":
        return
    key = situation.given("server.api_key")
    grpc = situation.flag("--grpc-port") or situation.variable("SGLANG_GRPC_PORT")
    if key is not None and grpc is not None and situation.num_workers < 2:
        message = f"{grpc.name} does not check {key.name}: gRPC calls need no key"
        help = "leave one of them out"
        related = (key.origin,)
        yield at("KS203", grpc, message, help, severity="warning", related=related)
    batch = situation.flag("--enable-tokenizer-batch-encode")
    dynamic = situation.flag("--enable-dynamic-batch-tokenizer")
    if batch is not None and dynamic is not None:
        message = f"{batch.name} and {dynamic.name} are two ways to batch: only one can be on"
        yield at("KS203", dynamic, message, "keep one of them", related=(batch.origin,))
    reuse = situation.flag("--enable-http-worker-reuseport")
    if reuse is not None and (situation.num_workers < 2 or situation.flag("--enable-http2")):
        message = f"{reuse.name} needs several tokenizer workers and no HTTP/2: the engine refuses"
        yield at("KS203", reuse, message, "remove it")
    yield from _encoders(situation)
    yield from _image_processors(situation)
    yield from _rust_server(situation)
    yield from _sglang_nodes(situation)
    yield from _transports(situation)


def _encoders(situation: Situation) -> Iterator[Finding]:
    encoder, language = situation.flag("--encoder-only"), situation.flag("--language-only")
    if encoder is not None and language is not None:
        message = f"{encoder.name} and {language.name} are two servers: the engine refuses both"
        yield at("KS203", language, message, "keep one of them", related=(encoder.origin,))


def _image_processors(situation: Situation) -> Iterator[Finding]:
    old = situation.flag("--disable-fast-image-processor")
    backend = situation.flag("--image-processor-backend")
    if old is None or backend is None or backend.text in ("auto", "pil") or backend.is_open:
        return
    message = f"{old.name} asks for pil and {backend.name} for {backend.text}: the engine refuses"
    yield at("KS203", old, message, "keep one of them", related=(backend.at_value.origin,))


def _rust_server(situation: Situation) -> Iterator[Finding]:
    server = situation.variable("SGLANG_RUST_SERVER")
    if server is None or not situation.is_one_of(KIMI):
        return
    if read_boolean("env-bool", server.text) is True:
        message = (
            f"{server.name}={server.text}: that server has no image pipeline for "
            f"{situation.architecture}, and {situation.engine_name} refuses to start"
        )
        yield at("KS203", server, message, "remove it")


def _sglang_nodes(situation: Situation) -> Iterator[Finding]:
    """Say what the machines of one launch cannot share."""
    nodes = situation.given("engine.nodes.count")
    count = situation.whole(nodes)
    if nodes is None or count is None or count < 2:
        return
    related = (nodes.at_value.origin,)
    replicas = situation.flag("--dp-size")
    number = situation.whole(replicas)
    is_attention = situation.flag("--enable-dp-attention") is not None
    if replicas is not None and number is not None and number > 1 and not is_attention:
        message = f"{replicas.name} {number} on {count} nodes: the engine refuses to start"
        help = "write --attn-dp-size, or start each replica on its own"
        yield at("KS203", replicas.at_value, message, help, related=related)
    widths = [each for flag in ("--tp-size", "--pp-size") if (each := situation.flag(flag))]
    product = math.prod(situation.whole(each) or 1 for each in widths)
    if product % count and not any(each.is_open for each in (*widths, nodes)):
        asked = " x ".join(f"{each.name} {each.text}" for each in widths) or "one GPU"
        message = f"{asked} cannot be spread over {count} nodes: the engine refuses to start"
        place = widths[0].at_value if widths else nodes.at_value
        help = f"write a multiple of {count}"
        yield at("KS203", place, message, help, related=related if widths else ())


def _transports(situation: Situation) -> Iterator[Finding]:
    transport = gpu_transport(situation)
    if transport is None:
        return
    nodes, stages = situation.given("engine.nodes.count"), situation.flag("--pp-size")
    if (
        transport.text == "cuda_ipc"
        and nodes is not None
        and situation.whole(nodes) not in (1, None)
    ):
        message = f"cuda_ipc does not reach another node: the engine refuses {nodes.name}"
        yield at("KS203", transport, message, "write cpu", related=(nodes.at_value.origin,))
    if (
        transport.text == "cuda_vmm"
        and stages is not None
        and situation.whole(stages) not in (1, None)
    ):
        message = f"cuda_vmm works with one pipeline stage only: the engine refuses {stages.name}"
        yield at("KS203", transport, message, "write cpu", related=(stages.at_value.origin,))
    forced, row = situation.forced, situation.row
    if forced is not None and (row is None or row.flag == "honoured"):
        message = (
            f"{transport.name} {transport.text} opens a CUDA context and a pool in each worker "
            f"before the first image, which {forced.name} is there to avoid"
        )
        help = "remove it: with the flag cpu is said"
        level: Severity = "warning" if row is None or not transport.path else "error"
        yield at("KS203", transport, message, help, severity=level, related=(forced.origin,))


def remote_code(situation: Situation) -> Iterator[Finding]:
    """Say that SGLang's processor for Kimi-K2.5 needs the checkpoint's own code (KS105)."""
    if situation.kind != "sglang" or not situation.is_one_of((K25,)):
        return
    if not situation.is_version_known:
        return
    given = situation.given("model.trust_remote_code")
    if given is not None and given.text != "false":
        return
    message = (
        f"{situation.engine_name} takes {situation.architecture} only with its remote code: "
        "without it the start fails with AttributeError: media_processor"
    )
    # Who lists the engine's arguments, or writes false, has decided; else it is a reminder.
    has_decided = bool(situation.settings.engine.args) or given is not None
    is_whole = has_decided and config_argument(situation) is None
    severity: Severity = "error" if is_whole else "info"
    path = "model.trust_remote_code"
    help = f"set {path}: true, with a checkpoint that you trust"
    if given is not None or severity == "info":
        yield on(situation, "KS105", path, message, help, severity=severity)
    else:
        place = Given(path, "", situation.origin(ARGS), ARGS)
        yield at("KS105", place, message, help, severity=severity)


def vllm_pairs(situation: Situation) -> Iterator[Finding]:
    """Say which options of vLLM exclude each other."""
    if situation.kind != "vllm":
        return
    yield from device_findings(situation)
    yield from _balancers(situation)
    for name in ("--skip-tokenizer-init", "--tokens-only"):
        given = situation.flag(name)
        if given is None and name == "--skip-tokenizer-init":
            given = situation.given("tokenizer.skip_init")
        if given is not None and given.text != "false" and situation.is_one_of(KIMI):
            message = f"{situation.architecture} on {situation.engine_name} needs its tokenizer"
            yield at("KS203", given, f"{given.name} does not work: {message}", "remove it")


def _balancers(situation: Situation) -> Iterator[Finding]:
    """Say that vLLM spreads requests in one way only."""
    if is_on(situation, "--grpc"):
        return  # that server starts before anybody looks
    ports, hybrid = "--data-parallel-multi-port-external-lb", "--data-parallel-hybrid-lb"
    modes = [flag for flag in (ports, hybrid) if is_on(situation, flag)]
    if not modes and situation.flag("--data-parallel-start-rank"):
        modes = ["--data-parallel-start-rank"]
    outside = ("--data-parallel-external-lb", "--data-parallel-rank")
    modes += [flag for flag in outside if is_on(situation, flag)][:1]
    given = [each for flag in modes if (each := situation.flag(flag))]
    if len(given) > 1:
        first, second = given[:2]
        message = f"{first.name} and {second.name} are two ways to balance: vLLM refuses both"
        yield at("KS203", second, message, "keep one of them", related=(first.origin,))


def owned_flags(situation: Situation) -> Iterator[Finding]:
    """Say which flags of engine.args contradict a setting."""
    for path, flag in OWNED[situation.kind].items():
        given = situation.flag(flag)
        setting = situation.given(path) if situation.is_set(path) else None
        if given is None or setting is None or _agree(situation, path, given, setting):
            continue
        severity: Severity = "error"
        if path == "model.path" or path == "model.tokenizer_path":
            message = f"{given.name} names another place than {path}"
            if given.text.startswith("."):
                severity = "warning"  # from where it is seen, is known at the start alone
        elif path in ("server.api_key", "media.allowed_domains"):
            message = f"{given.name} says again what {path} says"
        else:
            message = f"{given.name} {given.text} contradicts {path}: {setting.text}"
        help = f"remove {given.name}: {path} becomes that flag"
        yield at("KS203", given, message, help, severity=severity, related=(setting.origin,))


def _agree(situation: Situation, path: str, given: Given, setting: Given) -> bool:
    if given.text == setting.text or given.is_open or setting.is_open:
        return True
    try:
        said, wanted = float(given.text), float(setting.text)
    except ValueError:
        return False
    return said == (drain_seconds(situation) if path == DRAIN else wanted)


def hardware_findings(situation: Situation) -> Iterator[Finding]:
    """Say what the GPUs that are declared, or there, cannot do (KS204)."""
    transport = gpu_transport(situation)
    gpu = situation.gpu
    if transport is not None and gpu.is_known and not gpu.is_present:
        message = f"{transport.name} {transport.text} needs CUDA: {gpu.reason}"
        # An engine may be planned on a machine that is not the one it will run on.
        severity: Severity = "error" if situation.is_set("gpu.ids") else "warning"
        yield at("KS204", transport, message, "write cpu", severity=severity)
    attention = situation.flag("--mm-attention-backend")
    names = [each.name or "" for each in situation.hardware.gpus] if situation.hardware else []
    blackwell = next((name for name in names if any(word in name for word in _BLACKWELL)), None)
    if attention is not None and attention.text == "fa3" and blackwell is not None:
        message = f"{attention.name} fa3 does not run on {blackwell}: the engine refuses to start"
        yield at("KS204", attention.at_value, message, "write fa4 or triton_attn")


_BLACKWELL = ("B100", "B200", "B300", "Blackwell", "RTX 50")


def age_findings(situation: Situation) -> Iterator[Finding]:
    """Say that the forced CPU path is newer than the engine (KS205)."""
    forced = situation.forced
    if situation.kind != "sglang" or forced is None or situation.settings.engine.version is None:
        return
    oldest = checked_versions("sglang")[0]
    if version_key(situation.version) < version_key(oldest):
        message = (
            f"{FLAG} is known of sglang {oldest} and later; {situation.engine_name} is older and "
            "may ignore it in silence"
        )
        # Nobody read an older release.
        help = f"use sglang {oldest} or newer"
        yield at("KS205", forced, message, help, severity="warning")


RULES = (
    several_workers,
    sglang_pairs,
    remote_code,
    vllm_pairs,
    owned_flags,
    hardware_findings,
    age_findings,
)
