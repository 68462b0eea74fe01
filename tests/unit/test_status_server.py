"""The launcher's own HTTP beside an engine, when it fails."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kimi_serve.launcher.supervise.state import EngineState
from kimi_serve.launcher.supervise.status import create_app, status_server
from kimi_serve.schemas.settings import ServerSettings


def test_a_fault_is_told_at_once_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        app = create_app(EngineState(), {}, ServerSettings())
        # Nobody can listen on it: the server fails when it begins.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
            listener.bind(("127.0.0.1", 0))
            async with status_server(listener, app):
                while "engine.status_port" not in caplog.text:
                    await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(run(), 10))
    assert "nobody answers on engine.status_port any more" in caplog.text
