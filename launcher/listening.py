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
def bind(host: str, port: int, setting: str = "server.port") -> Generator[socket.socket]:
    """Take the port before anything is started; `setting` is what chose it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise bind_error(host, port, error, setting) from None
        yield listener
    finally:
        listener.close()


@contextlib.contextmanager
def bind_admin(server: ServerSettings, main: socket.socket) -> Generator[socket.socket | None]:
    """Take the port of the admin routes, if they have one beside `main`."""
    if server.admin_port is None:
        yield None
        return
    with bind(server.admin_host, server.admin_port, "server.admin_port") as listener:
        host, port = listener.getsockname()[:2]
        if port == main.getsockname()[1]:
            # The front tells its two listeners by their ports.
            raise PlanError(
                f"server.admin_port and server.port are both {port}", hint="choose another of them"
            )
        logger.info("/metrics and /server_info are on %s only", url_of(host, port))
        yield listener


def check_free(host: str, port: int, setting: str = "server.port") -> None:
    """Raise PlanError where an engine could not take the port now."""
    with bind(host, port, setting):
        pass


def address_of(host: str, port: int) -> str:
    """Write host and port as URLs have them: an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def url_of(host: str, port: int) -> str:
    """Write the address as clients do."""
    return f"http://{address_of(host, port)}"


def bind_error(host: str, port: int, error: OSError, setting: str) -> PlanError:
    """Put into words why the port cannot be had."""
    place = address_of(host, port)
    if error.errno == errno.EADDRINUSE:
        owner = describe_owner(port)
        if owner:
            return PlanError(
                f"{place} is in use by {owner}",
                hint=f"stop it, or choose another {setting}",
            )
        return PlanError(
            f"{place} is in use by another program",
            hint=f"stop it (`ss -ltnp 'sport = :{port}'` as root names it) or choose another "
            f"{setting}",
        )
    reason = error.strerror or str(error)
    return PlanError(f"cannot listen on {place}: {reason}", hint=f"check server.host and {setting}")
