"""URLs of strangers, taken apart strictly: what two readers could read differently is refused."""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Literal, cast
from urllib.parse import quote, urljoin

from kimi_serve.schemas.allowed_hosts import (
    DEFAULT_PORTS,
    IPAddress,
    ends_in_number,
    is_host_name,
)
from kimi_serve.schemas.errors import MediaError

Scheme = Literal["http", "https"]

LONGEST_URL = 8192
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_ODD = re.compile(r"[\x00-\x20\x7f-\xa0\\]")
_BRACKETS = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::([0-9]*))?")
_HOST_PORT = re.compile(r"([^:\[\]]*)(?::([0-9]*))?")
# What is not quoted; the characters of it that no URL has are refused.
ASCII = "".join(map(chr, range(0x80)))


@dataclass(frozen=True, slots=True)
class Target:
    """Where a URL leads. `host` is in small letters and ASCII; `address` is set where it is one.

    `path` holds the query too. It may be signed: nothing shows it.
    """

    scheme: Scheme
    host: str
    address: IPAddress | None
    port: int
    path: str

    @property
    def authority(self) -> str:
        """The Host header: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def read_url(text: str) -> Target:
    """Take a http or https URL apart; raises MediaError."""
    text = text.strip()
    if len(text) > LONGEST_URL:
        raise MediaError(f"the URL has more than {LONGEST_URL} characters")
    odd = _ODD.search(text)
    if odd is not None:
        message = f"the URL has the character {odd[0]!r} at position {odd.start()}"
        raise MediaError(f"{message}: write it percent-encoded")
    found = _URL.fullmatch(text)
    if found is None:
        raise MediaError("the URL must begin with https:// and a host")
    scheme = cast("Scheme", found[1].lower())
    host, address, port = _read_authority(found[2], scheme)
    return Target(scheme, host, address, port, _path(found[3]))


def join(base: Target, location: str) -> Target:
    """Follow a Location header, which may be relative; raises MediaError."""
    if len(location) > LONGEST_URL or _ODD.search(location):
        raise MediaError(f"{base.host} redirects to something that is no URL")
    try:
        joined = urljoin(f"{base.scheme}://{base.authority}{base.path}", location)
    except ValueError:
        raise MediaError(f"{base.host} redirects to something that is no URL") from None
    if not joined.lower().startswith(("http://", "https://")):
        raise MediaError(f"{base.host} redirects to something that is neither http nor https")
    return read_url(joined)


def _read_authority(text: str, scheme: Scheme) -> tuple[str, IPAddress | None, int]:
    if "@" in text:
        raise MediaError("the URL has a user name or an '@' before its host: send it without")
    if text.startswith("["):
        found = _BRACKETS.fullmatch(text)
        if found is None:
            raise MediaError("the URL's host in brackets is no IPv6 address; zones are refused")
        try:
            address = IPv6Address(found[1])
        except ValueError:
            raise MediaError("the URL's host in brackets is no IPv6 address") from None
        return str(address), address, _port(found[2], scheme)
    found = _HOST_PORT.fullmatch(text)
    if found is None:
        raise MediaError("the URL's host and port cannot be told apart")
    host = ascii_host(found[1])
    if not ends_in_number(host):
        return host, None, _port(found[2], scheme)
    try:
        return host, IPv4Address(host), _port(found[2], scheme)
    except ValueError:
        message = "the URL's host is an IPv4 address in an odd spelling: write four decimal numbers"
        raise MediaError(message) from None


def ascii_host(text: str) -> str:
    """Give a host name as it is sent: small letters, punycode, no closing dot."""
    name = text
    if not text.isascii():
        import idna

        try:
            # Folds wide digits and ideographic dots too, so that what follows sees them as such.
            name = idna.encode(text, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise MediaError("the URL's host is no valid international name") from None
    name = name.lower().removesuffix(".")
    if not name:
        raise MediaError("the URL has no host")
    if not ends_in_number(name) and not is_host_name(name):
        raise MediaError("the URL's host is no host name")
    return name


def _port(text: str | None, scheme: Scheme) -> int:
    if not text:
        return DEFAULT_PORTS[scheme]
    if len(text) > 5 or not 0 < int(text) <= 65535:
        raise MediaError("the URL's port does not exist")
    return int(text)


def _path(text: str) -> str:
    path = text if text.startswith("/") else f"/{text}"
    try:
        return path if path.isascii() else quote(path, safe=ASCII)
    except UnicodeEncodeError:
        raise MediaError("the URL's path cannot be encoded") from None
