"""Signals at any moment, process 1 of a container, and what is left after a kill."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from image_samples import DATA
from integration_server import RunningServer, Start, launch, wait_until, without_settings
from test_limits import SMALL, images

BIG = DATA / "golden" / "phone_1440x3120.png"


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def shared_memory() -> set[str]:
    return {name for name in os.listdir("/dev/shm") if "kimi" in name}


def test_nothing_is_left_of_a_killed_launcher(start: Start) -> None:
    before = shared_memory()
    server = start("--tokenizer-worker-num", "3").wait_until_serving()
    port = httpx.URL(server.url).port or 0
    workers = [int(str(worker["pid"])) for worker in server.workers()]
    with server.client() as client:
        client.post("/v1/preprocess", json=images(SMALL.read_bytes()))
    (fork_server,) = children(server.process.pid)
    server.process.kill()
    server.process.wait(10)
    wait_until(lambda: all(map(has_ended, [fork_server, *workers])), within_s=2)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
    assert shared_memory() <= before


@pytest.mark.parametrize("handled_at", ["settings", "plan", "fork server", "first worker", "ready"])
def test_a_stop_at_any_moment_of_the_start_exits_0(start: Start, handled_at: str) -> None:
    server = start("--tokenizer-worker-num", "4")
    signs = {
        "settings": lambda: handles(server.process.pid, signal.SIGTERM),
        "plan": lambda: any("worker num" in line for line in server.log),
        "fork server": lambda: bool(children(server.process.pid)),
        "first worker": lambda: any(" ready in " in line for line in server.log),
        "ready": lambda: bool(server.url),
    }
    wait_until(signs[handled_at])
    descendants = children(server.process.pid)
    assert server.stop() == 0
    wait_until(lambda: all(map(has_ended, descendants)), within_s=2)


def handles(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal."""
    match = re.search(r"SigCgt:\s+(\w+)", Path(f"/proc/{pid}/status").read_text())
    return match is not None and bool(int(match.group(1), 16) >> (number - 1) & 1)


def test_no_request_is_lost_when_a_loaded_server_stops(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    lost: list[str] = []
    answered: list[int] = []
    body = json.dumps(images(SMALL.read_bytes())).encode()
    many = threading.Event()

    def keep_asking() -> None:
        with server.client(headers={"content-type": "application/json"}) as client:
            while True:
                try:
                    response = client.post("/v1/preprocess", content=body)
                except httpx.ConnectError:
                    return  # not accepted any more
                except httpx.HTTPError as error:
                    lost.append(repr(error))
                    return
                answered.append(response.status_code)
                if len(answered) > 30:
                    many.set()

    clients = [threading.Thread(target=keep_asking) for _ in range(6)]
    for client in clients:
        client.start()
    assert many.wait(60)
    assert server.stop() == 0
    for client in clients:
        client.join()
    assert lost == []
    assert set(answered) == {200}


def test_connections_stay_while_anything_drains(start: Start) -> None:
    """What is idle at the signal is used 3 s later: it is told then, and nothing is lost."""
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    url = httpx.URL(server.url)
    body = json.dumps(images(*[BIG.read_bytes()] * 8)).encode()
    head = f"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with server.client() as idle, socket.create_connection((url.host, url.port or 0)) as busy:
        assert idle.get("/health").status_code == 200
        # One byte short: it is under way for as long as this test wants.
        busy.sendall(head.encode() + body[:-1])
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: any("no new connections" in line for line in server.log))
        wait_until(lambda: is_refused(url))
        began = time.monotonic()
        wait_until(lambda: time.monotonic() - began > 3)
        response = idle.get("/health")
        assert response.status_code == 200
        assert response.headers["connection"] == "close"
        busy.sendall(body[-1:])
        busy.settimeout(60)
        assert busy.recv(12) == b"HTTP/1.1 200"
        while busy.recv(2**20):
            pass
    assert server.process.wait(20) == 0


def test_a_client_that_was_told_nothing_has_its_chance(start: Start) -> None:
    """The head of its answer went out before the signal, and it reads slowly."""
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    url = httpx.URL(server.url)
    body = json.dumps(images(*[BIG.read_bytes()] * 4)).encode()
    head = f"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0)) as slow:
        slow.settimeout(60)
        slow.sendall(head.encode() + body)
        start_of_answer = slow.recv(2**14)
        headers, _, content = start_of_answer.partition(b"\r\n\r\n")
        assert b"connection: close" not in headers.lower()
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_refused(url))
        (size,) = re.findall(rb"content-length: (\d+)", headers.lower())
        left = int(size) - len(content)
        while left:
            left -= len(slow.recv(min(left, 2**20)))
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = slow.recv(2**16)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"connection: close" in answer.lower()
    assert server.process.wait(20) == 0


def test_idle_connections_do_not_hold_a_stop(start: Start) -> None:
    server = start(
        "--tokenizer-worker-num", "1", "--server-drain-timeout-s", "600"
    ).wait_until_serving()
    with server.client() as idle:
        assert idle.get("/health").status_code == 200
        assert server.stop() == 0


def is_refused(url: httpx.URL) -> bool:
    try:
        socket.create_connection((url.host, url.port or 0), 0.5).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


def test_a_stop_is_told_to_probes_and_clients_first(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    with server.client() as client:
        assert client.get("/ready").status_code == 200
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: any("no new connections" in line for line in server.log))
        response = client.get("/ready")
        assert response.status_code == 503
        assert response.headers["connection"] == "close"
    assert server.process.wait(20) == 0


def test_a_worker_that_is_stopped_while_it_is_idle_is_replaced(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    frozen = int(str(server.workers()[0]["pid"]))
    os.kill(frozen, signal.SIGSTOP)
    wait_until(lambda: has_ended(frozen))
    wait_until(
        lambda: (
            sum(
                worker["state"] == "ready" and worker["pid"] != frozen
                for worker in server.workers()
            )
            == 2
        )
    )


def test_workers_that_die_at_work_never_end_the_server(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    stop = threading.Event()
    killed: list[int] = []

    def kill_busy_ones() -> None:
        while not stop.wait(0.01):
            (worker,) = server.workers()
            if worker["state"] == "busy":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(str(worker["pid"])), signal.SIGKILL)
                    killed.append(int(str(worker["pid"])))

    killing = threading.Thread(target=kill_busy_ones)
    killing.start()
    try:
        with server.client() as client:
            response = client.post("/v1/preprocess", json=images(BIG.read_bytes()))
    finally:
        stop.set()
        killing.join()
    # Either it got through between two kills, or it was given up after many.
    assert response.status_code in (200, 503)
    with server.client() as client:
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200
    assert server.stop() == 0


def test_work_opens_no_gpu_and_no_threads(start: Start) -> None:
    server = start("--force-cpu-image-preprocessing").wait_until_serving()
    (pid,) = [int(str(worker["pid"])) for worker in server.workers()]
    with server.client() as client:
        for name in ("golden/hd_1920x1080.png", "images/base_420.jpg", "images/bad_zlib.png"):
            client.post("/v1/preprocess", json=images((DATA / name).read_bytes()))
    maps = Path(f"/proc/{pid}/maps").read_text()
    assert not re.search(r"libcuda|libcudart|libnvidia|libnvjpeg|libtorch", maps)
    assert b"CUDA_VISIBLE_DEVICES=\0" in Path(f"/proc/{pid}/environ").read_bytes()
    # One reads and tokenises, one has the images.
    assert len(os.listdir(f"/proc/{pid}/task")) == 2


NAMESPACE = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")


def can_be_process_1() -> bool:
    try:
        return (
            subprocess.run([*NAMESPACE, "true"], check=False, capture_output=True).returncode == 0
        )
    except OSError:
        return False


@pytest.mark.skipif(not can_be_process_1(), reason="no permission for a PID namespace")
def test_as_process_1_it_reaps_orphans_and_passes_signals_on() -> None:
    process = subprocess.Popen(
        [
            *NAMESPACE,
            *(sys.executable, "-P", "-m", "kimi_serve.launcher", "--port", "0"),
            *("--tokenizer-worker-num", "2"),
        ],
        env=without_settings(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = RunningServer(process)
    server.follow()
    server.wait_until_serving()
    (init,) = children(process.pid)
    (launcher,) = children(init)
    orphan = 'setsid sh -c "sleep 0.1; exit 3" & echo orphaned'
    enter = ["nsenter", "--target", str(init), "--pid", "--mount", "sh", "-c", orphan]
    subprocess.run(enter, check=True, capture_output=True)
    wait_until(lambda: children(init) == [launcher])
    (worker, _) = children(children(launcher)[0])
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: sum(" ready in " in line for line in server.log) >= 3)
    # As a container's runtime does it: to process 1 alone.
    os.kill(init, signal.SIGTERM)
    assert process.wait(30) == 0
    server.stop()
    assert any("SIGTERM: no new connections" in line for line in server.log)
    assert any("stopped" in line for line in server.log)
    assert has_ended(launcher)


def test_a_hangup_during_the_start_reloads_afterwards() -> None:
    server = launch("--tokenizer-worker-num", "1")
    wait_until(lambda: handles(server.process.pid, signal.SIGHUP))
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any("generation 2 serves" in line for line in server.log))
    assert server.stop() == 0
