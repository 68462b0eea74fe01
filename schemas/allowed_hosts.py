"""The entries of media.allowed_domains as the built-in workers read them.

    [http://|https://] NAME | *.SUFFIX | ADDRESS | NETWORK [:PORT]

Lint judges them with the same function that fetching uses. Names are ASCII, as they are sent.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

DEFAULT_PORTS = {"http": 80, "https": 443}
LONGEST_NAME = 253

_LABEL = r"(?!-)[a-z0-9_-]{1,63}(?<!-)"
HOST_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*", re.ASCII)
"""Labels in small letters with dots between them: names, and what looks like an IPv4 address."""
_SCHEME = re.compile(r"(https?)://", re.IGNORECASE)
_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*):(?P<port>[0-9]{1,5})")
# Resolvers take a name that ends like this for an IPv4 address in one of its many spellings.
_NUMERIC_END = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9a-fA-F]*)", re.DOTALL)


class AllowedHostError(ValueError):
    """An entry that means nothing; the text completes a sentence about it."""


@dataclass(frozen=True, slots=True)
class AllowedHost:
    """One entry: a name, the sub-domains of `name` when `is_suffix`, or the addresses of a network.

    Without a `port` the default one of each scheme is meant; `is_plain` allows http beside https.
    """

    name: str
    is_suffix: bool
    network: IPNetwork | None
    port: int | None
    is_plain: bool

    def covers_host(self, name: str, address: IPAddress | None) -> bool:
        """Tell whether a URL's host, `address` when it is spelt as one, is meant."""
        if address is not None:
            return self.network is not None and address in self.network
        if self.is_suffix:
            return name.endswith(f".{self.name}")
        return self.network is None and name == self.name

    def means_same(self, other: AllowedHost) -> bool:
        """Tell whether both allow the same; the default port may be written or left out."""
        return self._spelt_out() == other._spelt_out()

    def _spelt_out(self) -> AllowedHost:
        is_default = not self.is_plain and self.port == DEFAULT_PORTS["https"]
        return replace(self, port=None) if is_default else self

    def covers_port(self, scheme: str, port: int) -> bool:
        return port == (DEFAULT_PORTS[scheme] if self.port is None else self.port)


def read_allowed_host(text: str) -> AllowedHost:
    """Read one entry; raises AllowedHostError."""
    if not text.strip() or text != text.strip():
        raise AllowedHostError("holds a blank" if text.strip() else "is empty")
    scheme = _SCHEME.match(text)
    rest = text[scheme.end() :] if scheme else text
    is_plain = scheme is not None and scheme[1].lower() == "http"
    if "," in rest:
        raise AllowedHostError("holds several hosts")
    if "://" in rest:
        raise AllowedHostError("has a scheme other than http and https")
    host, port = _split_port(rest)
    network = _network(host)
    if network is not None:
        return AllowedHost("", is_suffix=False, network=network, port=port, is_plain=is_plain)
    is_suffix = host.startswith("*.")
    name = _name(host.removeprefix("*."))
    if is_suffix and "." not in name:
        raise AllowedHostError("stands for all of a top-level domain")
    return AllowedHost(name, is_suffix, network=None, port=port, is_plain=is_plain)


def is_host_name(text: str) -> bool:
    """Tell whether a text in small letters is a name and no spelling of an address."""
    return (
        len(text) <= LONGEST_NAME
        and HOST_NAME.fullmatch(text) is not None
        and not ends_in_number(text)
    )


def ends_in_number(name: str) -> bool:
    """Tell whether a resolver may take a name for an IPv4 address: 127.1, 0x7f000001, 0177.0.0.1"""
    return _NUMERIC_END.fullmatch(name) is not None


def _split_port(text: str) -> tuple[str, int | None]:
    found = _PORT.fullmatch(text)
    if found is None:
        return text, None
    port = int(found["port"])
    if not 0 < port <= 65535:
        raise AllowedHostError("has a port that does not exist")
    return found["host"], port


def _network(host: str) -> IPNetwork | None:
    """Read an address or a network; None for what can only be a name."""
    plain = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if "%" in plain:
        raise AllowedHostError("has a zone or an escape")
    try:
        return ip_network(plain)
    except ValueError as error:
        if "host bits" in str(error):
            raise AllowedHostError("has bits behind the prefix of its network") from None
        return None


def _name(text: str) -> str:
    name = text.lower().removesuffix(".")
    if is_host_name(name):
        return name
    if "*" in text:
        raise AllowedHostError("is a wildcard in a place where none is read")
    if "/" in text:
        raise AllowedHostError("has a path")
    if "@" in text:
        raise AllowedHostError("has a user name")
    if not text.isascii():
        raise AllowedHostError("is not spelt as it is sent (xn--...)")
    raise AllowedHostError("is no host name")
