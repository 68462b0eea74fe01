"""Taking a port, and saying who has it when it cannot be taken."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Generator

from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.settings import ServerSettings

from .machine.sockets import describe_owner

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def take_port(
    host: str, port: int, host_setting: str = "server.host", port_setting: str = "server.port"
) -> Generator[socket.socket]:
    """Take the port before anything is started; the settings are what chose host and port.

    Only who listens has the port: of two that are bound to it, the second to listen loses.
    """
    with _bound(host, port, host_setting, port_setting, listens=True) as listener:
        yield listener


@contextlib.contextmanager
def _bound(
    host: str, port: int, host_setting: str, port_setting: str, *, listens: bool
) -> Generator[socket.socket]:
    with contextlib.ExitStack() as stack:
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, port))
            if listens:
                listener.listen()
        except OSError as error:
            raise bind_error(host, port, error, host_setting, port_setting) from None
        yield listener


@contextlib.contextmanager
def take_admin_port(server: ServerSettings, main: socket.socket) -> Generator[socket.socket | None]:
    """Take the port of the admin routes, if they have one beside `main`."""
    if server.admin_port is None:
        yield None
        return
    _check_other(server.admin_port, main)
    settings = "server.admin_host", "server.admin_port"
    with take_port(server.admin_host, server.admin_port, *settings) as listener:
        host, port = listener.getsockname()[:2]
        _check_other(port, main)
        logger.info("/metrics and /server_info are on %s only", url_of(host, port))
        yield listener


def _check_other(port: int, main: socket.socket) -> None:
    # The front tells its two listeners by their ports.
    if port == main.getsockname()[1]:
        raise PlanError(
            f"server.admin_port and server.port are both {port}", hint="choose another of them"
        )


def check_free(host: str, port: int, host_setting: str, port_setting: str) -> None:
    """Raise PlanError where an engine could not take the port now."""
    with _bound(host, port, host_setting, port_setting, listens=False):
        pass


def address_of(host: str, port: int) -> str:
    """Write host and port as URLs have them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(host: str, port: int) -> str:
    """Write the address as clients do."""
    return f"http://{address_of(host, port)}"


def bind_error(
    host: str, port: int, error: OSError, host_setting: str, port_setting: str
) -> PlanError:
    """Put into words why the port cannot be had."""
    place = address_of(host, port)
    if error.errno == errno.EADDRINUSE:
        owner = describe_owner(port)
        if owner:
            return PlanError(
                f"{place} is in use by {owner}",
                hint=f"stop it, or choose another {port_setting}",
            )
        return PlanError(
            f"{place} is in use by another program",
            hint=f"stop it (`ss -ltnp 'sport = :{port}'` as root names it) or choose another "
            f"{port_setting}",
        )
    reason = error.strerror or str(error)
    return PlanError(
        f"cannot listen on {place}: {reason}", hint=f"check {host_setting} and {port_setting}"
    )
