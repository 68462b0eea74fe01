"""What is read from /proc, from an HTTP answer and from an engine's load."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kimi_serve.launcher.machine.memory_events import count_oom_kills
from kimi_serve.launcher.machine.sockets import (
    command_of,
    count_connections,
    listening_inodes,
    listening_ports,
    owners,
    parse_tcp,
    unix_inodes,
)
from kimi_serve.launcher.supervise.asking import Answer, parse_answer
from kimi_serve.launcher.supervise.engine import memory_note
from kimi_serve.launcher.supervise.idleness import count_running
from kimi_serve.launcher.supervise.readiness import LineCount
from kimi_serve.schemas.engine_launch import Readiness
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.provenance import DEFAULT

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt uid\n"
LISTEN = "   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:00000000 00000000  0  0 77 1\n"


def test_tcp_rows() -> None:
    (row,) = parse_tcp(HEAD + LISTEN + "garbage\n")
    assert (row.local_port, row.remote_port, row.state, row.inode) == (30000, 0, 10, 77)


def test_a_listener_of_this_process_is_found() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        inodes = listening_inodes(port)
        assert owners(inodes, [1_000_000_000]) == frozenset()
        assert port in listening_ports([os.getpid()])
        assert listening_ports([1_000_000_000]) == []
        assert count_connections(port) == 0
        with socket.create_connection(("127.0.0.1", port)):
            assert count_connections(port) == 1


def test_a_socket_file_is_found(tmp_path: Path) -> None:
    path = str(tmp_path / "a b.sock")
    assert unix_inodes(path) == frozenset()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        assert os.getpid() in owners(unix_inodes(path))


def test_a_command_is_shown_up_to_its_flags(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    words = ("/usr/bin/python3", "-m", "sglang.launch_server", "--api-key", "sk-1", "")
    (tmp_path / "7" / "cmdline").write_bytes("\0".join(words).encode())
    assert command_of(7, proc=tmp_path) == "python3 -m sglang.launch_server"
    assert command_of(8, proc=tmp_path) == "unknown program"


def test_kills_are_counted_in_the_group_or_on_the_machine(tmp_path: Path) -> None:
    assert count_oom_kills(tmp_path) is None
    for name, text in {
        "proc/vmstat": "oom_kill 9\n",
        "proc/self/cgroup": "0::/a\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert count_oom_kills(tmp_path) == 9
    group = tmp_path / "sys/fs/cgroup/a"
    group.mkdir(parents=True)
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    assert count_oom_kills(tmp_path) == 2


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Answer(200, b"ok")),
        (b"HTTP/1.1 503 No\r\n\r\n", Answer(503, b"")),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            Answer(200, b"ok"),
        ),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", Answer(200, b"")),
        (b"SSH-2.0-x\r\n", None),
        (b"", None),
    ],
)
def test_answers(data: bytes, answer: Answer | None) -> None:
    assert parse_answer(data) == answer


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (
            b'{"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 1}, {"num_running_reqs": 1}]}',
            4,
        ),
        (b'{"loads": [{"num_running_reqs": 0, "num_waiting_reqs": 0}]}', 0),
        (b'{"server_load": 3}', 3),
        (b'{"loads": []}', None),
        (b"<html>", None),
    ],
)
def test_running_requests(body: bytes, count: int | None) -> None:
    assert count_running(body) == count


def test_ready_lines_are_counted() -> None:
    lines = LineCount(Readiness("", (), 1, "fired up", 2))
    for text in ("x", "[a] fired up!", "y"):
        lines.see(text)
    assert not lines.is_complete
    lines.see("fired up")
    assert lines.is_complete
    assert not LineCount(Readiness("", (), 1, "", 0)).is_complete


def test_the_memory_note_is_the_plans_arithmetic() -> None:
    findings = [
        Finding("KS301", "warning", "16 x 800 MiB: at most 10 fit", DEFAULT, help="lower it to 10"),
        Finding("KS105", "info", "other", DEFAULT),
    ]
    assert memory_note(findings) == "16 x 800 MiB: at most 10 fit (lower it to 10)"
