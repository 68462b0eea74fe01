"""Which command lines are a server, and what signals do from the first moment on."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from kimi_serve.launcher.commands import cli
from kimi_serve.launcher.first_process import COMMANDS

PROGRAM = """
import os, signal, sys
from kimi_serve.launcher import cli, first_process
first_process.begin(sys.argv[1:], cli.has_command)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_every_command_is_known() -> None:
    assert frozenset(cli.commands) == COMMANDS


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("", 0),
        ("--profile plan", 0),
        ("--model-path verify --port 1", 0),
        ("--model-path=plan", 0),
        ("--force-cpu-image-preprocessing", 0),
        ("verify", -signal.SIGTERM),
        ("verify --profile x", -signal.SIGTERM),
        ("--force-cpu-image-preprocessing plan", -signal.SIGTERM),
        ("--set a.b=1 explain server.port", -signal.SIGTERM),
        ("--no-such-option plan", -signal.SIGTERM),
    ],
)
def test_a_server_ends_in_order_and_a_command_as_any_program(words: str, code: int) -> None:
    # As a parent may have it: blocked, and its dead ignored.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
    try:
        done = subprocess.run([sys.executable, "-c", PROGRAM, *words.split()], check=False)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert done.returncode == code
