"""Who has a port: whoever listens, from the moment that it is taken."""

from __future__ import annotations

import errno
import socket

import pytest

from kimi_serve.launcher.listening import check_free, take_admin_port, take_port
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.settings import ServerSettings


def bound(port: int = 0) -> socket.socket:
    """Give what is bound as servers are, and does not listen yet."""
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind(("127.0.0.1", port))
    return other


def test_nobody_else_can_listen_on_a_port_that_is_taken() -> None:
    with bound() as other:
        with (
            take_port("127.0.0.1", other.getsockname()[1]),
            pytest.raises(OSError, match="already in use"),
        ):
            other.listen()
        other.listen()


def test_a_port_that_is_lost_between_bind_and_listen_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with bound() as other:
        port = other.getsockname()[1]

        class Late(socket.socket):
            def bind(self, address: object, /) -> None:
                super().bind(address)  # type: ignore[arg-type]
                other.listen()

        monkeypatch.setattr("kimi_serve.launcher.listening.socket.socket", Late)
        with (
            pytest.raises(PlanError, match=f"127.0.0.1:{port} is in use") as raised,
            take_port("127.0.0.1", port, "a.host", "a.port"),
        ):
            pass
    assert "choose another a.port" in (raised.value.hint or "")


def test_a_kind_of_address_that_the_kernel_does_not_have_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_socket(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr("kimi_serve.launcher.listening.socket.socket", no_socket)
    with (
        pytest.raises(PlanError, match="Address family not supported") as raised,
        take_port("::", 1),
    ):
        pass
    assert raised.value.hint == "check server.host and server.port"


def test_a_check_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_listener: socket.socket, _backlog: int = 0) -> None:
        message = "a client could connect to it"
        raise AssertionError(message)

    with bound() as other:
        port = other.getsockname()[1]
        with monkeypatch.context() as patching:
            patching.setattr(socket.socket, "listen", fail)
            check_free("127.0.0.1", port, "server.host", "server.port")
        other.listen()
        with pytest.raises(PlanError, match="in use by"):
            check_free("127.0.0.1", port, "server.host", "server.port")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def test_the_port_of_the_server_is_not_the_admins(host: str) -> None:
    with take_port("127.0.0.1", 0) as main:
        port = main.getsockname()[1]
        server = ServerSettings(admin_host=host, admin_port=port)
        with (
            pytest.raises(PlanError, match=f"server.admin_port and server.port are both {port}"),
            take_admin_port(server, main),
        ):
            pass
