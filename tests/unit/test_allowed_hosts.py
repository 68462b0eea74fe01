"""The forms of media.allowed_domains: what each means, and what means nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kimi_serve.preprocess.media.targets import read_url
from kimi_serve.schemas.allowed_hosts import AllowedHostError, read_allowed_host


def covers(entry: str, url: str) -> bool:
    target, allowed = read_url(url), read_allowed_host(entry)
    return (
        allowed.covers_host(target.host, target.address)
        and allowed.covers_port(target.scheme, target.port)
        and (target.scheme == "https" or allowed.is_plain)
    )


@pytest.mark.parametrize(
    ("entry", "url", "is_covered"),
    [
        ("a.example", "https://a.example/x.png", True),
        ("A.Example.", "https://a.example/x.png", True),
        ("a.example", "https://A.EXAMPLE.:443/x.png", True),
        ("a.example", "https://b.a.example/x.png", False),
        ("a.example", "https://ba.example/x.png", False),
        ("a.example", "https://a.example.evil.example/x.png", False),
        ("a.example", "https://a.example:8443/x.png", False),
        ("a.example", "http://a.example/x.png", False),
        ("http://a.example", "http://a.example/x.png", True),
        ("http://a.example", "https://a.example/x.png", True),
        ("http://a.example", "http://a.example:443/x.png", False),
        ("https://a.example", "http://a.example/x.png", False),
        ("a.example:8443", "https://a.example:8443/x.png", True),
        ("a.example:8443", "https://a.example/x.png", False),
        ("http://a.example:8080", "http://a.example:8080/x.png", True),
        ("http://a.example:8080", "http://a.example/x.png", False),
        ("*.example.org", "https://a.example.org/x.png", True),
        ("*.example.org", "https://b.a.example.org/x.png", True),
        ("*.example.org", "https://example.org/x.png", False),
        ("*.example.org", "https://badexample.org/x.png", False),
        ("*.example.org", "https://example.org.evil.example/x.png", False),
        ("*.example.org:8443", "https://a.example.org:8443/x.png", True),
        ("xn--fsq.example", "https://\u4f8b.example/x.png", True),
        ("xn--bcher-kva.example", "https://B\u00dcCHER.example/x.png", True),
        ("xn--bcher-kva.example", "https://b\u00fccher\u3002example/x.png", True),
        ("10.0.0.7", "https://10.0.0.7/x.png", True),
        ("10.0.0.0/8", "https://10.0.0.7/x.png", True),
        ("10.0.0.0/8", "https://11.0.0.7/x.png", False),
        ("10.0.0.7:8443", "https://10.0.0.7:8443/x.png", True),
        ("fd00::7", "https://[FD00:0::7]/x.png", True),
        ("[fd00::7]:8443", "https://[fd00::7]:8443/x.png", True),
        ("127.0.0.1", "https://[::ffff:127.0.0.1]/x.png", False),
        ("127.0.0.1", "https://localhost/x.png", False),
    ],
)
def test_what_an_entry_covers(entry: str, url: str, is_covered: bool) -> None:
    assert covers(entry, url) is is_covered


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("", "empty"),
        (" ", "empty"),
        (" a.org", "blank"),
        ("*", "wildcard"),
        ("*.", "host name"),
        ("*.*.org", "wildcard"),
        ("a.*", "wildcard"),
        ("*a.org", "wildcard"),
        ("*.org", "top-level"),
        ("a.org/", "path"),
        ("ftp://a.org", "scheme"),
        ("http://http://a.org", "scheme"),
        ("me@a.org", "user name"),
        ("a.org:", "host name"),
        ("a.org:0", "port"),
        ("a.org:65536", "port"),
        ("a,b", "several"),
        ("10.0.0.1/8", "prefix"),
        ("127.1", "host name"),
        ("0x7f000001", "host name"),
        ("0177.0.0.1", "host name"),
        ("fe80::1%eth0", "zone"),
        ("-a.org", "host name"),
        ("a..org", "host name"),
        ("b\u00fccher.example", "xn--"),
        ("a" * 64 + ".org", "host name"),
        (".".join(["a" * 60] * 5), "host name"),
    ],
)
def test_what_means_nothing(entry: str, says: str) -> None:
    with pytest.raises(AllowedHostError, match=says):
        read_allowed_host(entry)


@settings(deadline=None)
@given(st.text(max_size=60) | st.from_regex(r"(https?://)?[*a-z0-9.:/\[\]%@-]{0,40}"))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        allowed = read_allowed_host(text)
    except AllowedHostError:
        return
    assert allowed.name or allowed.network is not None
    assert allowed.means_same(allowed)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("a.org:443", "a.org", True),
        ("https://A.org.", "a.org", True),
        ("http://a.org", "a.org", False),
        ("a.org:8443", "a.org", False),
    ],
)
def test_entries_that_mean_the_same(one: str, other: str, is_same: bool) -> None:
    assert read_allowed_host(one).means_same(read_allowed_host(other)) is is_same
