"""What the front holds: counted, bounded, given back."""

from __future__ import annotations

import asyncio
import os

import pytest
from in_loop import in_loop
from starlette.requests import Request
from starlette.types import Message

from kimi_serve.launcher.front.admission import WRITE_NOW, Admission, Hold
from kimi_serve.launcher.front.clients import ABORT, SendDeadline
from kimi_serve.schemas.errors import BodyTooLargeError, ClientGoneError, OverloadedError


class Client:
    """A client that sends `pieces`, then nothing more."""

    def __init__(self, *pieces: bytes, announced: int | None = None, leaves: bool = False) -> None:
        self._messages: list[Message] = [
            {"type": "http.request", "body": piece, "more_body": True} for piece in pieces
        ]
        if leaves:
            self._messages.append({"type": "http.disconnect"})
        elif self._messages:
            self._messages[-1]["more_body"] = False
        headers = [] if announced is None else [(b"content-length", str(announced).encode())]
        self.request = Request({"type": "http", "headers": headers}, self._receive)

    @property
    def num_unread(self) -> int:
        return len(self._messages)

    async def _receive(self) -> Message:
        return self._messages.pop(0)


@in_loop
async def test_a_body_counts_until_its_block_ends() -> None:
    admission = Admission(100, 100)
    async with admission.body(Client(b"abc", b"de").request) as body:
        assert body == b"abcde"
        assert admission.held_bytes == 5
    assert admission.held_bytes == 0


@in_loop
async def test_an_announced_length_is_refused_before_it_is_read_and_then_dropped() -> None:
    admission = Admission(10, 100)
    client = Client(b"x" * 8, b"x" * 8, announced=16)
    with pytest.raises(BodyTooLargeError, match=r"server\.max_body_bytes"):
        async with admission.body(client.request):
            pass
    assert client.num_unread == 0
    assert admission.held_bytes == 0


@in_loop
async def test_a_body_of_unknown_length_is_refused_when_it_is_too_much() -> None:
    admission = Admission(10, 100)
    client = Client(*[b"xxxx"] * 6)
    with pytest.raises(BodyTooLargeError):
        async with admission.body(client.request):
            pass
    assert client.num_unread == 0
    assert admission.held_bytes == 0


@in_loop
async def test_a_body_that_could_never_be_held_is_too_large_and_not_to_be_tried_again() -> None:
    admission = Admission(1000, 10)
    with pytest.raises(BodyTooLargeError):
        async with admission.body(Client(b"x" * 20).request):
            pass


@in_loop
async def test_what_others_hold_makes_it_an_overload() -> None:
    admission = Admission(10, 10)
    with Hold(admission) as others:
        others.take(8)
        with pytest.raises(OverloadedError, match=r"server\.max_queued_bytes"):
            async with admission.body(Client(b"x" * 5).request):
                pass
        assert admission.held_bytes == 8
    async with admission.body(Client(b"x" * 5).request):
        assert admission.held_bytes == 5


@in_loop
async def test_a_client_that_leaves_gives_back_what_it_sent() -> None:
    admission = Admission(100, 100)
    with pytest.raises(ClientGoneError, match="closed the connection"):
        async with admission.body(Client(b"abc", leaves=True).request):
            pass
    assert admission.held_bytes == 0


@in_loop
async def test_requests_that_wait_are_bounded_and_those_that_send_are_not() -> None:
    admission = Admission(100, 100, 1)
    async with admission.body(Client(b"abc").request):
        assert admission.num_waiting == 1
        late = Client(b"abc")
        with pytest.raises(OverloadedError, match=r"server\.max_queued_requests"):
            async with admission.body(late.request):
                pass
        assert late.num_unread == 0
    async with admission.body(Client(b"abc").request):
        assert admission.num_waiting == 1
    assert (admission.num_waiting, admission.held_bytes) == (0, 0)


@in_loop
async def test_new_bounds_leave_what_is_held() -> None:
    admission = Admission(100, 100, 5)
    async with admission.body(Client(b"abc").request):
        admission.limit(2, 2, 1)
        with pytest.raises(OverloadedError):
            async with admission.body(Client(b"a").request):
                pass
    async with admission.body(Client(b"a").request):
        assert admission.held_bytes == 1


async def _receive_nothing() -> Message:
    raise AssertionError


@in_loop
async def test_an_answer_counts_until_it_is_sent() -> None:
    admission = Admission(100, 100)
    held: list[int] = []

    async def send(message: Message) -> None:
        held.append(admission.held_bytes)

    with Hold(admission) as hold:
        hold.take(6)
        response = hold.response([b"head", bytearray(b"pixels")], "text/plain")
    assert admission.held_bytes == 10
    await response({"type": "http"}, _receive_nothing, send)
    assert held == [10, 10, 6, 0]
    assert admission.held_bytes == 0


class Socket:
    """Takes the next of `sizes` at once, None when it is gone, and everything that is sent."""

    def __init__(self, *sizes: int | None) -> None:
        self._sizes = list(sizes)
        self.taken = b""
        self.copied: list[int] = []

    def write_now(self, data: memoryview) -> int | None:
        size = self._sizes.pop(0) if self._sizes else 0
        if size is not None:
            self.taken += data[:size]
            size = min(size, len(data))
        return size

    async def send(self, message: Message) -> None:
        body = message.get("body", b"")
        assert isinstance(body, bytes)  # never a view of what may change
        self.copied.append(len(body))
        self.taken += body


@in_loop
async def test_what_a_socket_takes_at_once_is_not_copied_and_the_order_stays() -> None:
    admission = Admission(2**21, 2**21)
    pixels = bytearray(os.urandom(2 * 10**6))
    client = Socket(0, 7, 2 * 10**6, 0, 100_000, 0, 0, 300_000)
    with Hold(admission) as hold:
        response = hold.response([b"head", pixels, b"tail"], "text/plain")
    scope = {"type": "http", WRITE_NOW: client.write_now}
    await response(scope, _receive_nothing, client.send)
    assert client.taken == b"head" + pixels + b"tail"
    assert max(client.copied) == 2**17
    assert sum(client.copied) < 700_000
    assert admission.held_bytes == 0


@in_loop
async def test_a_connection_that_is_gone_ends_its_answer() -> None:
    admission = Admission(100, 100)
    client = Socket(2, None)
    with Hold(admission) as hold:
        response = hold.response([b"head", b"tail"], "text/plain")
    scope = {"type": "http", WRITE_NOW: client.write_now}
    await response(scope, _receive_nothing, client.send)
    assert client.taken == b"he"
    assert admission.held_bytes == 0


@in_loop
async def test_an_answer_that_is_not_taken_is_cut_and_given_back() -> None:
    admission = Admission(100, 100)
    aborted = asyncio.Event()

    async def send(_: Message) -> None:
        if not aborted.is_set():
            await asyncio.Event().wait()

    with Hold(admission) as hold:
        response = hold.response([b"pixels"], "text/plain")
    scope = {"type": "http", ABORT: aborted.set}
    await SendDeadline(response, 0.01)(scope, _receive_nothing, send)
    assert aborted.is_set()
    assert admission.held_bytes == 0


@in_loop
async def test_a_hold_past_the_bound_counts_nothing() -> None:
    admission = Admission(10, 10)
    with Hold(admission) as hold, pytest.raises(OverloadedError):
        hold.take(11)
    assert admission.held_bytes == 0
