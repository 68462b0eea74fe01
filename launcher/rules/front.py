"""The built-in front: memory of its image cache (KS308), and its admin listener."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.patch_bound import slot_bytes

from ..resolver.situation import Situation
from .given import is_public
from .wording import on

CACHE = "image.cache_bytes"
ADMIN_HOST = "server.admin_host"
ADMIN_PORT = "server.admin_port"


def cache_memory(situation: Situation) -> Iterator[Finding]:
    """Say what the image cache takes, and where it is too much or too little (KS308)."""
    settings = situation.settings
    size = settings.image.cache_bytes
    if situation.kind != "none" or not size:
        return
    queued = settings.server.max_queued_bytes
    message = (
        f"the front keeps up to {_mib(size)} of processed images, beside up to {_mib(queued)} of "
        "requests and answers (server.max_queued_bytes)"
    )
    largest = _largest_image(situation)
    if largest is not None and size < largest:
        message += f"; the largest image takes {_mib(largest)} and is never kept"
        help = f"set it to some times {largest}, or to 0"
        yield on(situation, "KS308", CACHE, message, help)
        return
    host = situation.hardware
    if host is not None and size + queued > host.memory_mib * 2**20:
        message += f"; this host has {host.memory_mib} MiB"
        help = f"lower {CACHE} or server.max_queued_bytes: the workers need memory too"
        yield on(situation, "KS308", CACHE, message, help)
        return
    yield on(situation, "KS308", CACHE, message, severity="info")


def _largest_image(situation: Situation) -> int | None:
    """Give the bytes of the largest pixel_values as a JSON answer has them, in base64."""
    checkpoint = situation.checkpoint
    if checkpoint is None or checkpoint.resize is None:
        return None
    return slot_bytes(checkpoint.resize, situation.settings.image.dtype)


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"


def admin_listener(situation: Situation) -> Iterator[Finding]:
    """Find an admin listener that is none, that clashes, or that everybody reaches."""
    server = situation.settings.server
    if situation.kind != "none":
        return
    if server.admin_port is None:
        if situation.is_set(ADMIN_HOST):
            message = f"{ADMIN_HOST} has no effect without {ADMIN_PORT}"
            yield on(situation, "KS202", ADMIN_HOST, message, f"set {ADMIN_PORT}")
        return
    if server.admin_port and server.admin_port == server.port:
        message = f"{ADMIN_PORT} and server.port both take port {server.port}"
        yield on(situation, "KS402", ADMIN_PORT, message, "give each listener a port of its own")
    if is_public(server.admin_host) and server.api_key is None and server.previous_api_key is None:
        message = (
            f"everybody who reaches {server.admin_host} can read /metrics and /server_info: "
            "there is no key"
        )
        help = "set server.api_key: {env: NAME}, or the address to 127.0.0.1"
        yield on(situation, "KS506", ADMIN_HOST, message, help)


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (cache_memory, admin_listener)
