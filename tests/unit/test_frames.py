"""Frames as a worker reads them: in any pieces, up to an early end, without memory for them."""

from __future__ import annotations

import random
import socket
import threading
from typing import Any

import pytest

from kimi_serve.preprocess.workers.frames import FrameSocket
from kimi_serve.schemas.messages import Stop, TextJob, pack


@pytest.fixture
def ends() -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, FrameSocket(theirs)


def _send_in_pieces(ours: socket.socket, data: bytes, sizes: random.Random) -> threading.Thread:
    def send() -> None:
        start = 0
        while start < len(data):
            size = sizes.choice((1, 3, 100, 1 << 12, 1 << 18))
            ours.sendall(data[start : start + size])
            start += size

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@pytest.mark.parametrize("size", [0, 1, 1 << 12, 3_000_001])
def test_a_frame_in_pieces(ends: tuple[socket.socket, FrameSocket], size: int) -> None:
    ours, frames = ends
    payload = random.Random(size).randbytes(size)
    sending = _send_in_pieces(ours, pack(TextJob(7), size) + payload, random.Random(1))
    assert frames.receive() == (TextJob(7), payload)
    sending.join()


def test_the_other_side_ends(ends: tuple[socket.socket, FrameSocket]) -> None:
    ours, frames = ends
    frame = pack(TextJob(7), 100)
    ours.sendall(frame + b"x" * 99)
    ours.shutdown(socket.SHUT_WR)
    assert frames.receive() is None
    assert frames.receive() is None


class _Poor:
    """A socket without memory for large pieces; `first` of them are read before that shows."""

    def __init__(self, sock: socket.socket, first: int) -> None:
        self._sock = sock
        self._first = first

    def recv(self, size: int, flags: int) -> bytes:
        if size <= 1 << 16:
            return self._sock.recv(size, flags)
        if self._first:
            self._first -= 1
            return self._sock.recv(1000, flags)
        raise MemoryError


@pytest.mark.parametrize("first", [0, 1, 3])
def test_a_payload_without_memory_is_dropped_whole(first: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        poor: Any = _Poor(theirs, first)
        frames = FrameSocket(poor)
        data = pack(TextJob(7), 200_000) + bytes(200_000) + pack(Stop())
        sending = _send_in_pieces(ours, data, random.Random(2))
        assert frames.receive() == (TextJob(7), None)
        assert frames.receive() == (Stop(), b"")
        sending.join()
