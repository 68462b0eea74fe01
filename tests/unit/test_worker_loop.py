"""How a worker answers texts, short and long, with a processor that is made up."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import socket
import threading
from typing import Any, cast

import pytest

from kimi_serve.preprocess.workers.arena import Arena
from kimi_serve.preprocess.workers.frames import FrameSocket
from kimi_serve.preprocess.workers.processor import KimiProcessor
from kimi_serve.preprocess.workers.worker import _Loop
from kimi_serve.schemas import messages


class Twofold:
    """Makes two ids of every byte."""

    def text(self, job: messages.TextJob, payload: bytes) -> tuple[messages.TokensResult, bytes]:
        return messages.TokensResult(job.id, (), 0), payload * 2 * messages.ID_BYTES


@pytest.mark.parametrize("long_bytes", [messages.LONG_TEXT_BYTES, 0])
def test_more_ids_than_an_answer_may_have_are_refused_by_the_worker(
    monkeypatch: pytest.MonkeyPatch, long_bytes: int
) -> None:
    monkeypatch.setattr(messages, "MAX_ANSWER_BYTES", 16)
    monkeypatch.setattr(messages, "LONG_TEXT_BYTES", long_bytes)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        processor = cast(KimiProcessor, cast(Any, Twofold()))
        loop = _Loop(FrameSocket(theirs), processor, cast(Arena, cast(Any, None)))
        running = threading.Thread(target=loop.run)
        running.start()
        front = FrameSocket(ours)
        front.send(messages.TextJob(1), b"ab")
        assert front.receive() == (messages.TokensResult(1, (), 0), b"ab" * 8)
        front.send(messages.TextJob(2), b"abc")
        answer = front.receive()
        assert answer is not None
        assert isinstance(answer[0], messages.JobFailed)
        assert (answer[0].error, answer[0].message) == (
            "BodyTooLargeError",
            "it becomes 6 tokens; at most 4 are given",
        )
        front.send(messages.Stop())
        running.join(30)
        assert not running.is_alive()
