"""A blocking call that hangs does not hold up the end of the process; faults come back."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from kimi_serve.preprocess.daemon_threads import DaemonThreads

# A name server that does not answer, asked for where an engine is.
LOOKUP = """
import asyncio, socket, time
from kimi_serve.launcher.supervise.asking import ask

socket.getaddrinfo = lambda *_, **__: time.sleep(600)
print(asyncio.run(ask("http://engine.example:80", "/health", timeout_s=0.2)).reason)
"""
CALL = """
import asyncio, time
from kimi_serve.preprocess.daemon_threads import DaemonThreads

async def main():
    async with asyncio.timeout(0.2):
        await DaemonThreads(1).run(lambda: time.sleep(600))

try:
    asyncio.run(main())
except TimeoutError:
    print("given up")
"""


@pytest.mark.parametrize(("program", "said"), [(CALL, "given up"), (LOOKUP, "does not answer")])
def test_the_process_ends(program: str, said: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True
    )
    assert said in ran.stdout


@pytest.mark.parametrize("error", [OSError("x"), SystemExit(3)])
def test_every_fault_comes_back(error: BaseException) -> None:
    def fail() -> None:
        raise error

    async def run() -> None:
        async with asyncio.timeout(10):
            await DaemonThreads(1).run(fail)

    with pytest.raises(type(error)):
        asyncio.run(run())
