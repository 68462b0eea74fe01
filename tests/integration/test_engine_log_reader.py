"""A log that nobody reads holds neither the engine nor a stop."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_server import CHECKPOINT, STAND_IN, free_port
from integration_server import wait_until, without_settings


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A launcher whose stderr is a pipe that stays full, with an engine that floods."""
    (tmp_path / "flood.kimi-serve.yaml").write_text(
        "engine:\n"
        f"  kind: sglang\n  python: {STAND_IN}\n"
        f"  env: {{STAND_IN_FLOOD: '20000', STAND_IN_RECORD: {tmp_path / 'record.json'}}}\n"
        f"model: {{path: {CHECKPOINT}, trust_remote_code: true}}\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [
            *(sys.executable, "-P", "-m", "kimi_serve.launcher", "--port", str(free_port())),
            *("--profile", str(tmp_path / "flood.kimi-serve.yaml")),
        ],
        env=without_settings(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    yield process
    assert process.stderr is not None
    process.stderr.close()
    process.kill()
    process.wait()


def test_a_stop_is_not_held_up(launcher: subprocess.Popen[bytes], tmp_path: Path) -> None:
    wait_until((tmp_path / "record.json").exists)
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(60) == 0
