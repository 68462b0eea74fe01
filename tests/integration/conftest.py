"""Servers for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration_server import RunningServer, Start, launch


@pytest.fixture
def start() -> Iterator[Start]:
    """Start servers that are stopped with the test."""
    servers: list[RunningServer] = []

    def start_one(*arguments: str, env: dict[str, str] | None = None) -> RunningServer:
        servers.append(launch(*arguments, env=env))
        return servers[-1]

    yield start_one
    for server in servers:
        if server.process.poll() is None:
            server.stop()
        elif server.process.stderr is not None:
            server.process.stderr.close()


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """One server with two forced-CPU workers, shared by the tests that only ask."""
    running = launch("--tokenizer-worker-num", "2", "--force-cpu-image-preprocessing")
    yield running.wait_until_serving()
    code = running.stop_with_nothing_held()
    assert code == 0, f"exit code {code}\n{''.join(running.log)}"
