"""Where images may be fetched from: media.allowed_domains, without a look at the network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kimi_serve.schemas.allowed_hosts import (
    AllowedHost,
    AllowedHostError,
    IPAddress,
    read_allowed_host,
)
from kimi_serve.schemas.errors import MediaError

from .addresses import LOOPBACK, is_public
from .targets import Target, join, read_url


class UrlPolicy:
    """The entries of the list; one that means nothing allows nothing (lint says so, KS502)."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = tuple(_readable(entries))

    def read(self, url: str) -> Target:
        """Give where a URL leads when it may be asked; raises MediaError."""
        target = read_url(url)
        self._check(target)
        return target

    def follow(self, target: Target, location: str) -> Target:
        """Give the next hop of a redirect, under the same rules; raises MediaError."""
        try:
            following = join(target, location)
            if (target.scheme, following.scheme) != ("https", "http"):
                self._check(following)
                return following
        except MediaError:
            # Where it leads stays unsaid: an address inside may stand there.
            message = f"{target.host} redirects to where images are not fetched from"
            raise MediaError(f"{message} (media.allowed_domains)") from None
        raise MediaError(f"{target.host} redirects from https to http, which is not followed")

    def check_addresses(self, target: Target, addresses: Sequence[IPAddress]) -> None:
        """Refuse a host with any address that is neither public nor listed.

        One bad address spoils the answer: which of them is dialled must not matter.
        """
        for address in addresses:
            if not is_public(address) and not self._is_listed(target, address):
                # The address is ours to know: inside a network it is worth something.
                raise MediaError(f"{target.host} has an address that is not public")

    def _is_listed(self, target: Target, address: IPAddress) -> bool:
        for entry in self._entries:
            is_port = entry.port in (None, target.port)
            if entry.network is not None and address in entry.network and is_port:
                return True
        # Listed itself, or `_check` had refused it; no public name ends like this.
        is_local = target.host == "localhost" or target.host.endswith(".localhost")
        return is_local and any(address in network for network in LOOPBACK)

    def _check(self, target: Target) -> None:
        found = [e for e in self._entries if e.covers_host(target.host, target.address)]
        if not found:
            raise MediaError(
                f"images are not fetched from {target.host}: it is not in media.allowed_domains"
            )
        found = [entry for entry in found if entry.covers_port(target.scheme, target.port)]
        if not found:
            raise MediaError(f"images are not fetched from port {target.port} of {target.host}")
        if target.scheme == "http" and not any(entry.is_plain for entry in found):
            raise MediaError(f"images are fetched from {target.host} over https alone")


def _readable(entries: Iterable[str]) -> Iterator[AllowedHost]:
    for text in entries:
        try:
            yield read_allowed_host(text)
        except AllowedHostError:
            continue
