"""Frames of `schemas.messages` over a blocking socket: the worker's side."""

from __future__ import annotations

import socket
import threading

from kimi_serve.schemas.messages import HEADER_BYTES, Message, pack, unpack, unpack_header


class FrameSocket:
    """Reads frames from one thread and sends them from any."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def receive(self) -> tuple[Message, bytearray] | None:
        """Wait for the next frame; None when the other side is gone."""
        header = self._read(HEADER_BYTES)
        if header is None:
            return None
        json_bytes, payload_bytes = unpack_header(bytes(header))
        text = self._read(json_bytes)
        payload = self._read(payload_bytes)
        if text is None or payload is None:
            return None
        return unpack(bytes(text)), payload

    def send(self, message: Message, payload: bytes = b"") -> None:
        """Send one whole frame."""
        with self._lock:
            self._sock.sendall(pack(message, len(payload)))
            if payload:
                self._sock.sendall(payload)

    def _read(self, size: int) -> bytearray | None:
        buffer = bytearray(size)
        view = memoryview(buffer)
        while view:
            count = self._sock.recv_into(view)
            if count == 0:
                return None
            view = view[count:]
        return buffer
