"""Which URLs may be asked: strange spellings, redirects, addresses that are not public."""

from __future__ import annotations

import time
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from image_samples import load_json

from kimi_serve.preprocess.media.addresses import is_public
from kimi_serve.preprocess.media.policy import UrlPolicy
from kimi_serve.preprocess.media.targets import LONGEST_URL, read_url
from kimi_serve.schemas.errors import MediaError

CASES: list[dict[str, Any]] = load_json("urls.json")
URLS = [case for case in CASES if case["url"].startswith("http") and "->" not in case["url"]]
LISTED = UrlPolicy(["http://allowed.example", "http://xn--fsq.example", "*.images.example"])


@pytest.mark.parametrize("case", URLS, ids=[case["note"] or case["url"] for case in URLS])
def test_handed_case(case: dict[str, Any]) -> None:
    if case["required"] == "deny":
        with pytest.raises(MediaError) as caught:
            LISTED.read(case["url"])
        assert caught.value.status == 400
    elif case["required"] == "same as without dot":
        assert LISTED.read(case["url"]) == LISTED.read("http://allowed.example/a.png")
    else:
        assert case["required"] == "normalise IDNA"
        assert LISTED.read(case["url"]) == LISTED.read("http://\u4f8b.EXAMPLE/a.png")


@pytest.mark.parametrize(
    "url",
    [
        "https://",
        "https:///a.png",
        "https:/allowed.example/a.png",
        "https:allowed.example",
        "https://?x",
        "https://.",
        "https://..",
        "https://allowed.example..",
        "https://@allowed.example",
        "https://a:b@allowed.example",
        "https://allowed.example\\@evil.example",
        "https://allowed.example\\.evil.example",
        "https://allowed.example\t/a.png",
        "https://allowed.example/a\nb.png",
        "https://allowed.example/a b.png",
        "https://allowed.example/a\x00.png",
        "https://allowed.example\xa0/",
        "https://allowed%2eexample/",
        "https://allowed.example:0/",
        "https://allowed.example:65536/",
        "https://allowed.example:999999/",
        "https://allowed.example:+443/",
        "https://allowed.example:443:443/",
        "https://[allowed.example]/",
        "https://[::1/",
        "https://[::1]x/",
        "https://[fe80::1%eth0]/",
        "https://allowed.example,evil.example/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://017700000001/",
        "https://127.0.0.1./".replace("0.1.", "0.01"),
        "https://127.0.0.0x1/",
        "https://\uff11\uff12\uff17\uff0e\uff11/",
        "https://\u2460\u2461\u2466.1/",
        "https://xn--/",
        "https://a\u200d.example/",
        "https://" + "a" * 64 + ".example/",
        "https://" + ".".join(["a" * 60] * 5),
        "https://allowed.example/\ud800",
        "https://allowed.example/" + "a" * LONGEST_URL,
        "ftp://allowed.example/",
    ],
)
def test_strange_urls(url: str) -> None:
    with pytest.raises(MediaError) as caught:
        read_url(url)
    assert caught.value.status == 400
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("url", "authority", "path"),
    [
        ("https://a.example", "a.example", "/"),
        ("HTTPS://A.example.:443?x=1", "a.example", "/?x=1"),
        ("https://a.example:8443/a/../b?c#d?e", "a.example:8443", "/a/../b?c"),
        ("http://a.example:80/%20", "a.example", "/%20"),
        ("http://[FD00::0:1]:8080/x", "[fd00::1]:8080", "/x"),
        ("https://a_b.example/\u00fc?\u00fc=1", "a_b.example", "/%C3%BC?%C3%BC=1"),
        (" https://a.example/x \n", "a.example", "/x"),
    ],
)
def test_what_is_asked_for(url: str, authority: str, path: str) -> None:
    target = read_url(url)
    assert (target.authority, target.path) == (authority, path)


@pytest.mark.parametrize(
    ("location", "leads_to"),
    [
        ("/b.png", "http://allowed.example/b.png"),
        ("b.png?x=1", "http://allowed.example/a/b.png?x=1"),
        ("?x", "http://allowed.example/a/a.png?x"),
        ("../b.png", "http://allowed.example/b.png"),
        ("//x.images.example/b.png", None),
        ("https://x.images.example/b.png#top", "https://x.images.example/b.png"),
        ("https://images.example/b.png", None),
        ("http://127.0.0.1/", None),
        ("http://[::1]/", None),
        ("https://allowed.example@evil.example/", None),
        ("https://evil.example/", None),
        ("https://allowed.example:8443/", None),
        ("file:///etc/passwd", None),
        ("ftp://allowed.example/", None),
        ("data:image/png;base64,AAAA", None),
        ("http://allowed.example\\@evil.example", None),
        ("https://allowed.example /", None),
        ("http://[", None),
        ("\u00ff", None),
    ],
)
def test_redirects(location: str, leads_to: str | None) -> None:
    start = LISTED.read("http://allowed.example/a/a.png")
    if leads_to is not None:
        assert LISTED.follow(start, location) == read_url(leads_to)
        return
    if location == "\u00ff":
        assert LISTED.follow(start, location).path == "/a/%C3%BF"
        return
    with pytest.raises(MediaError) as caught:
        LISTED.follow(start, location)
    assert "evil" not in caught.value.message
    assert "127" not in caught.value.message


def test_no_redirect_leaves_https() -> None:
    start = LISTED.read("https://allowed.example/a.png")
    with pytest.raises(MediaError, match="from https to http"):
        LISTED.follow(start, "http://allowed.example/a.png")


NOT_PUBLIC = (
    *("0.0.0.0", "0.1.2.3", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.0.0.1", "127.9.9.9"),
    *("168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192"),
    *("192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("224.0.0.1", "240.0.0.1", "255.255.255.255", "::", "::1", "::ffff:127.0.0.1"),
    *("::ffff:8.8.8.8", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1"),
    *("100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1", "2002:7f00:1::1", "2002:808:808::1"),
    *("3fff::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%2", "2a00::1%2", "fec0::1"),
    *("ff02::1", "5f00::1"),
)
PUBLIC = (
    *("1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.32.0.1"),
    *("192.0.1.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "64:ff9b::808:808"),
)


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_what_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))
    target = UrlPolicy(["a.example"]).read("https://a.example/")
    with pytest.raises(MediaError) as caught:
        UrlPolicy(["a.example"]).check_addresses(
            target, [ip_address("8.8.8.8"), ip_address(address)]
        )
    assert address not in caught.value.message


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    ("entries", "host", "address", "is_allowed"),
    [
        (["a.example", "10.0.0.7"], "a.example", "10.0.0.7", True),
        (["a.example", "10.0.0.0/8"], "a.example", "10.9.9.9", True),
        (["a.example", "10.0.0.7"], "a.example", "10.0.0.8", False),
        (["a.example", "10.0.0.0/8"], "a.example", "169.254.169.254", False),
        (["a.example", "10.0.0.7:443"], "a.example", "10.0.0.7", True),
        (["a.example", "10.0.0.7:8443"], "a.example", "10.0.0.7", False),
        (["*.a.example", "fd00::/8"], "b.a.example", "fd00::1", True),
        (["localhost"], "localhost", "127.0.0.1", True),
        (["localhost"], "localhost", "::1", True),
        (["localhost"], "localhost", "10.0.0.1", False),
        (["images.localhost"], "images.localhost", "127.0.0.1", True),
        (["a.example"], "a.example", "127.0.0.1", False),
        (["127.0.0.1"], "127.0.0.1", "127.0.0.1", True),
    ],
)
def test_addresses_are_allowed_by_name(
    entries: list[str], host: str, address: str, is_allowed: bool
) -> None:
    policy = UrlPolicy(entries)
    target = policy.read(f"https://{host}/")
    try:
        policy.check_addresses(target, [ip_address(address)])
    except MediaError:
        assert not is_allowed
    else:
        assert is_allowed


def test_a_bad_entry_allows_nothing() -> None:
    policy = UrlPolicy(["*", "", "*.", "https://"])
    with pytest.raises(MediaError, match=r"media\.allowed_domains"):
        policy.read("https://a.example/")


def test_refusals_say_what_is_missing() -> None:
    policy = UrlPolicy(["a.example"])
    for url, says in (
        ("https://b.example/?key=secret", "b.example: it is not in media.allowed_domains"),
        ("http://a.example/?key=secret", "https alone"),
        ("https://a.example:444/?key=secret", "port 444"),
    ):
        with pytest.raises(MediaError, match=says) as caught:
            policy.read(url)
        assert "secret" not in caught.value.message


@settings(deadline=None)
@given(
    st.text(max_size=80), st.sampled_from(["https://", "http://", "https://allowed.example", ""])
)
def test_any_text_is_a_target_or_refused(text: str, prefix: str) -> None:
    try:
        target = read_url(prefix + text)
    except MediaError:
        return
    assert target.host.isascii()
    assert target.path.isascii()
    assert read_url(f"{target.scheme}://{target.authority}{target.path}") == target


def test_long_texts_are_refused_at_once() -> None:
    started = time.process_time()
    for text in (
        "https://" + "a." * 10**6,
        "https://[" + ":" * 10**6,
        "https://" + "\u4f8b" * 10**6,
    ):
        with pytest.raises(MediaError):
            read_url(text)
    assert time.process_time() - started < 5
