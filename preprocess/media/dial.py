"""From a host to a connection: resolved once, every address checked, one of those dialled."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Protocol

from kimi_serve.schemas.allowed_hosts import IPAddress
from kimi_serve.schemas.errors import MediaError, UpstreamError

from ..daemon_threads import DaemonThreads
from .limits import LOOKUPS_AT_ONCE, MOST_ADDRESSES_TRIED
from .targets import Target

# "There is no such name"; what else goes wrong may go right later.
_NO_SUCH_NAME = (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME))

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Check = Callable[[Target, Sequence[IPAddress]], None]


class Resolver(Protocol):
    """Gives the addresses of a name; raises OSError."""

    async def __call__(self, host: str, /) -> Sequence[IPAddress]: ...


class Connect(Protocol):
    """Opens a connection to an address, under TLS for `tls_name` when there is one."""

    async def __call__(self, address: IPAddress, port: int, tls_name: str | None) -> Connection: ...


class SystemResolver:
    """The machine's own resolver."""

    def __init__(self) -> None:
        self._threads = DaemonThreads(LOOKUPS_AT_ONCE)

    async def __call__(self, host: str) -> Sequence[IPAddress]:
        found = await self._threads.run(
            lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        )
        # A zone, as in fe80::1%2, is kept: such an address is refused for it.
        return list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))


class SystemConnect:
    """Plain TCP, and TLS that trusts what the machine trusts."""

    def __init__(self) -> None:
        self._tls = ssl.create_default_context()
        self._tls.set_alpn_protocols(["http/1.1"])

    async def __call__(self, address: IPAddress, port: int, tls_name: str | None) -> Connection:
        tls = None if tls_name is None else self._tls
        return await asyncio.open_connection(str(address), port, ssl=tls, server_hostname=tls_name)


class Dialer:
    """Opens connections to checked addresses; a name is for TLS and the Host header alone."""

    def __init__(self, resolve: Resolver, connect: Connect) -> None:
        self._resolve = resolve
        self._connect = connect

    async def open(self, target: Target, check: Check, deadline: float) -> Connection:
        """Connect to one of the addresses that `check` lets pass; raises RequestError.

        `deadline` (of the loop's clock) is kept by the caller; here it is only shared out.
        """
        addresses = await self._addresses(target)
        check(target, addresses)
        tls_name = target.host if target.scheme == "https" else None
        left = addresses[:MOST_ADDRESSES_TRIED]
        while left:
            now = asyncio.get_running_loop().time()
            share_s = (deadline - now) / len(left)
            address, *left = left
            try:
                async with asyncio.timeout(share_s if left else None):
                    return await self._connect(address, target.port, tls_name)
            except ssl.SSLCertVerificationError:
                raise UpstreamError(f"{target.host} shows no valid certificate") from None
            except OSError:  # a share that ran out is one of them
                continue
        raise UpstreamError(f"no connection to {target.host} could be made")

    async def _addresses(self, target: Target) -> Sequence[IPAddress]:
        if target.address is not None:
            return [target.address]
        try:
            addresses = await self._resolve(target.host)
        except (OSError, UnicodeError) as error:
            if isinstance(error, socket.gaierror) and error.errno in _NO_SUCH_NAME:
                raise MediaError(f"there is no host {target.host}") from None
            raise UpstreamError(f"{target.host} could not be looked up") from None
        if not addresses:
            raise MediaError(f"the host {target.host} has no address")
        return addresses
