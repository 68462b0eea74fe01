"""A host of images on loopback that does what it is told, also what no server should."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme

Route = Callable[["Asked"], None]


@dataclass
class Asked:
    """One request: its head, and the means to answer or to stall."""

    path: str
    head: bytes
    connection: socket.socket
    closing: threading.Event

    def send(self, data: bytes) -> None:
        self.connection.sendall(data)

    def answer(self, body: bytes, *lines: str, status: str = "200 OK") -> None:
        """Answer properly; `lines` are further header lines."""
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *lines]
        self.send("\r\n".join([*head, "", ""]).encode() + body)

    def redirect(self, location: str, status: int = 302) -> None:
        self.answer(b"", f"Location: {location}", status=f"{status} Found")

    def stall(self) -> None:
        """Stay silent until the test ends or the client leaves."""
        self.connection.settimeout(60)
        with contextlib.suppress(OSError):
            self.connection.recv(1)


@dataclass
class ImageHost:
    """Answers each path by its route, one thread a connection; `asked` are the heads so far."""

    routes: dict[str, Route]
    tls: ssl.SSLContext | None = None
    asked: list[bytes] = field(default_factory=list[bytes])
    left: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Released whenever a connection has ended."""

    def __post_init__(self) -> None:
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http{'s' if self.tls else ''}://{host}:{self.port}{path}"

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(10)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, plain: socket.socket) -> None:
        with contextlib.suppress(OSError), plain:
            connection = self.tls.wrap_socket(plain, server_side=True) if self.tls else plain
            with connection:
                connection.settimeout(60)
                head = b""
                while b"\r\n\r\n" not in head and b"GET".startswith(head[:3]):
                    piece = connection.recv(65536)
                    if not piece:
                        break
                    head += piece
                if head.startswith(b"GET "):
                    self.asked.append(head)
                    path = head.split(b" ")[1].decode()
                    route = self.routes.get(path.partition("?")[0])
                    asked = Asked(path, head, connection, self._closing)
                    if route is None:
                        asked.answer(b"gone", status="404 Not Found")
                    else:
                        route(asked)
        self.left.release()


class Authority:
    """Issues certificates for hosts."""

    def __init__(self) -> None:
        # Its types name pyOpenSSL, which is not installed.
        self._authority: Any = trustme.CA()

    def server(self, name: str) -> ssl.SSLContext:
        """Give what a host needs that is certified as `name`."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(name).configure_cert(context)
        return context

    def trust(self, context: ssl.SSLContext) -> None:
        self._authority.configure_trust(context)

    def write(self, path: Path) -> Path:
        self._authority.cert_pem.write_to_path(path)
        return path


@contextlib.contextmanager
def image_host(routes: dict[str, Route], tls: ssl.SSLContext | None = None) -> Generator[ImageHost]:
    host = ImageHost(routes, tls)
    try:
        yield host
    finally:
        host.close()


def file(data: bytes, *lines: str) -> Route:
    """A route that answers properly with `data`."""
    return lambda asked: asked.answer(data, *lines)


def raw(data: bytes) -> Route:
    """A route that sends `data` and closes."""
    return lambda asked: asked.send(data)


def leads_to(location: str, status: int = 302) -> Route:
    return lambda asked: asked.redirect(location, status)


def stalls_after(data: bytes) -> Route:
    def route(asked: Asked) -> None:
        asked.send(data)
        asked.stall()

    return route


def drips(head: bytes, piece: bytes, every_s: float = 0.02) -> Route:
    """A route that sends `piece` again and again until the client leaves."""

    def route(asked: Asked) -> None:
        asked.send(head)
        while not asked.closing.wait(every_s):
            asked.send(piece)

    return route
