"""Whether an engine that was ready stays so."""

from __future__ import annotations

import asyncio
import http.server
import logging
import threading
from collections.abc import Iterator

import pytest

from kimi_serve.launcher.supervise.readiness import stay_ready
from kimi_serve.launcher.supervise.state import EngineState
from kimi_serve.schemas.engine_launch import EngineLaunch, Readiness, Stopping


class Health(http.server.ThreadingHTTPServer):
    statuses: list[int]  # of the next answers; the last one stays
    state: EngineState
    seen: list[tuple[int, str]]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Health)
        status = server.statuses.pop(0) if len(server.statuses) > 1 else server.statuses[0]
        server.seen.append((status, server.state.state))
        self.send_response(status)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def health() -> Iterator[Health]:
    with Health(("127.0.0.1", 0), Handler) as server:
        server.seen = []
        server.state = EngineState(state="ready")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


async def watch(health: Health, consecutive: int, num_asked: int) -> None:
    port = health.server_address[1]
    readiness = Readiness(f"http://127.0.0.1:{port}", ("/ready",), consecutive, "", 0)
    stopping = Stopping(drains=True, load_path="", drain_timeout_s=30)
    launch = EngineLaunch("sglang", (), (), (), "127.0.0.1", port, readiness, stopping, (port,))
    task = asyncio.create_task(stay_ready(launch, health.state, pause_s=0.001))
    while len(health.seen) < num_asked:
        await asyncio.sleep(0.001)
    task.cancel()


def test_three_failures_in_a_row_are_told_and_an_answer_ends_them(
    health: Health, caplog: pytest.LogCaptureFixture
) -> None:
    health.statuses = [200, 503, 503, 200, 503, 503, 503, 503, 200, 200]
    with caplog.at_level(logging.INFO):
        asyncio.run(watch(health, 1, 10))
    # As it was when each of them was asked for.
    assert [state for _, state in health.seen] == ["ready"] * 7 + ["unready"] * 2 + ["ready"]
    assert not EngineState(state="unready").as_json()["ready"]
    assert "answered 503, 3 times in a row" in caplog.text
    assert "answers again" in caplog.text


def test_several_workers_answer_several_times(health: Health) -> None:
    health.state = EngineState(state="unready")
    health.statuses = [200, 503, 200, 200, 200, 200]
    asyncio.run(watch(health, 3, 6))
    assert [state for _, state in health.seen] == ["unready"] * 5 + ["ready"]


def test_a_stop_is_no_failure(health: Health) -> None:
    health.state = EngineState(state="draining")
    health.statuses = [503]
    asyncio.run(watch(health, 1, 6))
    assert health.state.state == "draining"
