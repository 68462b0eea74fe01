"""The end of a server without a reset: whoever is connected is accepted, and told, first.

Closing a listener resets the connections in its backlog, whose clients have sent a request by
then. So the kernel is first told to drop SYN packets: a client that comes now tries again in a
second and finds the port closed, which is safe to retry, and the backlog is emptied meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from uvicorn.server import ServerState

from .front.clients import TimedHttpProtocol

# Connections that nobody uses are kept for so long after the last work: a request that meets the
# close of its connection is lost, and only an answer can tell a client not to use it again.
TELL_CLIENTS_S = 1.0
_LOOK_S = 0.05
_SO_ATTACH_FILTER = 26
# Classic BPF over the TCP header: drop what has SYN set, pass everything else whole.
_LOAD_FLAGS = (0x30, 0, 0, 13)
_JUMP_UNLESS_SYN = (0x45, 0, 1, 0x02)
_DROP = (0x06, 0, 0, 0)
_PASS = (0x06, 0, 0, 0xFFFFFFFF)
_PROGRAM = (_LOAD_FLAGS, _JUMP_UNLESS_SYN, _DROP, _PASS)


def take_no_more(listeners: Sequence[socket.socket]) -> None:
    """Let no new client begin to connect, where the kernel can."""
    code = b"".join(struct.pack("HBBI", *instruction) for instruction in _PROGRAM)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("@HP", len(_PROGRAM), ctypes.addressof(buffer))
    for listener in listeners:
        with contextlib.suppress(OSError):
            listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)


async def all_told(state: ServerState, stop: asyncio.Future[Any], deadline: float) -> None:
    """Wait until every connection is closed by its last answer, or was not used for a while.

    While any request is under way, all stay open: the clients of the others may be about to ask.
    """
    quiet_since = time.monotonic()
    while state.connections and not stop.done():
        now = time.monotonic()
        if state.tasks or any(map(_is_busy, state.connections)):
            quiet_since = now
        if now >= min(deadline, quiet_since + TELL_CLIENTS_S):
            return
        await asyncio.wait([stop], timeout=min(_LOOK_S, max(0.0, deadline - now)))


def _is_busy(connection: object) -> bool:
    return isinstance(connection, TimedHttpProtocol) and connection.is_busy
