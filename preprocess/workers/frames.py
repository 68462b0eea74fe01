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

    def receive(self) -> tuple[Message, bytearray | None] | None:
        """Wait for the next frame; None when the other side is gone.

        The payload is None when there is no memory for it; it was read and dropped.
        """
        header = self._read(HEADER_BYTES)
        if header is None:
            return None
        json_bytes, payload_bytes = unpack_header(bytes(header))
        text = self._read(json_bytes)
        if text is None:
            return None
        try:
            buffer = bytearray(payload_bytes)
        except MemoryError:
            return (unpack(bytes(text)), None) if self._drop(payload_bytes) else None
        payload = self._fill(buffer)
        return None if payload is None else (unpack(bytes(text)), payload)

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send one whole frame."""
        with self._lock:
            self._sock.sendall(pack(message, len(payload)))
            if payload:
                self._sock.sendall(payload)

    def _read(self, size: int) -> bytearray | None:
        return self._fill(bytearray(size))

    def _drop(self, size: int) -> bool:
        while size and (piece := self._read(min(size, _PIECE_BYTES))) is not None:
            size -= len(piece)
        return size == 0

    def _fill(self, buffer: bytearray) -> bytearray | None:
        view = memoryview(buffer)
        while view:
            count = self._sock.recv_into(view)
            if count == 0:
                return None
            view = view[count:]
        return buffer
