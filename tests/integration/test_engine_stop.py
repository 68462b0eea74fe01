"""How an engine ends: asked to, cut, with its launcher, with its keeper. Nothing is ever left."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine_server import EngineServer, children
from integration_server import wait_until

Settings = dict[str, dict[str, Any]]
CHILDREN = {"CHILDREN": "session daemon"}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineServer]:
    server = EngineServer(tmp_path)
    yield server
    server.close()


class Request(threading.Thread):
    """One request that runs until it is released."""

    def __init__(self, engine: EngineServer) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self.status: int | None = None

    def run(self) -> None:
        try:
            self.status = self._engine.get("/slow").status_code
        except httpx.HTTPError:
            self.status = 0


def run_request(engine: EngineServer) -> Request:
    request = Request(engine)
    request.start()
    engine.wait_for("a slow request runs")
    return request


def test_a_stop_ends_everything_with_exit_code_0(engine: EngineServer) -> None:
    engine.start(CHILDREN).wait_until_ready()
    wait_until(lambda: len(engine.engine_pids()) == 3)
    assert engine.server.stop() == 0
    engine.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    "settings",
    [{"engine": {"kind": "vllm"}}, {"tokenizer": {"worker_num": 4}}],
    ids=["finishes by itself", "is waited for"],
)
def test_a_running_request_is_answered(engine: EngineServer, settings: Settings) -> None:
    profile = settings | {"engine": {"status_port": 0} | settings.get("engine", {})}
    engine.start(None, profile).wait_until_ready()
    assert engine.status("/ready").status_code == 200
    request = run_request(engine)
    engine.server.process.send_signal(signal.SIGTERM)
    engine.wait_for("stopping the engine")
    assert engine.status("/ready").json()["state"] == "draining"
    assert engine.status("/ready").status_code == 503
    assert engine.status("/health").status_code == 200
    engine.release()
    request.join(30)
    assert request.status == 200
    assert engine.server.stop() == 0
    engine.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("sglang", "after 0.2 s: requests still run: 1"),
        ("vllm", "after 1 s: requests may still run: 1 client is"),  # it takes whole seconds
    ],
)
def test_the_wait_for_requests_has_an_end(engine: EngineServer, kind: str, told: str) -> None:
    settings: Settings = {
        "engine": {"kind": kind, "kill_timeout_s": 0.5},
        "server": {"drain_timeout_s": 0.2},
        "tokenizer": {"worker_num": 2},
    }
    engine.start(None, settings).wait_until_ready()
    request = run_request(engine)
    assert engine.server.stop() == 0
    assert f"not finished {told}" in engine.log
    request.join(30)
    assert request.status == 0
    engine.wait_until_nothing_is_left()


def test_the_time_in_the_engines_words_is_the_one_that_is_told(engine: EngineServer) -> None:
    words = {"kind": "vllm", "args": ["--shutdown-timeout", "1"], "kill_timeout_s": 0.5}
    engine.start(None, {"engine": words}).wait_until_ready()
    run_request(engine)
    assert engine.server.stop() == 0
    assert "not finished after 1 s: requests may still run" in engine.log


@pytest.mark.parametrize(
    "engine_settings",
    [
        {"args": ["--nnodes", "2", "--node-rank", "1", "--dist-init-addr", "192.0.2.1:1"]},
        {"nodes": {"count": 2, "rank": 1, "address": "192.0.2.1:1"}},
    ],
    ids=["engine.args", "engine.nodes"],
)
def test_a_machine_behind_the_first_is_stopped_at_once(
    engine: EngineServer, engine_settings: dict[str, Any]
) -> None:
    own = {**engine_settings, "kill_timeout_s": 0.2}
    own["args"] = [*own.get("args", ()), "--tp-size", "2"]
    engine.start(None, {"engine": own, "server": {"drain_timeout_s": 3000}}).wait_until_ready()
    run_request(engine)
    assert engine.server.stop() == 0
    assert "not finished" not in engine.log
    engine.wait_until_nothing_is_left()


def test_what_ignores_sigterm_is_killed_and_that_is_no_failure(engine: EngineServer) -> None:
    settings: Settings = {"engine": {"kill_timeout_s": 0.2}, "server": {"drain_timeout_s": 0}}
    engine.start({"IGNORE_TERM": 1, **CHILDREN}, settings).wait_until_ready()
    assert engine.server.stop() == 0
    assert "killing it" in engine.log
    engine.wait_until_nothing_is_left()


def test_a_second_signal_cuts(engine: EngineServer) -> None:
    engine.start({"IGNORE_TERM": 1}, {"server": {"drain_timeout_s": 3000}}).wait_until_ready()
    engine.server.process.send_signal(signal.SIGTERM)
    engine.wait_for("SIGTERM: stopping the engine")
    engine.server.process.send_signal(signal.SIGINT)
    assert engine.server.process.wait(30) == 0
    engine.wait_until_nothing_is_left()


def test_a_stopped_process_is_told_from_a_busy_one(engine: EngineServer) -> None:
    settings: Settings = {
        "engine": {"kill_timeout_s": 0.2},
        "server": {"drain_timeout_s": 0.3},
        "tokenizer": {"worker_num": 2},
    }
    engine.start(None, settings).wait_until_ready()
    (pid,) = engine.engine_pids()
    os.kill(pid, signal.SIGSTOP)
    assert engine.server.stop() == 0
    assert f"finishes nothing (pid {pid})" in engine.log
    assert "requests still run" not in engine.log
    engine.wait_until_nothing_is_left()


def test_an_engine_that_hangs_without_requests_has_none(engine: EngineServer) -> None:
    settings: Settings = {
        "engine": {"kind": "vllm", "kill_timeout_s": 0.2},
        "server": {"drain_timeout_s": 0.2},
    }
    engine.start({"IGNORE_TERM": 1}, settings).wait_until_ready()
    assert engine.server.stop() == 0
    assert "it is not known to do anything: no client is connected" in engine.log


@pytest.mark.parametrize("kind", ["none", "sglang"])
def test_no_number_of_signals_makes_a_stop_a_failure(engine: EngineServer, kind: str) -> None:
    engine.start(None, {"engine": {"kind": kind}}).wait_until_ready()
    process = engine.server.process
    while process.poll() is None:
        process.send_signal(signal.SIGTERM)
        time.sleep(0.001)
    assert process.wait() == 0


def test_signals_that_a_parent_blocked_are_obeyed(engine: EngineServer) -> None:
    mask = engine.folder / "mask"
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    earlier = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        engine.start({"MASK": mask})
    finally:
        signal.signal(signal.SIGHUP, earlier)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    engine.wait_until_ready()
    assert json.loads(mask.read_text()) == {"blocked": [], "ignored": []}
    engine.server.process.send_signal(signal.SIGTERM)
    assert engine.server.process.wait(30) == 0
    engine.wait_until_nothing_is_left()


def test_a_stop_while_it_starts(engine: EngineServer) -> None:
    engine.start({"HANG": 1}).record()
    assert engine.server.stop() == 0
    engine.wait_until_nothing_is_left()


def test_a_stop_in_the_pause_before_a_restart(engine: EngineServer) -> None:
    restart = {"restart": "on-failure", "restart_backoff_s": 3000}
    engine.start({"DIE": "code 1"}, {"engine": restart}).wait_for("again in 3000 s")
    assert engine.server.stop() == 0


@pytest.mark.parametrize("when", ["starting", "ready"])
def test_nothing_survives_the_launcher(engine: EngineServer, when: str) -> None:
    gate = {} if when == "ready" else {"GATE": engine.folder / "never"}
    engine.start({"IGNORE_TERM": 1, **CHILDREN, **gate})
    wait_until(lambda: len(engine.engine_pids()) == 3)
    if when == "ready":
        engine.wait_until_ready()
    keeper = engine.keeper()
    engine.server.process.kill()
    engine.wait_until_nothing_is_left()
    wait_until(lambda: not Path(f"/proc/{keeper}").exists() or not children(keeper))


def test_nothing_survives_the_keeper(engine: EngineServer) -> None:
    engine.start({"IGNORE_TERM": 1, **CHILDREN}).wait_until_ready()
    wait_until(lambda: len(engine.engine_pids()) == 3)
    os.kill(engine.keeper(), signal.SIGKILL)
    assert engine.wait_for_end() == 5
    assert "the keeper of sglang was killed" in engine.log
    engine.wait_until_nothing_is_left()


def test_the_keeper_does_not_obey_a_signal_to_the_whole_control_group(
    engine: EngineServer,
) -> None:
    engine.start().wait_until_ready()
    os.kill(engine.keeper(), signal.SIGTERM)
    assert engine.get("/v1/models").status_code == 200
    assert engine.server.stop() == 0


def test_a_keeper_that_does_not_end_a_late_engine_is_not_waited_for(engine: EngineServer) -> None:
    """As when a process of the engine hangs in the kernel, where no signal reaches it."""
    engine.start({"HANG": 1}, {"engine": {"startup_timeout_s": 3, "kill_timeout_s": 0.2}}).record()
    keeper = engine.keeper()
    os.kill(keeper, signal.SIGSTOP)
    try:
        assert engine.server.process.wait(60) == 5
    finally:
        os.kill(keeper, signal.SIGCONT)  # which has the log open too
    engine.wait_until_nothing_is_left()
    engine.server.stop()
    assert "cannot be killed; the keeper goes on trying" in engine.log
    assert "kimi-serve: error: sglang was not ready within 3 s" in engine.log
    assert "Traceback" not in engine.log
