"""The command and the environment of SGLang.

Where a line looks needless, `docs/engine-commands.md` says which trap of the engine it avoids.
"""

from __future__ import annotations

import json

from kimi_serve.schemas.engine_names import (
    HEALTH_TIMEOUT,
    IO_WORKERS,
    IPC_SWITCH,
    OLD_SWITCH,
    SWITCH,
)
from kimi_serve.schemas.provenance import Origin

from ..resolver.devices import Devices
from ..resolver.engine_view import ARGS, origin_of
from ..resolver.situation import FLAG, WORKER_NUM, Situation
from . import common
from .gpus import write_gpus
from .tail import model_argument
from .writer import Writer

TRANSPORT = "--mm-feature-transport"
_HEALTH_S = 60
_IO_THREADS = 16  # what the processor class of Kimi asks for by itself
_PROCESSOR_THREADS = 2


def write_sglang(situation: Situation, devices: Devices) -> Writer:
    """Say the settings in the words of SGLang, in a fixed order."""
    writer = Writer(situation)
    _model(writer)
    common.write_address(writer)
    _key(writer)
    _workers(writer)
    common.write_skip_tokenizer(writer)
    _images(writer, devices)
    _media(writer)
    common.write_memory(writer)
    write_gpus(writer)
    _nodes(writer)
    if situation.is_set("log.level"):
        reason = "the least severe line that the engine writes"
        writer.flag("--log-level", "log.level", reason, situation.settings.log.level)
    common.take_own_variables_away(writer)
    return writer


def _model(writer: Writer) -> None:
    situation = writer.situation
    path = situation.settings.model.path
    argument = model_argument(situation)
    if path is not None:
        writer.flag("--model-path", "model.path", "the checkpoint that is served", path)
    elif argument is not None:
        origin = origin_of(situation.loaded, argument)
        reason = "engine.args name the model"
        writer.said(ARGS, origin, reason, "--model-path", *argument.values)
    common.write_model(writer)


def _key(writer: Writer) -> None:
    key = common.api_key(writer.situation)
    if key is not None:
        reason = "clients must send it; the engine takes it on its command line alone"
        secret = common.key_variable(writer.situation)
        writer.flag("--api-key", common.API_KEY, reason, key, secret=secret)


def _workers(writer: Writer) -> None:
    situation = writer.situation
    number = situation.num_workers
    reason = "processes with a tokenizer and an image processor each"
    writer.flag("--tokenizer-worker-num", WORKER_NUM, reason, str(number))
    if number > 1 and situation.variable(HEALTH_TIMEOUT) is None:
        writer.variable(
            HEALTH_TIMEOUT,
            WORKER_NUM,
            "a worker that is busy with images answers late, and is killed after 10 s by default",
            str(_HEALTH_S),
            origin=situation.workers_origin,
        )


def _images(writer: Writer, devices: Devices) -> None:
    situation = writer.situation
    _switch(writer, devices)
    if situation.forced is not None and _honours_switch(situation):
        _forced(writer)
    if situation.is_set("image.max_per_request"):
        limit = json.dumps({"image": situation.settings.image.max_per_request})
        reason = "the most images in one request"
        writer.flag("--limit-mm-data-per-request", "image.max_per_request", reason, limit)


def _switch(writer: Writer, devices: Devices) -> None:
    """Say on which device images are, or take away what would say it for nothing."""
    situation, forced = writer.situation, writer.situation.forced
    writer.take_away(OLD_SWITCH, FLAG, "the old name overwrites today's in the engine")
    is_open = situation.row is None and situation.has_images and forced is not None
    if _honours_switch(situation) or is_open:
        value, reason = "0" if forced is None else "1", _switch_reason(situation, devices)
        writer.variable(SWITCH, FLAG, reason, value, origin=_forced_origin(situation))
    elif SWITCH in (situation.env or {}) and SWITCH not in situation.settings.engine.env:
        reason = f"it does nothing for {situation.architecture} on {situation.engine_name}"
        writer.take_away(SWITCH, FLAG, reason)


def _honours_switch(situation: Situation) -> bool:
    return situation.row is not None and situation.row.flag == "honoured"


def _switch_reason(situation: Situation, devices: Devices) -> str:
    decode, preprocess = _place(devices.decode.value), _place(devices.preprocess.value)
    if _honours_switch(situation):
        return f"decode on {decode}, preprocess on {preprocess}, as planned"
    return f"images are decoded on {decode}; nobody checked this model"


def _forced(writer: Writer) -> None:
    """Say what the switch leaves out: transports and threads do not look at it."""
    origin = _forced_origin(writer.situation)
    reason = "a GPU transport opens a CUDA context in every worker"
    writer.extra(TRANSPORT, FLAG, origin, reason, "cpu")
    reason = "left alone it is 1 beside CUDA, as if images were on the GPU"
    writer.extra("--mm-processor-worker-num", FLAG, origin, reason, str(_PROCESSOR_THREADS))
    threads = writer.situation.whole(writer.situation.variable(IO_WORKERS))
    is_theirs = threads is not None and threads > 0
    reason = (
        f"{IO_WORKERS} says so" if is_theirs else f"the default, so that no {IO_WORKERS} counts"
    )
    value = str(threads if is_theirs else _IO_THREADS)
    writer.extra("--mm-io-worker-num", FLAG, origin, reason, value)
    if IPC_SWITCH not in writer.situation.settings.engine.env:
        writer.take_away(IPC_SWITCH, FLAG, "the old name of a GPU transport")


def _forced_origin(situation: Situation) -> Origin:
    forced = situation.forced
    return situation.origin(FLAG) if forced is None else forced.origin


def _place(device: str) -> str:
    return {"cpu": "the CPU", "cuda": "the GPU"}.get(device, "a device that nobody knows")


def _media(writer: Writer) -> None:
    common.write_domains(writer)
    if writer.situation.is_set("media.max_bytes"):
        mib, reason = common.whole_mib(writer.situation)
        writer.flag("--media-url-max-file-size-mb", "media.max_bytes", reason, str(mib))


def _nodes(writer: Writer) -> None:
    nodes = writer.situation.settings.engine.nodes
    if nodes.count < 2:
        return
    writer.flag("--nnodes", "engine.nodes.count", "the machines of this model", str(nodes.count))
    writer.flag("--node-rank", "engine.nodes.rank", "which of them this is", str(nodes.rank))
    if nodes.address is not None:
        reason = "where they find each other"
        writer.flag("--dist-init-addr", "engine.nodes.address", reason, nodes.address)
