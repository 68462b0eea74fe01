"""SIGHUP: new settings without a lost request, and what a reload refuses."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import termios
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from engine_server import EngineServer
from integration_server import RunningServer, Start, wait_until, without_settings
from test_limits import SMALL, images


def info(server: RunningServer) -> dict[str, Any]:
    with server.client() as client:
        found: dict[str, Any] = client.get("/server_info").json()
    return found


def setting(server: RunningServer, path: str) -> Any:
    return next(each["value"] for each in info(server)["plan"]["settings"] if each["path"] == path)


def write(profile: Path, workers: int, dtype: str = "float32", more: str = "") -> None:
    profile.write_text(
        f"tokenizer: {{worker_num: {workers}}}\nimage: {{dtype: {dtype}}}\n{more}", "utf-8"
    )


def reload(server: RunningServer) -> None:
    server.process.send_signal(signal.SIGHUP)


def refusals(server: RunningServer) -> int:
    return sum("reload refused" in line for line in server.log)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "prod.kimi-serve.yaml"
    write(path, 2)
    return path


def test_reloads_under_load_lose_no_request(start: Start, profile: Path) -> None:
    server = start("--profile", str(profile)).wait_until_serving()
    stop = threading.Event()
    seen = Counter[tuple[int, str]]()
    lock = threading.Lock()
    body = images(SMALL.read_bytes())

    def hammer() -> None:
        with server.client() as client:
            while not stop.is_set():
                response = client.post("/v1/preprocess", json=body)
                dtype = response.json()["pixel_values"]["dtype"] if response.is_success else ""
                with lock:
                    seen[response.status_code, dtype] += 1

    clients = [threading.Thread(target=hammer) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        for generation in range(2, 6):
            write(profile, 1 + generation % 2, "uint8" if generation % 2 == 0 else "float32")
            reload(server)
            wait_until(lambda expected=generation: info(server)["generation"] == expected)
            before = seen.total()
            wait_until(lambda more=before: seen.total() > more + 10)
    finally:
        stop.set()
        for client in clients:
            client.join()
    assert {status for status, _ in seen} == {200}
    assert {dtype for _, dtype in seen} == {"uint8", "float32"}
    wait_until(lambda: sum("have finished and stopped" in line for line in server.log) == 4)
    assert server.stop() == 0


def test_a_reload_takes_effect_and_keeps_the_counters(start: Start, profile: Path) -> None:
    server = start("--profile", str(profile)).wait_until_serving()
    with server.client() as client:
        client.post("/v1/preprocess", json=images(SMALL.read_bytes()))
        write(profile, 3, more="server: {api_key: {env: KEY_OF_NOBODY}}\n")
        reload(server)
        wait_until(lambda: refusals(server) == 1)
        write(profile, 3, "uint8")
        reload(server)
        wait_until(lambda: info(server)["generation"] == 2)
        assert len(server.workers()) == 3
        assert setting(server, "image.dtype") == "uint8"
        assert "kimi_serve_images_total 1.0" in client.get("/metrics").text


def test_a_profile_with_errors_is_refused_with_its_findings(start: Start, profile: Path) -> None:
    server = start("--profile", str(profile)).wait_until_serving()
    before = {worker["pid"] for worker in server.workers()}
    profile.write_text("tokenizer: {wroker_num: 8}\n", "utf-8")
    reload(server)
    wait_until(lambda: refusals(server) == 1)
    assert any("KS101" in line and "wroker_num" in line for line in server.log)
    assert info(server)["generation"] == 1
    assert {worker["pid"] for worker in server.workers()} == before
    with server.client() as client:
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("server.host", "server: {host: 127.0.0.2}\n"),
        ("engine.kill_timeout_s", "engine: {kill_timeout_s: 5}\n"),
    ],
)
def test_what_needs_a_restart_is_refused_by_name(
    start: Start, profile: Path, path: str, text: str
) -> None:
    server = start("--profile", str(profile)).wait_until_serving()
    write(profile, 2, more=text)
    reload(server)
    wait_until(lambda: refusals(server) == 1)
    assert any(f"{path} cannot change without a restart" in line for line in server.log)


def test_workers_that_cannot_start_leave_the_old_ones(
    start: Start, profile: Path, tmp_path: Path
) -> None:
    server = start("--profile", str(profile)).wait_until_serving()
    write(profile, 2, more=f"model: {{path: {tmp_path / 'nothing'}}}\n")
    reload(server)
    wait_until(lambda: refusals(server) == 1)
    with server.client() as client:
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200


def test_a_stop_during_a_reload_is_a_stop(start: Start, profile: Path) -> None:
    server = start("--profile", str(profile)).wait_until_serving()
    reload(server)
    wait_until(lambda: any("SIGHUP" in line for line in server.log))
    assert server.stop() == 0


def test_an_engine_is_not_reloaded_and_goes_on(tmp_path: Path) -> None:
    engine = EngineServer(tmp_path).start().wait_until_ready()
    try:
        reload(engine.server)
        engine.wait_for("an engine is not reloaded")
        assert engine.server.stop() == 0
    finally:
        engine.close()


def test_a_terminal_that_is_closed_stops_the_server() -> None:
    ours, terminal = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kimi_serve.launcher", "--port", "0"],
        env=without_settings(),
        stdin=terminal,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(terminal)
    server = RunningServer(process)
    server.follow()
    server.wait_until_serving()
    os.close(ours)
    assert process.wait(30) == 0
    server.stop()
    assert any("SIGHUP: no new connections" in line for line in server.log)
