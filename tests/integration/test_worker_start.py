"""Workers that start slowly, or end before they are ready."""

from __future__ import annotations

from pathlib import Path

import pytest
from integration_server import Start

IN_FORK_SERVER = (
    "import os, sys, time\nif 'kimi_serve.preprocess.workers.forkserver' in sys.orig_argv:"
)


def environment(folder: Path, action: str) -> dict[str, str]:
    """Have Python run `action` in the fork server before anything of ours."""
    (folder / "sitecustomize.py").write_text(f"{IN_FORK_SERVER}\n    {action}\n", "utf-8")
    return {"PYTHONPATH": str(folder)}


def test_a_slow_start_is_waited_for(start: Start, tmp_path: Path) -> None:
    server = start(env=environment(tmp_path, "time.sleep(6)")).wait_until_serving()
    assert server.stop() == 0


def test_a_start_over_its_time_names_the_setting(start: Start, tmp_path: Path) -> None:
    env = environment(tmp_path, "time.sleep(60)")
    server = start("--server-start-timeout-s", "1", env=env)
    assert server.process.wait(30) == 4
    server.stop()
    assert "server.start_timeout_s" in "".join(server.log)


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ("print('no libraries here', file=sys.stderr); os._exit(3)", "the fork server ended"),
        (
            "os.register_at_fork(after_in_child=lambda: (print('last words'), os._exit(3)))",
            "ended before it was ready: exit code 3",
        ),
    ],
)
def test_an_end_before_ready_fails_the_launch(
    start: Start, tmp_path: Path, action: str, said: str
) -> None:
    server = start("--tokenizer-worker-num", "2", env=environment(tmp_path, action))
    assert server.process.wait(30) == 4
    server.stop()
    assert said in "".join(server.log)
