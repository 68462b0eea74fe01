"""Where an engine is asked whether it is ready, and which ports it takes."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest
from plan_factories import make_plan

from kimi_serve.launcher.listening import bind_error, take_admin_port, url_of
from kimi_serve.launcher.report.engine import watch_lines
from kimi_serve.launcher.supervise.engine import check_ports
from kimi_serve.schemas.engine_launch import EngineLaunch
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.settings import ServerSettings

NODES = {"engine.nodes.count": 2, "engine.nodes.rank": 1, "engine.nodes.address": "host:1"}
PEM = ["--ssl-certfile", "/x.pem"]
MUTUAL = [*PEM, "--ssl-cert-reqs", "2"]


def launch_of(kind: str, args: list[str], given: dict[str, Any] | None = None) -> EngineLaunch:
    plan = make_plan({"engine.kind": kind, "engine.args": args, **(given or {})})
    assert plan.launch is not None
    return plan.launch


@pytest.mark.parametrize(
    ("kind", "args", "given", "url", "line", "ports"),
    [
        ("vllm", ["--uds", "/run/v.sock"], {}, "unix:///run/v.sock", "", ()),
        ("vllm", ["--uds=v.sock"], {}, "unix://v.sock", "", ()),
        ("vllm", ["--grpc"], {}, "tcp://127.0.0.1:30000", "", (30000,)),
        ("vllm", ["--headless"], {}, "", "", ()),
        ("vllm", [], NODES, "", "", ()),
        ("sglang", [], NODES, "http://127.0.0.1:30000", "", (30000,)),
        ("sglang", ["--smg-grpc-mode"], {}, "tcp://127.0.0.1:30000", "fired up", (30000,)),
        ("sglang", ["--grpc-mode"], {}, "tcp://127.0.0.1:30000", "fired up", (30000,)),
        ("sglang", ["--smg-grpc-mode", "--log-level=warning"], {}, "tcp:", "", (30000,)),
        ("sglang", ["--grpc-port", "30001"], {}, "http:", "fired up", (30000,)),
        ("sglang", PEM, {}, "https://127.0.0.1:30000", "fired up", (30000,)),
        ("vllm", PEM, {"server.host": "::"}, "https://[::1]:30000", "", (30000,)),
        ("vllm", ["--ssl-certfile=/x.pem"], {}, "https:", "", (30000,)),
        ("vllm", MUTUAL, {}, "https:", "startup complete", (30000,)),
        ("vllm", [*MUTUAL, "--uvicorn-log-level", "error"], {}, "https:", "", (30000,)),
    ],
)
def test_where_it_is_asked(
    kind: str, args: list[str], given: dict[str, Any], url: str, line: str, ports: tuple[int, ...]
) -> None:
    launch = launch_of(kind, args, given)
    assert launch.readiness.url.startswith(url)
    assert bool(launch.readiness.url) == bool(url)
    assert line in launch.readiness.log_line
    assert bool(launch.readiness.log_line) == bool(line)
    assert launch.ports == ports
    assert launch.readiness.required == (given is not NODES or kind == "vllm")


def test_an_unknown_release_is_asked_by_its_words() -> None:
    given = {"engine.version": "0.1.0", "engine.args": PEM, "engine.kind": "sglang"}
    launch = make_plan(given).launch
    assert launch is not None
    assert launch.readiness.url.startswith("https:")


def test_grpc_has_no_workers_to_wait_for() -> None:
    launch = launch_of("sglang", ["--smg-grpc-mode"], {"tokenizer.worker_num": 4})
    assert launch.readiness.log_count == launch.readiness.consecutive == 1
    assert launch.stopping.drains


def test_the_plan_says_what_is_waited_for() -> None:
    plan = make_plan({"engine.kind": "sglang", "engine.args": ["--smg-grpc-mode"]})
    assert "a connection to tcp://127.0.0.1:30000 that is accepted after" in watch_lines(plan)[0]


@pytest.mark.parametrize(("host", "text"), [("::", "[::]:80"), ("127.0.0.1", "127.0.0.1:80")])
def test_an_address_is_written_as_urls_have_it(host: str, text: str) -> None:
    assert url_of(host, 80) == f"http://{text}"
    unavailable = OSError(errno.EADDRNOTAVAIL, "not available")
    error = bind_error(host, 80, unavailable, "server.host", "server.port")
    assert f"cannot listen on {text}:" in error.message


def test_what_chose_an_address_that_cannot_be_had_is_named() -> None:
    server = ServerSettings(admin_host="192.0.2.1", admin_port=1)
    with (
        socket.socket() as main,
        pytest.raises(PlanError) as raised,
        take_admin_port(server, main),
    ):
        pass
    assert raised.value.hint == "check server.admin_host and server.admin_port"


@pytest.mark.parametrize(
    ("args", "host", "port"),
    [
        ([], "server.host", "server.port"),
        (["--host", "192.0.2.1"], "--host in engine.args", "server.port"),
        (["--port=1"], "server.host", "--port in engine.args"),
    ],
)
def test_an_address_in_the_engines_words_is_named_so(args: list[str], host: str, port: str) -> None:
    launch = launch_of("vllm", args)
    assert launch.said_by("--host", "server.host") == host
    assert launch.said_by("--port", "server.port") == port
    if port == "server.port" and args:
        with pytest.raises(PlanError) as raised:
            check_ports(launch)
        assert raised.value.hint == f"check {host} and {port}"
