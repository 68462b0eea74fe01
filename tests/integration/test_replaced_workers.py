"""What a worker that ended leaves behind: no memory, no descriptor, no verdict after one kill."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pytest
from integration_server import RunningServer, Start, wait_until
from test_limits import PHOTO, SMALL, images
from test_processes import children
from test_reload import info, profile, refusals, reload, write

from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED

__all__ = ["profile"]

# Far below server.start_timeout_s, after which a timer would let go of what it held.
SOON_S = 20


def arenas(server: RunningServer) -> int:
    """Count the descriptors of arenas that the launcher holds."""
    count = 0
    for fd in Path(f"/proc/{server.process.pid}/fd").iterdir():
        try:
            count += "memfd:kimi-serve" in str(fd.readlink())
        except OSError:
            continue
    return count


def mapped_arenas(server: RunningServer) -> int:
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    return sum("memfd:kimi-serve" in line for line in maps.splitlines())


def workers(server: RunningServer) -> list[int]:
    return [worker for parent in children(server.process.pid) for worker in children(parent)]


def replacement(server: RunningServer, num_workers: int, gone: set[int]) -> None:
    wait_until(
        lambda: (
            sum(worker["state"] == "ready" for worker in server.workers()) == num_workers
            and not gone & {int(str(worker["pid"])) for worker in server.workers()}
        )
    )


def test_an_ended_worker_leaves_no_memory_in_the_front(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    with server.client() as client:
        for _ in range(4):
            assert client.post("/v1/preprocess", json=images(PHOTO.read_bytes())).is_success
            wait_until(lambda: all(w["state"] == "ready" for w in server.workers()))
            gone = set(workers(server))
            for pid in gone:
                os.kill(pid, signal.SIGKILL)
            replacement(server, 2, gone)
    # Of each: the descriptor and the mapping's copy of it.
    wait_until(lambda: arenas(server) == 4, within_s=SOON_S)
    wait_until(lambda: mapped_arenas(server) == 2, within_s=SOON_S)


def test_workers_killed_with_a_job_leave_no_memory_in_the_front(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    (fork_server,) = children(server.process.pid)
    with server.client() as client:
        before = client.post("/v1/preprocess", json=images(PHOTO.read_bytes()))
        os.kill(fork_server, signal.SIGKILL)
        again = client.post("/v1/preprocess", json=images(PHOTO.read_bytes(), SMALL.read_bytes()))
        assert (before.status_code, again.status_code) == (200, 200)
    wait_until(lambda: arenas(server) == 4, within_s=SOON_S)


def test_a_reload_leaves_no_memory_of_the_workers_before(start: Start, profile: Path) -> None:
    server = start("--profile", str(profile)).wait_until_serving()
    reload(server)
    wait_until(lambda: info(server)["generation"] == 2)
    wait_until(lambda: arenas(server) == 4, within_s=SOON_S)


def test_a_fork_server_that_is_killed_while_it_starts_comes_back(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    seen: set[int] = set()
    while len(seen) < 15:
        for pid in set(children(server.process.pid)) - seen:
            os.kill(pid, signal.SIGKILL)
            seen.add(pid)
        assert server.process.poll() is None, "".join(server.log)
    replacement(server, 1, set())
    assert any("the fork server ended: killed by SIGKILL" in line for line in server.log)
    with server.client() as client:
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).is_success
    assert server.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGILL])
def test_one_kill_of_a_new_worker_refuses_no_reload(
    start: Start, profile: Path, number: signal.Signals
) -> None:
    write(profile, 1)
    server = start("--profile", str(profile)).wait_until_serving()
    (old,) = children(server.process.pid)
    write(profile, 6)
    reload(server)

    def new_workers() -> list[int]:
        new = [pid for pid in children(server.process.pid) if pid != old]
        return [worker for parent in new for worker in children(parent)]

    wait_until(lambda: bool(new_workers()))
    os.kill(new_workers()[0], number)
    wait_until(lambda: refusals(server) > 0 or info(server)["generation"] == 2)
    assert refusals(server) == 0, "".join(server.log)
    assert len(server.workers()) == 6


def test_a_fork_server_killed_during_the_first_start_is_replaced(start: Start) -> None:
    server = start("--tokenizer-worker-num", "4")
    wait_until(lambda: bool(children(server.process.pid)))
    os.kill(children(server.process.pid)[0], signal.SIGKILL)
    server.wait_until_serving()
    assert server.stop() == 0


def test_a_replaced_worker_has_the_template_of_the_others_and_a_reload_the_new_one(
    start: Start, profile: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(BUNDLED, checkpoint)
    template = checkpoint / "chat_template.jinja"
    template.write_text("a", "utf-8")
    write(profile, 1, more=f"model: {{path: {checkpoint}}}\n")
    server = start("--profile", str(profile)).wait_until_serving()
    assert count(server) == 1
    template.write_text("a b c d", "utf-8")
    gone = set(workers(server))
    for pid in gone:
        os.kill(pid, signal.SIGKILL)
    replacement(server, 1, gone)
    assert count(server) == 1
    reload(server)
    wait_until(lambda: info(server)["generation"] == 2)
    assert count(server) > 1


def count(server: RunningServer) -> int:
    """Count the tokens of a chat."""
    with server.client() as client:
        chat = [{"role": "user", "content": "x"}]
        return int(client.post("/tokenize", json={"messages": chat}).json()["count"])
