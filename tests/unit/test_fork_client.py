"""The launcher's end of the fork server when the machine, or the fork server, has its troubles."""

from __future__ import annotations

import asyncio
import itertools
import resource
import socket
import subprocess
from pathlib import Path
from typing import Any, cast

import pytest
from plan_factories import make_plan
from scarce import descriptors_left, open_descriptors

from kimi_serve.preprocess.workers.fork_client import ForkClient
from kimi_serve.preprocess.workers.forkserver import FDS_PER_WORKER


def make_client() -> ForkClient:
    return ForkClient({}, {})


class Listener:
    """Keeps what the fork server said."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[str, int, str | int]] = asyncio.Queue()

    def on_spawned(self, index: int, pid: int) -> None:
        self.said.put_nowait(("spawned", index, pid))

    def on_not_spawned(self, index: int, reason: str) -> None:
        self.said.put_nowait(("not spawned", index, reason))

    def on_exited(self, pid: int, status: int) -> None:
        self.said.put_nowait(("exited", pid, status))

    def on_fork_server_lost(self) -> None:
        self.said.put_nowait(("lost", 0, 0))


@pytest.mark.parametrize("left", range(5))
def test_a_start_without_descriptors_leaves_nothing_open(left: int) -> None:
    async def run() -> None:
        before = open_descriptors()
        client = make_client()
        with descriptors_left(left), pytest.raises(OSError, match="Too many open files"):
            client.start()
        await client.close()
        await client.close()
        assert open_descriptors() <= before
        assert client.pid is None

    asyncio.run(run())


class Dying:
    """A killed process that takes its time, as one in a call to a network file system does."""

    pid = 1

    def __init__(self) -> None:
        self.looks_left = 5
        self.returncode: int | None = None

    def kill(self) -> None:
        """Take note."""

    def poll(self) -> int | None:
        self.looks_left -= 1
        if self.looks_left <= 0:
            self.returncode = -9
        return self.returncode

    def wait(self) -> int:
        raise AssertionError("the event loop stands still meanwhile")


def test_the_loop_goes_on_while_a_killed_fork_server_ends() -> None:
    async def run() -> None:
        client = make_client()
        dying = Dying()
        client._process = cast("subprocess.Popen[bytes]", cast(Any, dying))  # pyright: ignore[reportPrivateUsage]
        await client.close()
        assert (dying.returncode, client.pid) == (-9, None)

    asyncio.run(run())


def test_what_one_fork_server_was_asked_is_not_asked_of_the_next() -> None:
    async def run() -> None:
        client, spec = make_client(), make_plan().workers[0]
        ends = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
        for end in (end for pair in ends for end in pair):
            end.setblocking(False)
        client._control = ends[0][0]  # pyright: ignore[reportPrivateUsage]
        async with client._spawning:  # pyright: ignore[reportPrivateUsage]
            asked = asyncio.ensure_future(client.spawn(spec, [0]))
            await asyncio.sleep(0)  # it waits for its turn
            client._control = ends[1][0]  # pyright: ignore[reportPrivateUsage]
        await asked
        for pair in ends:
            with pytest.raises(BlockingIOError):
                pair[1].recv(1)
            for end in pair:
                end.close()

    asyncio.run(run())


def test_a_fork_server_without_descriptors_says_so_and_forks_again_later() -> None:
    async def run() -> None:
        spec = make_plan().workers[0]
        client, listener = ForkClient(dict(spec.env), {}), Listener()
        client.start()
        client.attach(listener)
        pid = client.pid
        assert pid is not None
        with open("/dev/null", "rb") as null:
            fds = [null.fileno()] * FDS_PER_WORKER
            await client.spawn(spec, fds)
            # Once it answers it has opened what it needs.
            assert (await asyncio.wait_for(listener.said.get(), 60))[0] == "spawned"
            assert (await asyncio.wait_for(listener.said.get(), 60))[0] == "exited"
            opened = {int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()}
            free = (number for number in itertools.count() if number not in opened)
            *_, one_too_many = itertools.islice(free, FDS_PER_WORKER)
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (one_too_many, limits[1]))
            await client.spawn(spec, fds)
            said = await asyncio.wait_for(listener.said.get(), 60)
            assert said == ("not spawned", spec.index, "no descriptors are left for it")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            await client.spawn(spec, fds)
            assert (await asyncio.wait_for(listener.said.get(), 60))[0] == "spawned"
        await client.close()

    asyncio.run(run())
