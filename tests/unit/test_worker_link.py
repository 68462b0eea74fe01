"""How a worker is held on to, and let go of, with processes that only wait."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
from plan_factories import make_plan
from scarce import descriptors_left, open_descriptors

from kimi_serve.preprocess.workers.fork_client import ForkClient
from kimi_serve.preprocess.workers.worker_link import WorkerLink
from kimi_serve.schemas import messages
from kimi_serve.schemas.worker import WorkerSpec


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits to be told to end."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def make_link() -> WorkerLink:
    return WorkerLink(make_plan().workers[0])


def ignore(*_: object) -> None:
    """Hear of the end of a worker, or of a frame."""


@pytest.mark.parametrize("left", [0, 1])
def test_a_worker_is_killed_with_its_descriptor_and_without(
    process: subprocess.Popen[bytes], left: int
) -> None:
    async def run() -> None:
        link = make_link()
        with descriptors_left(left):
            link.know_pid(process.pid, ignore)
        link.kill()
        assert process.wait(30) == -signal.SIGKILL
        await link.close()

    asyncio.run(run())


def test_a_system_that_forbids_pidfds_is_done_without(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        link = make_link()
        link.is_gone = True  # given up before the fork server got to it
        link.know_pid(process.pid, ignore)
        assert process.wait(30) == -signal.SIGKILL
        await link.close()

    def forbidden(_: int) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "pidfd_open", forbidden)
    asyncio.run(run())


def test_a_bare_pid_is_left_alone_once_its_end_is_known(process: subprocess.Popen[bytes]) -> None:
    async def run() -> None:
        link = make_link()
        with descriptors_left(0):
            link.know_pid(process.pid, ignore)
        link.is_being_buried = True  # its pid may be another's from here on
        link.kill()
        await link.close()

    asyncio.run(run())
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(30) == 0


class Refusing:
    """A fork server that cannot be asked."""

    async def spawn(self, _spec: WorkerSpec, _fds: Sequence[int]) -> None:
        raise OSError(109, "Too many references: cannot splice")


class Announcing:
    """A fork server whose worker announces a frame."""

    def __init__(self, header: bytes) -> None:
        self.header = header

    async def spawn(self, _spec: WorkerSpec, fds: Sequence[int]) -> None:
        with socket.socket(fileno=os.dup(fds[0])) as theirs:
            theirs.sendall(self.header)


@pytest.mark.parametrize(
    ("json_bytes", "payload_bytes", "is_too_large"),
    [
        (2, messages.MAX_ANSWER_BYTES, False),
        (2, messages.MAX_ANSWER_BYTES + 1, True),
        (messages.MAX_ANSWER_JSON_BYTES, 0, False),
        (messages.MAX_ANSWER_JSON_BYTES + 1, 0, True),
    ],
)
def test_a_frame_that_no_answer_has_is_not_read(
    json_bytes: int, payload_bytes: int, is_too_large: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        link = make_link()
        client = Announcing(struct.pack("<II", json_bytes, payload_bytes))
        await link.open(cast(ForkClient, cast(Any, client)), ignore)
        assert link._reading is not None
        await link._reading
        await link.close()
        assert link.is_gone

    asyncio.run(run())
    assert ("larger than any answer" in caplog.text) == is_too_large


@pytest.mark.parametrize("left", [0, 1, 2, 3, 8])
def test_a_link_that_cannot_be_opened_leaves_nothing_open(left: int) -> None:
    async def run() -> None:
        before = open_descriptors()
        link = make_link()
        with descriptors_left(left), pytest.raises(OSError, match="Too many"):
            await link.open(cast(ForkClient, cast(Any, Refusing())), ignore)
        await link.close()
        assert open_descriptors() <= before

    asyncio.run(run())
