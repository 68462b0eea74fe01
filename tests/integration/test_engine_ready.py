"""When an engine is ready, wherever it listens, and what is said when it is not in time."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from engine_server import EngineServer, free_port
from integration_server import wait_until

VLLM = {"kind": "vllm"}
AT_ONCE = {"startup_timeout_s": 3, "kill_timeout_s": 0.2}


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[EngineServer]:
    server = EngineServer(tmp_path)
    yield server
    server.close()


def error_of(engine: EngineServer) -> str:
    return engine.log.partition("kimi-serve: error: ")[2]


def assert_ready_behind_gate(engine: EngineServer, gate: Path) -> None:
    """It is asked, it is not ready before the gate opens, and then it is."""
    wait_until(lambda: len(engine.engine_pids()) == 1)
    assert engine.status("/ready").json()["state"] == "starting"
    assert " ready in " not in engine.log
    gate.touch()
    engine.wait_for(" ready in ")
    assert engine.status("/ready").status_code == 200
    assert engine.server.stop() == 0


def test_a_socket_file_is_asked(engine: EngineServer, tmp_path: Path) -> None:
    gate, path = tmp_path / "gate", tmp_path / "v.sock"
    with socket.socket() as other:  # nothing of the engine listens there
        other.bind(("127.0.0.1", engine.port))
        other.listen()
        args = {**VLLM, "args": ["--uds", str(path)], "status_port": 0}
        engine.start({"GATE": gate}, {"engine": args})
        engine.wait_for("GET /health")
        assert_ready_behind_gate(engine, gate)
    assert f"serving on unix://{path}" in engine.log


def test_grpc_of_sglang_is_ready_with_its_line(engine: EngineServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    args = {"args": ["--smg-grpc-mode"], "status_port": 0}
    engine.start({"GATE": gate}, {"engine": args})
    wait_until(lambda: is_listening(engine.port))
    assert_ready_behind_gate(engine, gate)


def test_grpc_without_a_line_is_ready_when_it_listens(engine: EngineServer) -> None:
    engine.start(None, {"engine": {**VLLM, "args": ["--grpc"]}})
    engine.wait_for(" ready in ")
    assert f"serving on tcp://127.0.0.1:{engine.port}" in engine.log
    assert engine.server.stop() == 0


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A self-signed one, its key in the same file."""
    path = tmp_path / "server.pem"
    path.write_bytes(
        trustme.CA().issue_cert("other.example").private_key_and_cert_chain_pem.bytes()
    )
    return path


@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_a_certificate_alone_means_https(
    engine: EngineServer, certificate: Path, tmp_path: Path, kind: str
) -> None:
    gate = tmp_path / "gate"
    args = {"kind": kind, "args": ["--ssl-certfile", str(certificate)], "status_port": 0}
    engine.start({"GATE": gate}, {"engine": args})
    engine.wait_for("GET /")
    assert_ready_behind_gate(engine, gate)
    assert f"serving on https://127.0.0.1:{engine.port}" in engine.log


def test_an_engine_that_wants_certificates_is_ready_with_its_line(
    engine: EngineServer, certificate: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    args = ["--ssl-certfile", str(certificate), "--ssl-ca-certs", str(certificate)]
    args += ["--ssl-cert-reqs", "2"]
    engine.start({"GATE": gate}, {"engine": {**VLLM, "args": args, "status_port": 0}})
    wait_until(lambda: is_listening(engine.port))
    assert_ready_behind_gate(engine, gate)


BEHIND = {
    "nodes": {"count": 2, "rank": 1, "address": "192.0.2.1:29501"},
    "args": ["--tp-size", "2"],
}


def test_a_rank_whose_dummy_has_no_port_is_said_before_it_starts(engine: EngineServer) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", engine.port))
        other.listen()
        assert engine.start(None, {"engine": BEHIND}).wait_for_end() == 3
    assert f"127.0.0.1:{engine.port} is in use by pid" in error_of(engine)


def test_a_rank_that_does_not_answer_is_left_alone(engine: EngineServer) -> None:
    engine.start({"HANG": 1}, {"engine": {**BEHIND, **AT_ONCE, "status_port": 0}})
    engine.wait_for("it runs, which has to do")
    wait_until(lambda: engine.status("/ready").status_code == 200)
    assert engine.server.process.poll() is None
    assert engine.server.stop() == 0
    engine.wait_until_nothing_is_left()


@pytest.mark.parametrize(
    ("stand_in", "said"),
    [
        ({"HANG": 1}, "/ready: connection refused"),
        ({"ANSWER": "503"}, "/ready answered 503"),
        ({"ANSWER": "302"}, "/ready answered 302"),
        ({"ANSWER": "404"}, "/ready and /health answered 404"),
        ({"ANSWER": "nothing"}, "/ready accepts connections and answers nothing"),
    ],
    ids=str,
)
def test_what_was_seen_is_said(engine: EngineServer, stand_in: dict[str, Any], said: str) -> None:
    assert engine.start(stand_in, {"engine": AT_ONCE}).wait_for_end() == 5
    place = f"http://127.0.0.1:{engine.port}"
    assert f"was stopped: {place}{said}" in error_of(engine)
    engine.wait_until_nothing_is_left()


def test_another_port_is_named(engine: EngineServer) -> None:
    port = free_port()
    assert engine.start({"PORT": port}, {"engine": AT_ONCE}).wait_for_end() == 5
    assert f"connection refused; the engine listens on port {port}" in error_of(engine)
    assert "server.port" in error_of(engine)


def test_a_stranger_is_named_at_the_end(engine: EngineServer) -> None:
    times = {**AT_ONCE, "startup_timeout_s": 4}
    engine.start({"HANG": 1}, {"engine": times}).record()
    address = ("127.0.0.1", engine.port)
    with http.server.ThreadingHTTPServer(address, AlwaysOk) as stranger:
        threading.Thread(target=stranger.serve_forever, daemon=True).start()
        assert engine.wait_for_end() == 5
        stranger.shutdown()
    assert "is answered by pid" in error_of(engine)
    assert "choose another server.port" in error_of(engine)


class AlwaysOk(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_engine_in_the_background_is_told_to_stay(engine: EngineServer) -> None:
    key = {"KIMI_SERVE_SERVER__API_KEY": "sk-0123456789abcdef"}
    gate = engine.folder / "never"
    stand_in = {"BACKGROUND": 1, "GATE": gate, "PRINT": "/dev/null"}
    assert engine.start(stand_in, env=key).wait_for_end() == 5
    error = error_of(engine)
    assert "; behind it stayed a process, which was ended too" in error
    assert "background" in error
    assert "api_key" not in error
    engine.wait_until_nothing_is_left()


def test_no_lines_are_promised_where_there_are_none(engine: EngineServer) -> None:
    assert engine.start({"DIE": "code 0"}).wait_for_end() == 5
    assert "it wrote nothing" in error_of(engine)
    assert "further up" not in error_of(engine)


def test_the_status_server_takes_both_keys(engine: EngineServer) -> None:
    keys = {"API_KEY": "sk-new-0123456789", "PREVIOUS_API_KEY": "sk-old-0123456789"}
    env = {f"KIMI_SERVE_SERVER__{name}": key for name, key in keys.items()}
    engine.start(None, {"engine": {"status_port": 0}}, env=env).wait_until_ready()
    assert engine.status("/health").status_code == 200
    assert engine.status("/ready").status_code == 200
    codes = {
        key: engine.status("/server_info", key).status_code
        for key in ("", "sk-wrong", *keys.values())
    }
    assert codes == {"": 401, "sk-wrong": 401, **dict.fromkeys(keys.values(), 200)}
    assert engine.server.stop() == 0
