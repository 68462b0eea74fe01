"""The end of a listening socket without a reset: whoever is connected is accepted first.

Closing a listener resets the connections in its backlog, whose clients have sent a request by
then. So the kernel is first told to drop SYN packets: a client that comes now tries again in a
second and finds the port closed, which is safe to retry, and the backlog is emptied meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
from collections.abc import Sequence

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
