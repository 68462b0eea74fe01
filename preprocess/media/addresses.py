"""Which addresses belong to the public internet; everything else is refused unless it is listed."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Network

from kimi_serve.schemas.allowed_hosts import IPAddress

# Written out, as `ipaddress` changes its mind about some of them from one release to the next.
_NOT_PUBLIC_4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network; Linux dials loopback for 0.0.0.0
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier NAT, and Alibaba's metadata address
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host, from inside any of its machines
        "169.254.0.0/16",  # link-local, and most clouds' metadata address
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments, and Oracle's metadata address
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Unicast that is given out. Loopback, mapped and compatible IPv4, local NAT64, unique local with
# AWS's metadata address, link-local and multicast all lie outside.
_GIVEN_OUT_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address of anybody's choice inside
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
LOOPBACK = (IPv4Network("127.0.0.0/8"), IPv6Network("::1/128"))


def is_public(address: IPAddress) -> bool:
    """Tell whether anybody on the internet could be meant by `address`."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GIVEN_OUT_6 and not any(address in network for network in _NOT_PUBLIC_6)
