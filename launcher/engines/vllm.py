"""The command and the environment of vLLM.

Where a line looks needless, `docs/engine-commands.md` says which trap of the engine it avoids.
"""

from __future__ import annotations

import json
import math

from kimi_serve.schemas.engine_names import K25, KIMI

from ..resolver.engine_view import ARGS, origin_of
from ..resolver.situation import FLAG, WORKER_NUM, Situation
from . import common
from .gpus import write_gpus
from .tail import model_argument
from .writer import Writer

THREADS = "NUMBA_NUM_THREADS"


def write_vllm(situation: Situation) -> Writer:
    """Say the settings in the words of vLLM, in a fixed order."""
    writer = Writer(situation)
    _model(writer)
    if is_headless(situation):
        reason = "it answers no clients: no address, key or API servers here"
        writer.flag("--headless", "engine.nodes.rank", reason)
    else:
        _serving(writer)
    common.write_skip_tokenizer(writer)
    _images(writer)
    _media(writer)
    common.write_memory(writer)
    write_gpus(writer)
    _nodes(writer)
    _log(writer)
    common.take_own_variables_away(writer)
    return writer


def is_headless(situation: Situation) -> bool:
    """Say whether this machine only computes for the first one."""
    is_told = common.is_on(situation, "--headless")
    return is_told or common.is_behind_the_first(situation)


def _model(writer: Writer) -> None:
    situation = writer.situation
    path = situation.settings.model.path
    argument = model_argument(situation)
    if path is not None:
        origin = situation.origin("model.path")
        writer.said("model.path", origin, "the checkpoint that is served", "", path)
    elif argument is not None:
        origin = origin_of(situation.loaded, argument)
        writer.said(ARGS, origin, "engine.args name the model", "", *argument.values)
    common.write_model(writer)


def _serving(writer: Writer) -> None:
    situation = writer.situation
    common.write_address(writer)
    key = common.api_key(situation)
    if key is not None:
        reason = "clients must send it; a command line would show it to every user of the host"
        secret = common.key_variable(situation)
        writer.variable("VLLM_API_KEY", common.API_KEY, reason, key, secret=secret)
    seconds = common.drain_seconds(situation)
    reason = "the time to finish requests after SIGTERM; the default cuts them"
    reason += common.rounding(situation.settings.server.drain_timeout_s)
    writer.flag("--shutdown-timeout", common.DRAIN, reason, str(seconds))
    _servers(writer)


def _servers(writer: Writer) -> None:
    situation = writer.situation
    number = situation.num_workers
    if situation.is_set(WORKER_NUM) or not _has_replicas(situation):
        reason = (
            "processes with a tokenizer and one image thread each; with several, none may die and "
            "processed images are not cached"
        )
        writer.flag("--api-server-count", WORKER_NUM, reason, str(number))
    hardware = situation.hardware
    is_told = situation.variable(THREADS) is not None
    if number > 1 and hardware is not None and not is_told and situation.is_one_of(KIMI):
        threads = max(1, int(hardware.cpus) // number)
        reason = f"{hardware.cpus:g} cores for {number} API servers, which take all of them each"
        writer.variable(THREADS, WORKER_NUM, reason, str(threads), origin=situation.workers_origin)


def _has_replicas(situation: Situation) -> bool:
    """Say whether vLLM counts its API servers by the replicas that engine.args ask for."""
    return any(
        argument.flag is not None and argument.flag.flag.startswith("--data-parallel")
        for argument in situation.arguments
    )


def _images(writer: Writer) -> None:
    situation = writer.situation
    image = situation.settings.image
    if image.force_cpu_preprocessing:
        is_kimi = situation.is_one_of(KIMI)
        reason = "image processors stay on the CPU"
        if is_kimi:
            reason = "nothing to do for Kimi, whose images are on the CPU whatever this says"
        writer.extra("--mm-processor-device", FLAG, situation.origin(FLAG), reason, "cpu")
    if situation.is_set("image.max_per_request"):
        modality = "vision_chunk" if situation.is_one_of((K25,)) else "image"
        limit = json.dumps({modality: image.max_per_request})
        reason = "the most images in one request"
        if modality != "image":
            reason += ", which Kimi-K2.5 counts as vision chunks"
        writer.flag("--limit-mm-per-prompt", "image.max_per_request", reason, limit)
    if situation.is_set("image.max_pixels"):
        reason = "the largest width x height that is decoded"
        writer.variable("VLLM_MAX_IMAGE_PIXELS", "image.max_pixels", reason, str(image.max_pixels))


def _media(writer: Writer) -> None:
    common.write_domains(writer)
    situation = writer.situation
    media = situation.settings.media
    folders = media.allowed_local_dirs
    if len(folders) == 1:
        reason = "local images are read from there alone"
        path = "media.allowed_local_dirs"
        writer.flag("--allowed-local-media-path", path, reason, *folders)
    if situation.is_set("media.max_bytes"):
        mib, reason = common.whole_mib(situation)
        writer.variable("VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB", "media.max_bytes", reason, str(mib))
    if situation.is_set("media.timeout_s"):
        seconds = math.ceil(media.timeout_s)
        reason = "seconds to fetch one image" + common.rounding(media.timeout_s)
        writer.variable("VLLM_IMAGE_FETCH_TIMEOUT", "media.timeout_s", reason, str(seconds))
    if situation.is_set("media.max_redirects"):
        is_allowed = media.max_redirects > 0
        reason = "redirects are followed, and not counted" if is_allowed else "none is followed"
        value = "1" if is_allowed else "0"
        writer.variable("VLLM_MEDIA_URL_ALLOW_REDIRECTS", "media.max_redirects", reason, value)


def _nodes(writer: Writer) -> None:
    nodes = writer.situation.settings.engine.nodes
    if nodes.count < 2:
        return
    writer.flag("--nnodes", "engine.nodes.count", "the machines of this model", str(nodes.count))
    writer.flag("--node-rank", "engine.nodes.rank", "which of them this is", str(nodes.rank))
    if nodes.address is not None:
        host, _, port = nodes.address.rpartition(":")
        path, reason = "engine.nodes.address", "where they find each other"
        writer.flag("--master-addr", path, reason, host.strip("[]") or nodes.address)
        if host:
            writer.flag("--master-port", path, reason, port)


def _log(writer: Writer) -> None:
    if not writer.situation.is_set("log.level"):
        return
    level = writer.situation.settings.log.level
    reason = "the least severe line that the engine writes"
    writer.variable("VLLM_LOGGING_LEVEL", "log.level", reason, level.upper())
    if not is_headless(writer.situation):
        writer.flag("--uvicorn-log-level", "log.level", reason, level)
