"""The watch over workers, with real processes that do as little as possible."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
from scarce import descriptors_left

from kimi_serve.preprocess.workers.jobs import Job
from kimi_serve.preprocess.workers.process import thread_state
from kimi_serve.preprocess.workers.watch import Watch
from kimi_serve.preprocess.workers.worker_link import WorkerLink


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that waits to be told to end."""
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    yield process.pid
    process.kill()
    process.communicate()


class FakeLink:
    """As much of a worker as the watch looks at."""

    def __init__(self, pid: int, thread: int, job: Job | None = None) -> None:
        self.pid = pid
        self.is_gone = False
        self.image_job = job
        self.text_job: Job | None = None
        self.report = type("Report", (), {"image_thread": thread})
        self.killed = asyncio.Event()

    def kill(self) -> None:
        self.is_gone = True
        self.killed.set()


def watch(link: FakeLink, limit_s: float, costly: list[tuple[Job, float]]) -> Watch:
    def on_costly(_: WorkerLink, job: Job, limit: float) -> None:
        costly.append((job, limit))
        link.kill()

    links = cast("list[WorkerLink]", [link])
    return Watch(lambda: links, lambda: None, limit_s, limit_s, on_costly)


def job() -> Job:
    make: Any = None
    answered = asyncio.get_running_loop().create_future()
    return Job(1, b"", is_image=True, make=make, answered=answered, request=1)


def test_a_stopped_process_is_ended(sleeper: int) -> None:
    async def run() -> None:
        link = FakeLink(sleeper, sleeper)
        watching = watch(link, 0.4, [])
        os.kill(sleeper, signal.SIGSTOP)
        watching.start(lambda: None)
        await link.killed.wait()
        watching.stop()

    asyncio.run(run())


def test_processor_time_counts_and_waiting_does_not(sleeper: int) -> None:
    async def run() -> list[tuple[Job, float]]:
        costly: list[tuple[Job, float]] = []
        waiting = watch(FakeLink(sleeper, sleeper, job()), 0.2, costly)
        waiting.start(lambda: None)
        over = threading.Event()
        numbers: list[int] = []

        def burn() -> None:
            numbers.append(threading.get_native_id())
            while not over.is_set():
                pass

        burning = threading.Thread(target=burn)
        burning.start()
        while not numbers:
            await asyncio.sleep(0)
        busy = FakeLink(os.getpid(), numbers[0], job())
        watching = watch(busy, 0.2, costly)
        watching.start(lambda: None)
        await busy.killed.wait()
        over.set()
        burning.join()
        for each in (waiting, watching):
            each.stop()
        assert costly[0][0] is busy.image_job
        return costly

    assert [limit for _, limit in asyncio.run(run())] == [0.2]


def test_a_look_without_a_descriptor_charges_a_job_nothing() -> None:
    async def run() -> None:
        costly: list[tuple[Job, float]] = []
        numbers: list[int] = []
        over = threading.Event()

        def earlier_work() -> None:
            end = time.thread_time() + 0.3
            while time.thread_time() < end:
                pass
            numbers.append(threading.get_native_id())
            over.wait(60)

        worker = threading.Thread(target=earlier_work)
        worker.start()
        while not numbers:
            await asyncio.sleep(0.01)
        watching = watch(FakeLink(os.getpid(), numbers[0], job()), 0.1, costly)
        look = watching._look  # pyright: ignore[reportPrivateUsage]
        with descriptors_left(0):
            assert thread_state(os.getpid(), numbers[0]) == ("", 0.0)
            look(lambda: None)
        look(lambda: None)
        over.set()
        worker.join()
        assert costly == []

    asyncio.run(run())


def test_a_look_that_fails_is_not_the_last(sleeper: int, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        link = FakeLink(sleeper, sleeper)
        faults = [OSError("no such luck")]

        def links() -> list[WorkerLink]:
            if faults:
                raise faults.pop()
            return cast("list[WorkerLink]", [link])

        watching = Watch(links, lambda: None, 0.4, 0.4, lambda _link, _job, _limit: None)
        os.kill(sleeper, signal.SIGSTOP)
        watching.start(lambda: None)
        await asyncio.wait_for(link.killed.wait(), 30)
        watching.stop()

    asyncio.run(run())
    assert "no such luck" in caplog.text


def test_a_process_that_is_gone_has_no_state() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    assert thread_state(process.pid, process.pid) == ("", 0.0)


def test_processor_time_is_read_in_seconds() -> None:
    before = thread_state(os.getpid(), threading.get_native_id())[1]
    spent = time.thread_time()
    while time.thread_time() - spent < 0.1:
        pass
    assert thread_state(os.getpid(), threading.get_native_id())[1] - before >= 0.08
