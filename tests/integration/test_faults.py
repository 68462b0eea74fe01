"""Workers killed under load, dead parents, drains: nothing is lost, nothing is left."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from integration_server import DATA, RunningServer, Start, wait_until, without_settings

PHOTO = DATA / "golden" / "phone_1440x3120.png"
SMALL = DATA / "golden" / "photo444_200x150.jpg"


def body_of(*files: Path) -> dict[str, list[str]]:
    return {
        "images": [
            f"data:image/x;base64,{base64.b64encode(file.read_bytes()).decode()}" for file in files
        ]
    }


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def pids(server: RunningServer) -> list[int]:
    return [
        int(str(worker["pid"]))
        for worker in server.workers()
        if worker["state"] in ("ready", "busy")
    ]


def test_kill_9_under_load_loses_no_request(start: Start) -> None:
    server = start("--tokenizer-worker-num", "4").wait_until_serving()
    body = body_of(DATA / "golden" / "hd_1920x1080.png", SMALL)

    def digest(_: int = 0) -> str:
        with server.client(headers={"accept": "application/vnd.safetensors"}) as client:
            response = client.post("/v1/preprocess", json=body)
        assert response.status_code == 200, response.text
        header_bytes = int.from_bytes(response.content[:8], "little")
        return hashlib.sha256(response.content[8 + header_bytes :]).hexdigest()

    expected = digest()
    stop = threading.Event()
    killed = Counter[int]()

    def killer() -> None:
        while not stop.wait(0.25):
            for pid in pids(server)[:1]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed[pid] += 1

    killing = threading.Thread(target=killer)
    killing.start()
    try:
        with ThreadPoolExecutor(8) as clients:
            answers = list(clients.map(digest, range(80)))
    finally:
        stop.set()
        killing.join()
    assert answers == [expected] * 80
    assert len(killed) >= 3
    assert server.stop() == 0


def test_a_killed_worker_is_replaced(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    before = pids(server)
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: len({*pids(server)} - {before[0]}) == 2)
    wait_until(lambda: all(worker["state"] == "ready" for worker in server.workers()))
    assert any("killed by SIGKILL" in line for line in server.log)


def test_a_killed_fork_server_is_replaced_with_its_workers(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    before = pids(server)
    parent = int(Path(f"/proc/{before[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(parent, signal.SIGKILL)
    wait_until(lambda: not any(map(is_alive, before)))
    with server.client() as client:
        assert client.post("/v1/preprocess", json=body_of(SMALL)).status_code == 200


def test_workers_go_with_a_killed_launcher(start: Start) -> None:
    server = start("--tokenizer-worker-num", "4").wait_until_serving()
    workers = pids(server)
    parent = int(Path(f"/proc/{workers[0]}/stat").read_text().rpartition(")")[2].split()[1])
    server.process.kill()
    server.process.wait(10)
    wait_until(lambda: not any(map(is_alive, [*workers, parent])), within_s=2)


def test_sigterm_finishes_what_runs(start: Start) -> None:
    words = ("--image-dtype", "uint8", "--image-max-per-request", "500")
    server = start("--tokenizer-worker-num", "2", *words).wait_until_serving()
    workers = pids(server)
    body = body_of(*[PHOTO] * 40)
    with ThreadPoolExecutor(1) as pool, server.client() as client, server.client() as watching:
        answer = pool.submit(client.post, "/v1/preprocess", json=body)
        # From the end of its body to its answer: long enough to be seen.
        waiting = "kimi_serve_waiting_requests 1.0"
        wait_until(lambda: waiting in watching.get("/metrics").text)
        server.process.send_signal(signal.SIGTERM)
        assert answer.result().status_code == 200
    assert server.process.wait(30) == 0
    assert not any(map(is_alive, workers))


def test_a_second_signal_cuts(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1", "--image-max-per-request", "500")
    server.wait_until_serving()
    body = body_of(*[PHOTO] * 100)

    def ask() -> str:
        try:
            with server.client() as client:
                return str(client.post("/v1/preprocess", json=body).status_code)
        except httpx.HTTPError as error:
            return type(error).__name__

    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask)
        wait_until(lambda: any(worker["state"] == "busy" for worker in server.workers()))
        server.process.send_signal(signal.SIGTERM)
        wait_until(lambda: any("no new connections" in line for line in server.log))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(20) == 0
        assert answer.result() != "200"


def test_sigterm_while_starting_exits_0(start: Start) -> None:
    server = start("--tokenizer-worker-num", "16")
    wait_until(lambda: any("worker" in line and " ready in " in line for line in server.log))
    assert server.stop() == 0


@pytest.mark.parametrize("workers_ready", [1, 4, 8, 15, 16])
def test_sigterm_in_the_middle_of_the_start_exits_0(start: Start, workers_ready: int) -> None:
    server = start("--tokenizer-worker-num", "16")
    wait_until(lambda: sum(" ready in " in line for line in server.log) >= workers_ready)
    assert server.stop() == 0
    assert not any("Traceback" in line for line in server.log)


def test_a_job_is_sent_on_while_the_fork_server_does_not_answer(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    (fork_server,) = children(server.process.pid)
    os.kill(fork_server, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool, server.client() as client:
        body = body_of(*[PHOTO] * 4)
        answer = pool.submit(client.post, "/v1/preprocess", json=body)
        wait_until(lambda: any(worker["state"] == "busy" for worker in server.workers()))
        os.kill(pids(server)[0], signal.SIGKILL)
        assert answer.result().status_code == 200
    wait_until(lambda: not is_alive(fork_server))
    wait_until(lambda: len(pids(server)) == 2)


def test_a_stalled_reader_does_not_keep_the_server_from_stopping(start: Start) -> None:
    server = start("--server-request-timeout-s", "2").wait_until_serving()
    url = httpx.URL(server.url)
    body = json.dumps(body_of(DATA / "golden/hd_1920x1080.png")).encode()
    head = f"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0)) as stalled:
        stalled.sendall(head.encode() + body)
        assert stalled.recv(12).startswith(b"HTTP/1.1 200")
        wait_until(lambda: open_connections(server) == 0, within_s=10)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0


def open_connections(server: RunningServer) -> int:
    """Count established connections to the server, from the kernel's table."""
    port = f"{httpx.URL(server.url).port or 0:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port}") and row[3] == "01" for row in rows)


def test_sigterm_before_any_worker_exits_0(start: Start) -> None:
    server = start("--tokenizer-worker-num", "16")
    wait_until(lambda: any("decode device" in line for line in server.log))
    assert server.stop() == 0


def test_too_few_open_files_are_said_before_the_start() -> None:
    command = f"ulimit -n 60; exec {sys.executable} -P -m kimi_serve.launcher --port 0 "
    result = subprocess.run(
        ["bash", "-c", command + "--tokenizer-worker-num 16"],
        env=without_settings(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 3
    assert "open files" in result.stderr


def test_a_worker_that_crashes_again_and_again_while_idle_is_given_up(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    for number in itertools.count(1):
        wait_until(lambda n=number: len(ready_pids(server)) >= n or is_over(server))
        if is_over(server):
            break
        with contextlib.suppress(ProcessLookupError):
            os.kill(ready_pids(server)[number - 1], signal.SIGSEGV)
    assert server.stop() == 4
    assert any("again and again" in line for line in server.log)


def ready_pids(server: RunningServer) -> list[int]:
    """The processes that were worker 0, one after the other."""
    matches = (re.search(r"worker 0 ready .*\(pid (\d+)", line) for line in server.log)
    return [int(match.group(1)) for match in matches if match]


def is_over(server: RunningServer) -> bool:
    return server.process.poll() is not None


def test_a_fork_server_that_does_not_answer_is_replaced(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2", "--server-start-timeout-s", "3")
    server.wait_until_serving()
    (fork_server,) = children(server.process.pid)
    os.kill(fork_server, signal.SIGSTOP)
    os.kill(pids(server)[0], signal.SIGKILL)
    with server.client() as client:
        assert client.post("/v1/preprocess", json=body_of(SMALL)).status_code == 200
    wait_until(lambda: len(pids(server)) == 2)
    assert server.stop() == 0


def test_an_occupied_port_is_said_before_any_worker_starts(start: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = start("--port", str(port))
        assert server.process.wait(30) == 3
        server.stop()
    log = "".join(server.log)
    assert f"127.0.0.1:{port} is in use" in log
    assert "worker 0" not in log


def test_a_worker_that_cannot_be_built_fails_the_launch(start: Start, tmp_path: Path) -> None:
    checkpoint = tmp_path / "model"
    checkpoint.mkdir()
    demo = Path(__file__).parents[2] / "preprocess" / "demo_checkpoint"
    for file in demo.iterdir():
        text = file.read_text(encoding="utf-8")
        if file.name == "config.json":
            text = text.replace(
                '"media_placeholder_token_id": 163605', '"media_placeholder_token_id": 163602'
            )
            text = text.replace('"image_token_id": 163605', '"image_token_id": 163602')
        (checkpoint / file.name).write_text(text, encoding="utf-8")
    server = start("--model-path", str(checkpoint))
    assert server.process.wait(30) == 4
    server.stop()
    log = "".join(server.log)
    assert "163605" in log
    assert "163602" in log


def test_a_stopped_worker_costs_nothing(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    frozen = pids(server)[0]
    os.kill(frozen, signal.SIGSTOP)
    with server.client() as client:
        statuses = Counter(
            client.post("/v1/preprocess", json=body_of(SMALL)).status_code for _ in range(6)
        )
    assert statuses == {200: 6}
    wait_until(lambda: frozen not in pids(server))


def rss_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match.group(1)) / 1000 if match else 0.0


def test_an_idle_worker_gives_memory_back(start: Start) -> None:
    server = start().wait_until_serving()
    (worker,) = pids(server)
    with server.client() as client:
        response = client.post("/v1/preprocess", json=body_of(DATA / "golden/big_3000x4000.png"))
    assert response.status_code == 200
    wait_until(lambda: rss_mb(worker) < 70)
    wait_until(lambda: rss_mb(server.process.pid) < 130)


def test_a_fork_server_killed_twice_in_a_row_still_comes_back(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    for _ in range(2):
        (fork_server,) = children(server.process.pid)
        os.kill(fork_server, signal.SIGKILL)
        wait_until(lambda pid=fork_server: children(server.process.pid) not in ([], [pid]))
    with server.client() as client:
        assert client.post("/v1/preprocess", json=body_of(SMALL)).status_code == 200
    assert server.stop() == 0


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split() if is_alive(int(word))]


def test_many_workers_are_all_asked_for(start: Start) -> None:
    server = start("--tokenizer-worker-num", "200", "--skip-tokenizer-init")
    server.wait_until_serving()
    assert len({*pids(server)}) == 200
    assert server.stop() == 0
