"""The server and its reloads when what cannot fail fails: it ends, says why, and keeps nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from integration_server import launch, wait_until, without_settings

from kimi_serve.launcher.listening import take_port

PROGRAM = Path(__file__).parents[1] / "one_serving.py"


def run(mode: str) -> subprocess.CompletedProcess[str]:
    """Run one server to its end, which is soon."""
    return subprocess.run(
        [sys.executable, str(PROGRAM), mode],
        capture_output=True,
        text=True,
        timeout=60,
        env=without_settings(),
        check=False,
    )


def metric(text: str, name: str) -> float:
    return float(re.findall(rf"^kimi_serve_{name} (\S+)$", text, re.M)[0])


def test_a_stop_does_not_wait_for_settings_that_cannot_be_read() -> None:
    assert run("hangs").returncode == 0


def test_nothing_stays_of_the_plans_before() -> None:
    ran = run("keeps")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    assert found["kept"] == {"Generation": 1, "_Front": 1, "Pool": 1, "ImageCache": 1}
    # The image that all of them were asked for is kept once, and found by all.
    assert metric(found["metrics"], "image_cache_entries") == 1
    assert metric(found["metrics"], "image_cache_hits_total") == 3


def test_a_reload_that_fails_at_its_end_leaves_no_half_of_itself() -> None:
    ran = run("fails_late")
    assert ran.returncode == 0, ran.stderr
    assert "reload failed, the plan before goes on serving" in ran.stderr
    found = json.loads(ran.stdout)
    assert found["generation"] == 1
    assert found["status"] == 200  # 413 by the limits of the plan that failed
    assert metric(found["metrics"], 'workers{state="ready"}') == 1


def test_a_fault_at_a_signal_ends_the_server_with_its_reason() -> None:
    ran = run("cannot_obey")
    assert ran.returncode == 1
    assert "Cannot allocate memory" in ran.stderr


def test_a_fault_of_the_http_server_ends_the_server_with_its_reason() -> None:
    ran = run("cannot_serve")
    assert ran.returncode == 1
    assert "Input/output error" in ran.stderr


def test_a_reload_at_the_end_gives_running_requests_no_more_time() -> None:
    ran = run("reloads_at_the_end")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"left_s": 1}


def test_of_two_servers_that_start_at_once_one_has_the_port() -> None:
    with take_port("127.0.0.1", 0) as listener:
        port = str(listener.getsockname()[1])
    servers = [launch("--port", port) for _ in range(2)]
    try:
        wait_until(lambda: any(server.process.poll() is not None for server in servers))
        ended, serves = sorted(servers, key=lambda server: server.process.poll() is None)
        assert ended.process.returncode == 3
        serves.wait_until_serving()
        assert serves.url.endswith(f":{port}")
        assert ended.stop() == 3
        assert f"127.0.0.1:{port} is in use by pid {serves.process.pid}" in "".join(ended.log)
    finally:
        for server in servers:
            server.stop()
