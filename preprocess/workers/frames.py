"""Frames of `schemas.messages` over a blocking socket: the worker's side."""

from __future__ import annotations

import socket
import threading

from kimi_serve.schemas.messages import HEADER_BYTES, Message, pack, unpack, unpack_header

_PIECE_BYTES = 1 << 16


class FrameSocket:
    """Reads frames from one thread and sends them from any."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def receive(self) -> tuple[Message, bytes | None] | None:
        """Wait for the next frame; None when the other side is gone.

        The payload is None when there is no memory for it; it was read and dropped.
        """
        header = self._read(HEADER_BYTES)
        if header is None:
            return None
        json_bytes, payload_bytes = unpack_header(header)
        text = self._read(json_bytes)
        if text is None:
            return None
        try:
            payload = self._read(payload_bytes)
        except _NoMemoryError as error:
            return (unpack(text), None) if self._drop(error.left) else None
        return None if payload is None else (unpack(text), payload)

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send one whole frame."""
        with self._lock:
            self._sock.sendall(pack(message, len(payload)))
            if payload:
                self._sock.sendall(payload)

    def _read(self, size: int) -> bytes | None:
        """Read so many bytes, which the kernel puts where they stay; None at an early end."""
        pieces: list[bytes] = []
        left = size
        try:
            while left:
                piece = self._sock.recv(left, socket.MSG_WAITALL)
                if not piece:
                    return None
                left -= len(piece)
                pieces.append(piece)
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        except MemoryError:
            raise _NoMemoryError(left) from None

    def _drop(self, size: int) -> bool:
        while size and (piece := self._read(min(size, _PIECE_BYTES))) is not None:
            size -= len(piece)
        return size == 0


class _NoMemoryError(MemoryError):
    """There is no room for the rest; `left` bytes of it are not read yet."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self.left = left
