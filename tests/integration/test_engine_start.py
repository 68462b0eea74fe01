"""How an engine starts, or does not, and what is said of it."""

from __future__ import annotations

import http.server
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_server import EngineServer
from integration_server import wait_until


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineServer]:
    server = EngineServer(tmp_path)
    yield server
    server.close()


def error_of(engine: EngineServer) -> str:
    return engine.log.partition("kimi-serve: error: ")[2]


def test_the_engine_gets_the_plan_and_a_session_of_its_own(engine: EngineServer) -> None:
    engine.start({"EXTRA": "x"}, {"tokenizer": {"worker_num": 3}}).wait_until_ready()
    found = engine.record()
    assert found["argv"][1:3] == ["-m", "sglang.launch_server"]
    assert found["env"]["STAND_IN_EXTRA"] == "x"
    assert os.getsid(found["pid"]) == found["pid"] == os.getpgid(found["pid"])
    assert engine.get("/v1/models").status_code == 200
    assert engine.server.stop() == 0


def test_a_port_that_is_taken_is_said_before_anything_starts(engine: EngineServer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", engine.port))
        other.listen()
        assert engine.start().wait_for_end() == 3
    assert f"127.0.0.1:{engine.port} is in use by pid {os.getpid()} (" in error_of(engine)
    assert not engine.engine_pids()


def test_the_built_in_server_names_the_owner_too(engine: EngineServer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", engine.port))
        other.listen()
        assert engine.start(None, {"engine": {"kind": "none"}}).wait_for_end() == 3
    assert f"in use by pid {os.getpid()} (" in error_of(engine)


def test_the_status_port_is_not_the_servers(engine: EngineServer) -> None:
    assert engine.start(None, {"engine": {"status_port": engine.port}}).wait_for_end() == 2
    assert "engine.status_port" in error_of(engine)


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("missing", "there is no such file", "check spelling and mounts"),
        ("folder", "it is a folder", "/python/bin/python"),
        ("not executable", "it is not executable", "chmod +x"),
        ("of no format", "it is no program for this machine", "needs #!"),
    ],
)
@pytest.mark.parametrize("override", [(), ("--start-anyway",)], ids=["", "anyway"])
def test_an_interpreter_that_cannot_be_run(
    engine: EngineServer, name: str, said: str, hint: str, override: tuple[str, ...]
) -> None:
    python = engine.folder / "python"
    if name == "folder":
        python.mkdir()
    elif name != "missing":
        python.write_text("#!/bin/sh\n" if name == "not executable" else "no\n", encoding="ascii")
        python.chmod(0o644 if name == "not executable" else 0o755)
    restart = {"python": str(python), "restart": "on-failure"}
    assert engine.start(None, {"engine": restart}, *override).wait_for_end() == 3
    error = error_of(engine)
    assert f"sglang cannot be started: {python} cannot be run: {said}" in error
    assert hint in error
    assert "engine.python" in error
    # Nothing starts it, and its finding is said once.
    assert "--start-anyway" not in error
    assert engine.log.count("is not on this host") == (name == "missing")
    assert "again in" not in engine.log


def test_a_real_interpreter_without_the_engine(engine: EngineServer) -> None:
    assert engine.start(None, {"engine": {"python": sys.executable}}).wait_for_end() == 3
    assert f"{sys.executable} has no package sglang" in error_of(engine)


def test_an_interpreter_without_the_engine(engine: EngineServer) -> None:
    restart = {"restart": "on-failure"}
    assert engine.start({"HAS": "vllm"}, {"engine": restart}).wait_for_end() == 5
    assert "has no sglang" in error_of(engine)
    assert "pip install sglang" in error_of(engine)
    assert "again in" not in engine.log


@pytest.mark.parametrize(
    ("stand_in", "said"),
    [
        ({"DIE": "code 0"}, "exit code 0 before it was ready: that is a failure"),
        ({"DIE": "code 1"}, "before it was ready: exit code 1"),
        ({"DIE": "signal 11"}, "killed by SIGSEGV"),
        ({"WARMUP": 1}, "sglang kills itself so after a failed warm-up"),
        ({"DIE": "code 127"}, "does not find its program"),
    ],
)
def test_an_end_before_ready(engine: EngineServer, stand_in: dict[str, object], said: str) -> None:
    assert engine.start({**stand_in, "CHILDREN": "daemon session"}).wait_for_end() == 5
    assert said in error_of(engine)
    engine.wait_until_nothing_is_left()


def test_a_flag_that_the_engine_does_not_know(engine: EngineServer) -> None:
    settings = {"engine": {"args": ["--refused"], "restart": "on-failure"}}
    assert engine.start(None, settings, "--start-anyway").wait_for_end() == 5
    assert "unrecognized arguments: --refused" in error_of(engine)
    assert "again in" not in engine.log


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/die/code/0", "exit code 0, though nobody stopped it"),
        ("/die/signal/9", "killed by SIGKILL"),
        ("/die/code/3", "while it served: exit code 3"),
    ],
)
def test_an_end_while_it_serves(engine: EngineServer, path: str, said: str) -> None:
    engine.start({"CHILDREN": "daemon session"}).wait_until_ready()
    threading.Thread(target=ask_and_forget, args=(engine, path), daemon=True).start()
    assert engine.wait_for_end() == 5
    assert said in error_of(engine)
    engine.wait_until_nothing_is_left()


def ask_and_forget(engine: EngineServer, path: str) -> None:
    with socket.create_connection(("127.0.0.1", engine.port)) as connection:
        connection.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
        connection.recv(1)


def test_a_start_that_takes_too_long(engine: EngineServer) -> None:
    settings = {"engine": {"startup_timeout_s": 1, "kill_timeout_s": 0.2}}
    stand_in = {"HANG": 1, "IGNORE_TERM": 1, "FLOOD": 3}
    assert engine.start(stand_in, settings).wait_for_end() == 5
    assert "not ready within 1 s" in error_of(engine)
    assert "flood 2" in error_of(engine)
    engine.wait_until_nothing_is_left()


def test_ready_when_every_worker_is(engine: EngineServer) -> None:
    gate = engine.folder / "gate"
    engine.start({"PARTIAL": 2, "GATE": gate}, {"tokenizer": {"worker_num": 2}})
    wait_until(lambda: engine.log.count("GET /ready") > 8)
    assert "serving on" not in engine.log
    gate.touch()
    engine.wait_until_ready()
    assert engine.server.stop() == 0


def test_ready_without_a_ready_path(engine: EngineServer) -> None:
    engine.start({"NO_READY": 1}).wait_until_ready()
    assert "GET /health" in engine.log
    assert engine.server.stop() == 0


def test_a_stranger_on_the_port_is_not_the_engine(engine: EngineServer) -> None:
    engine.start({"HANG": 1}).record()
    with StrangeServer(("127.0.0.1", engine.port), AlwaysOk) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        engine.wait_for("not by the engine")
        assert "serving on" not in engine.log
        assert engine.server.stop() == 0
        stranger.shutdown()


class StrangeServer(http.server.ThreadingHTTPServer):
    allow_reuse_address = True


class AlwaysOk(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_restarts_until_it_works(engine: EngineServer) -> None:
    stand_in = {"DIE": "code 1", "COUNT": engine.folder / "count", "DIE_TIMES": 2}
    restart = {"restart": "on-failure", "restart_backoff_s": 0.05, "status_port": 0}
    engine.start(stand_in, {"engine": restart}).wait_until_ready()
    assert engine.status("/ready").json()["restarts"] == 2
    plan = engine.status("/server_info").json()["plan"]
    assert plan["format_version"] == 1
    engine.get("/v1/models")
    assert engine.server.stop() == 0


def test_restarts_have_a_limit(engine: EngineServer) -> None:
    restart = {"restart": "on-failure", "restart_backoff_s": 0.01, "max_restarts": 2}
    assert engine.start({"DIE": "signal 6"}, {"engine": restart}).wait_for_end() == 5
    assert "given up after 2 restarts in a row" in error_of(engine)
    assert len(engine.engine_pids()) == 3


def test_output_keeps_its_levels_and_loses_its_secrets(engine: EngineServer) -> None:
    secret = "sk-0123456789abcdef"
    text = (
        f"(APIServer pid=1) WARNING 11-29 17:00:00 [x.py:1] a \x1b[31mwarning\x1b[0m\n"
        f"[2026-11-29 17:00:00 TP0] server_args=ServerArgs(api_key='{secret}')\n"
        "Traceback (most recent call last):\n  File x\nValueError: broken\nplain\n"
        "ERROR:    uvicorn's\n\xff\x00 end"
    )
    printed = engine.folder / "printed"
    printed.write_bytes(text.encode("latin-1") + b"\n" + b"y" * 10_000_000 + b"\n")
    env = {"KIMI_SERVE_SERVER__API_KEY": secret}
    engine.start({"PRINT": printed, "FLOOD": 2000}, env=env)
    engine.wait_until_ready()
    engine.wait_for("flood 1999")
    wait_until(lambda: "more bytes" in engine.log)
    lines = re.findall(r"Z (\w+) +kimi-serve: sglang: (.*)", engine.log)
    found = {text: level for level, text in lines}
    assert found["(APIServer pid=1) WARNING 11-29 17:00:00 [x.py:1] a warning"] == "WARNING"
    assert found["ValueError: broken"] == found["  File x"] == "ERROR"
    assert found["plain"] == "INFO"
    assert found["ERROR:    uvicorn's"] == "ERROR"
    assert found["[2026-11-29 17:00:00 TP0] server_args=ServerArgs(api_key='***')"] == "INFO"
    assert secret not in engine.log
    assert engine.server.stop() == 0


def test_gpu_memory_names_the_setting(engine: EngineServer) -> None:
    printed = engine.folder / "printed"
    printed.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\n")
    assert engine.start({"PRINT": printed, "DIE": "code 1"}).wait_for_end() == 5
    assert "ran out of GPU memory while it started" in error_of(engine)
    assert "gpu.mem_fraction_static" in error_of(engine)
