"""What signals do when a stop is over and the interpreter is about to end."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, os, signal, sys
from kimi_serve.launcher.supervise.signals import StopSignals

async def main():
    with StopSignals().caught():
        pass

asyncio.run(main())
os.kill(os.getpid(), getattr(signal, sys.argv[1]))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_they_change_the_exit_code_no_more(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, name], check=False)
    assert done.returncode == 0
