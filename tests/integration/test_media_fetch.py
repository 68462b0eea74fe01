"""The fetcher against hosts on loopback that lie, stall, drip, redirect and never end."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Coroutine, Iterator, Sequence
from ipaddress import ip_address
from typing import Any, TypeVar

import pytest
from image_host import (
    Authority,
    ImageHost,
    Route,
    drips,
    file,
    image_host,
    leads_to,
    raw,
    stalls_after,
)

from kimi_serve.preprocess.media.dial import Connection, SystemConnect
from kimi_serve.preprocess.media.fetch import Fetcher
from kimi_serve.preprocess.media.limits import FETCHES_AT_ONCE_A_HOST
from kimi_serve.schemas.allowed_hosts import IPAddress
from kimi_serve.schemas.errors import (
    DeadlineError,
    MediaError,
    MediaTooLargeError,
    OverloadedError,
    RequestError,
    UpstreamError,
)
from kimi_serve.schemas.settings import MediaSettings

T = TypeVar("T")

DATA = b"\x89PNG" + b"x" * 1000
LIMIT = 4096
OK = b"HTTP/1.1 200 OK\r\n"
LONG = 10 * 2**30
PUBLIC = "93.184.216.34"

ROUTES: dict[str, Route] = {
    "/a.png": file(DATA),
    "/full.png": file(b"x" * LIMIT),
    "/type": file(DATA, "Content-Type: text/html; charset=utf-8"),
    "/identity": file(DATA, "Content-Encoding: identity"),
    "/chunked": raw(
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
    ),
    "/until-close": raw(OK + b"\r\nabc"),
    "/http10": raw(b"HTTP/1.0 200 OK\r\n\r\nabc"),
    "/interim": raw(b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK + b"Content-Length: 3\r\n\r\nabc"),
    "/small-lie": raw(OK + b"Content-Length: 3\r\n\r\nabc" + b"x" * 100_000),
    "/relative": leads_to("a.png"),
    "/absolute-path": leads_to("/a.png", 308),
    "/twice": leads_to("/relative", 307),
    "/three": leads_to("/twice", 301),
    "/four": leads_to("/three", 303),
    "/loop": leads_to("/loop"),
    "/utf-8": leads_to("/caf\u00e9/\u56fe%20.png"),
    "/caf%C3%A9/%E5%9B%BE%20.png": file(DATA),
    "/latin-1": raw(b"HTTP/1.1 302 Found\r\nLocation: /caf\xe9.png\r\nContent-Length: 0\r\n\r\n"),
    "/caf%E9.png": file(DATA),
    "/utf-8-host": leads_to("//\u00e9vil.example/a.png"),
    "/away": leads_to("https://evil.example/a.png"),
    "/metadata": leads_to("http://169.254.169.254/latest/meta-data/"),
    "/file": leads_to("file:///etc/passwd"),
    "/nowhere": raw(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n"),
    "/over": file(b"x" * (LIMIT + 1)),
    "/huge": stalls_after(OK + b"Content-Length: %d\r\n\r\n" % LONG),
    "/endless": drips(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"400\r\n%s\r\n" % (b"x" * 1024), 0
    ),
    "/endless-close": drips(OK + b"\r\n", b"x" * 1024, 0),
    "/short": raw(OK + b"Content-Length: 100\r\n\r\nabc"),
    "/short-chunk": raw(OK + b"Transfer-Encoding: chunked\r\n\r\n64\r\nabc"),
    "/no-last-chunk": raw(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"),
    "/bad-chunk": raw(OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n"),
    "/gzip": file(gzip.compress(b"\0" * 10**6), "Content-Encoding: gzip"),
    "/gzip-te": raw(OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "/two-lengths": raw(OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    "/minus": raw(OK + b"Content-Length: -1\r\n\r\nabcd"),
    "/204": raw(b"HTTP/1.1 204 No Content\r\n\r\n"),
    "/206": raw(b"HTTP/1.1 206 Partial Content\r\nContent-Length: 3\r\n\r\nabc"),
    "/300": raw(b"HTTP/1.1 300 Multiple\r\nLocation: /a.png\r\nContent-Length: 0\r\n\r\n"),
    "/304": raw(b"HTTP/1.1 304 Not Modified\r\n\r\n"),
    "/403": raw(b"HTTP/1.1 403 secret\r\nContent-Length: 6\r\n\r\nsecret"),
    "/429": raw(b"HTTP/1.1 429 Slow\r\nContent-Length: 0\r\n\r\n"),
    "/500": raw(b"HTTP/1.1 500 secret\r\nContent-Length: 6\r\n\r\nsecret"),
    "/502": raw(b"HTTP/1.1 502 Bad\r\nContent-Length: 0\r\n\r\n"),
    "/101": raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nabc"),
    "/hints": drips(b"", b"HTTP/1.1 103 Hints\r\n\r\n", 0),
    "/big-head": drips(OK, b"X-Pad: %s\r\n" % (b"x" * 1000), 0),
    "/09": raw(b"\x89PNG and no head at all\r\n\r\n"),
    "/smtp": raw(b"220 mail.example ESMTP\r\n\r\n"),
    "/closes": raw(b""),
    "/half-head": raw(b"HTTP/1.1 200 OK\r\nContent-"),
    "/stalls": stalls_after(b""),
    "/stalls-in-head": stalls_after(b"HTTP/1.1 200 OK\r\n"),
    "/stalls-in-body": stalls_after(OK + b"Content-Length: 100\r\n\r\nabc"),
    "/drips-head": drips(OK, b"X: y\r\n"),
    "/drips-body": drips(OK + b"Content-Length: 4000\r\n\r\n", b"x"),
}


class Names:
    """A resolver that gives its answers in turn, and repeats the last one."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Sequence[IPAddress]:
        self.asked.append(host)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, OSError):
            raise answer
        return [ip_address(text) for text in answer]


class Wires:
    """Dials loopback whatever the address, and notes what was to be dialled."""

    def __init__(self, port: int, unreachable: Sequence[str] = ()) -> None:
        self._port = port
        self._unreachable = unreachable
        self._connect = SystemConnect()
        self.dialled: list[tuple[str, int, str | None]] = []

    async def __call__(self, address: IPAddress, port: int, tls_name: str | None) -> Connection:
        self.dialled.append((str(address), port, tls_name))
        if str(address) in self._unreachable:
            raise OSError("unreachable")
        return await self._connect(ip_address("127.0.0.1"), self._port, tls_name=None)


@pytest.fixture(scope="module")
def host() -> Iterator[ImageHost]:
    with image_host(ROUTES) as running:
        yield running


def settings(host: ImageHost, *entries: str, **changes: Any) -> MediaSettings:
    listed = (f"http://127.0.0.1:{host.port}", *entries)
    values: dict[str, Any] = {"allowed_domains": listed, "max_bytes": LIMIT, "timeout_s": 30.0}
    return MediaSettings(**(values | changes))


def fetch(fetcher: Fetcher, url: str) -> bytes:
    counted: list[int] = []
    data = _run(fetcher.fetch(url, counted.append))
    assert sum(counted) == len(data)
    return data


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def fault(fetcher: Fetcher, url: str) -> RequestError:
    """Give the error of a fetch; it names the host and shows nothing else."""
    with pytest.raises(RequestError) as caught:
        fetch(fetcher, url)
    message = caught.value.message
    assert "secret" not in message
    assert "169.254" not in message
    assert len(message) < 200
    return caught.value


@pytest.mark.parametrize(
    ("path", "data"),
    [
        ("/a.png", DATA),
        ("/a.png?key=1", DATA),
        ("/full.png", b"x" * LIMIT),
        ("/type", DATA),
        ("/identity", DATA),
        ("/chunked", b"abcde"),
        ("/until-close", b"abc"),
        ("/http10", b"abc"),
        ("/interim", b"abc"),
        ("/small-lie", b"abc"),
        ("/relative", DATA),
        ("/absolute-path", DATA),
        ("/three", DATA),
        ("/utf-8", DATA),
        ("/latin-1", DATA),
    ],
)
def test_what_is_fetched(host: ImageHost, path: str, data: bytes) -> None:
    assert fetch(Fetcher(settings(host)), host.url(path)) == data


FAULTS: dict[str, tuple[type[RequestError], str]] = {
    "/missing": (MediaError, "answered with status 404"),
    "/four": (MediaError, "more than 3 times"),
    "/loop": (MediaError, "more than 3 times"),
    "/utf-8-host": (MediaError, "redirects to where"),
    "/away": (MediaError, "redirects to where"),
    "/metadata": (MediaError, "redirects to where"),
    "/file": (MediaError, "redirects to where"),
    "/nowhere": (MediaError, "status 302"),
    "/over": (MediaTooLargeError, "more than 4096 bytes"),
    "/huge": (MediaTooLargeError, "more than 4096 bytes"),
    "/endless": (MediaTooLargeError, "more than 4096 bytes"),
    "/endless-close": (MediaTooLargeError, "more than 4096 bytes"),
    "/short": (MediaError, "incomplete"),
    "/short-chunk": (MediaError, "incomplete"),
    "/no-last-chunk": (MediaError, "incomplete"),
    "/bad-chunk": (UpstreamError, "no answer in HTTP"),
    "/gzip": (MediaError, "compressed"),
    "/gzip-te": (UpstreamError, "no answer in HTTP"),
    "/two-lengths": (UpstreamError, "no answer in HTTP"),
    "/minus": (UpstreamError, "no answer in HTTP"),
    "/204": (MediaError, "status 204"),
    "/206": (MediaError, "status 206"),
    "/300": (MediaError, "status 300"),
    "/304": (MediaError, "status 304"),
    "/403": (MediaError, "status 403"),
    "/429": (UpstreamError, "status 429"),
    "/500": (UpstreamError, "status 500"),
    "/502": (UpstreamError, "status 502"),
    "/101": (UpstreamError, "no answer in HTTP"),
    "/hints": (UpstreamError, "no answer in HTTP"),
    "/big-head": (UpstreamError, "no answer in HTTP"),
    "/09": (UpstreamError, "no answer in HTTP"),
    "/smtp": (UpstreamError, "no answer in HTTP"),
    "/closes": (UpstreamError, "no answer in HTTP"),
    "/half-head": (UpstreamError, "no answer in HTTP"),
}


@pytest.mark.parametrize("path", FAULTS)
def test_what_is_refused(host: ImageHost, path: str) -> None:
    kind, says = FAULTS[path]
    error = fault(Fetcher(settings(host)), host.url(path) + "?key=secret")
    assert type(error) is kind
    assert says in error.message
    assert "127.0.0.1" in error.message


@pytest.mark.parametrize("path", [path for path in ROUTES if "stalls" in path or "drips" in path])
def test_one_deadline_for_all(host: ImageHost, path: str) -> None:
    error = fault(Fetcher(settings(host, timeout_s=0.3)), host.url(path))
    assert isinstance(error, DeadlineError)
    assert "127.0.0.1 did not deliver the image within 0.3 s (media.timeout_s)" in error.message


def test_a_host_that_never_accepts_is_given_up(host: ImageHost) -> None:
    # A queue of one that is full: the kernel drops further attempts.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as silent:
        port = silent.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        listed = settings(host, f"http://127.0.0.1:{port}", timeout_s=0.3)
        assert isinstance(fault(Fetcher(listed), f"http://127.0.0.1:{port}/"), DeadlineError)
        for each in waiting:
            each.close()


def test_every_fault_ends_its_connection(host: ImageHost) -> None:
    with image_host(ROUTES) as own:
        fetcher = Fetcher(settings(own, timeout_s=0.3))
        paths = [*FAULTS, "/stalls", "/drips-body", "/a.png"]
        for path in paths:
            try:
                fetch(fetcher, own.url(path))
            except RequestError:
                continue
        ends = sum(own.left.acquire(timeout=30) for _ in range(len(own.asked)))
        assert ends == len(own.asked) > len(paths)


def test_what_a_host_sees(host: ImageHost) -> None:
    del host.asked[:]
    fetch(Fetcher(settings(host)), host.url("/a.png?a=1&b=%20#top"))
    assert host.asked == [
        (
            "GET /a.png?a=1&b=%20 HTTP/1.1\r\n"
            f"Host: 127.0.0.1:{host.port}\r\n"
            "User-Agent: kimi-serve\r\n"
            "Accept: image/*\r\n"
            "Accept-Encoding: identity\r\n"
            "Connection: close\r\n\r\n"
        ).encode()
    ]


def test_no_redirects_when_none_are_allowed(host: ImageHost) -> None:
    fetcher = Fetcher(settings(host, max_redirects=0))
    assert fetch(fetcher, host.url("/a.png")) == DATA
    assert "more than 0 times" in fault(fetcher, host.url("/relative")).message


def test_proxies_of_the_environment_are_not_asked(
    host: ImageHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert fetch(Fetcher(settings(host)), host.url("/a.png")) == DATA


# Names


def test_the_address_that_was_checked_is_dialled(host: ImageHost) -> None:
    names, wires = Names([PUBLIC], ["127.0.0.1"]), Wires(host.port)
    fetcher = Fetcher(settings(host, "http://a.example"), names, wires)
    assert fetch(fetcher, "http://a.example/a.png") == DATA
    assert names.asked == ["a.example"]
    assert wires.dialled == [(PUBLIC, 80, None)]
    assert b"\r\nHost: a.example\r\n" in host.asked[-1]
    # The second answer is another one: nothing is kept from the first.
    assert "not public" in fault(fetcher, "http://a.example/a.png").message
    assert len(wires.dialled) == 1


def test_a_name_is_checked_again_on_the_next_hop(host: ImageHost) -> None:
    names, wires = Names([PUBLIC], ["169.254.169.254"]), Wires(host.port)
    fetcher = Fetcher(settings(host, "http://a.example"), names, wires)
    error = fault(fetcher, "http://a.example/relative")
    assert error.message == "a.example has an address that is not public"
    assert [address for address, _, _ in wires.dialled] == [PUBLIC]


@pytest.mark.parametrize(
    "answer", [["127.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1", PUBLIC], ["::ffff:93.184.216.34"]]
)
def test_one_private_address_spoils_an_answer(host: ImageHost, answer: Sequence[str]) -> None:
    wires = Wires(host.port)
    fetcher = Fetcher(settings(host, "http://a.example"), Names(answer), wires)
    assert "not public" in fault(fetcher, "http://a.example/a.png").message
    assert not wires.dialled


def test_the_next_address_is_tried(host: ImageHost) -> None:
    wires = Wires(host.port, unreachable=["2a00::1"])
    fetcher = Fetcher(settings(host, "http://a.example"), Names(["2a00::1", PUBLIC]), wires)
    assert fetch(fetcher, "http://a.example/a.png") == DATA
    assert [address for address, _, _ in wires.dialled] == ["2a00::1", PUBLIC]


def test_not_every_address_of_a_long_answer_is_tried(host: ImageHost) -> None:
    answer = [f"8.8.8.{number}" for number in range(100)]
    wires = Wires(host.port, unreachable=answer)
    fetcher = Fetcher(settings(host, "http://a.example"), Names(answer), wires)
    error = fault(fetcher, "http://a.example/a.png")
    assert type(error) is UpstreamError
    assert len(wires.dialled) == 4


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), MediaError),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), UpstreamError),
        (OSError("odd"), UpstreamError),
        ([], MediaError),
    ],
)
def test_names_that_have_no_address(host: ImageHost, answer: Any, kind: type[RequestError]) -> None:
    fetcher = Fetcher(settings(host, "http://a.example"), Names(answer), Wires(host.port))
    error = fault(fetcher, "http://a.example/a.png")
    assert type(error) is kind
    assert "a.example" in error.message


def test_a_resolver_that_hangs_is_given_up(host: ImageHost) -> None:
    async def hang(_host: str, /) -> Sequence[IPAddress]:
        await asyncio.get_running_loop().create_future()
        return []

    fetcher = Fetcher(settings(host, "http://a.example", timeout_s=0.3), hang)
    assert isinstance(fault(fetcher, "http://a.example/a.png"), DeadlineError)


def test_localhost_is_resolved_by_the_machine_and_only_allowed_by_name(host: ImageHost) -> None:
    url = host.url("/a.png", host="localhost")
    listed = MediaSettings(allowed_domains=(f"http://localhost:{host.port}",))
    assert fetch(Fetcher(listed), url) == DATA
    assert "not in media.allowed_domains" in fault(Fetcher(settings(host)), url).message


def test_a_suffix_allows_sub_domains_alone(host: ImageHost) -> None:
    wires = Wires(host.port)
    fetcher = Fetcher(settings(host, "http://*.a.example"), Names([PUBLIC]), wires)
    assert fetch(fetcher, "http://b.a.example/a.png") == DATA
    fault(fetcher, "http://a.example/a.png")
    fault(fetcher, "http://ba.example/a.png")
    assert len(wires.dialled) == 1


# TLS


class Trusting(SystemConnect):
    """Trusts one more authority, and dials loopback whatever the address."""

    def __init__(self, authority: Authority | None) -> None:
        super().__init__()
        if authority is not None:
            authority.trust(self._tls)

    async def __call__(self, address: IPAddress, port: int, tls_name: str | None) -> Connection:
        return await super().__call__(ip_address("127.0.0.1"), port, tls_name)


@pytest.mark.parametrize(
    ("certified", "is_trusted", "is_fetched"),
    [
        ("img.a.example", True, True),
        ("*.a.example", True, True),
        ("a.example", True, False),
        ("127.0.0.1", True, False),
        ("img.a.example", False, False),
    ],
)
def test_a_certificate_must_be_for_the_name(
    certified: str, is_trusted: bool, is_fetched: bool
) -> None:
    authority = Authority()
    with image_host(ROUTES, authority.server(certified)) as host:
        listed = settings(host, f"*.a.example:{host.port}")
        connect = Trusting(authority if is_trusted else None)
        fetcher = Fetcher(listed, Names([PUBLIC]), connect)
        url = host.url("/a.png", host="img.a.example")
        if is_fetched:
            assert fetch(fetcher, url) == DATA
        else:
            error = fault(fetcher, url)
            assert type(error) is UpstreamError
            assert error.message == "img.a.example shows no valid certificate"
            assert not host.asked


def test_an_address_has_a_certificate_too() -> None:
    authority = Authority()
    with image_host(ROUTES, authority.server("127.0.0.1")) as host:
        fetcher = Fetcher(settings(host), connect=Trusting(authority))
        assert fetch(fetcher, host.url("/a.png")) == DATA
        assert "redirects to where" in fault(fetcher, host.url("/away")).message


def test_plain_http_behind_https_and_a_tls_host_that_stalls(host: ImageHost) -> None:
    listed = settings(host, timeout_s=0.5)
    error = fault(Fetcher(listed), f"https://127.0.0.1:{host.port}/a.png")
    assert isinstance(error, DeadlineError | UpstreamError)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        fetcher = Fetcher(settings(host, f"127.0.0.1:{port}", timeout_s=0.3))
        assert isinstance(fault(fetcher, f"https://127.0.0.1:{port}/"), DeadlineError)


# Bounds


def test_bytes_that_are_too_much_to_hold_end_the_fetch(host: ImageHost) -> None:
    def take(_nbytes: int) -> None:
        raise OverloadedError("full")

    with pytest.raises(OverloadedError):
        _run(Fetcher(settings(host)).fetch(host.url("/a.png"), take))


def test_a_slow_host_leaves_room_for_others_and_a_cancelled_fetch_its_place() -> None:
    async def run() -> None:
        number = FETCHES_AT_ONCE_A_HOST
        with image_host({"/": stalls_after(b"")}) as slow, image_host(ROUTES) as other:
            listed = settings(other, f"http://localhost:{slow.port}")
            fetcher = Fetcher(listed)
            url = slow.url("/", host="localhost")
            stuck = [
                asyncio.ensure_future(fetcher.fetch(url, lambda _: None)) for _ in range(number * 5)
            ]
            assert await fetcher.fetch(other.url("/a.png"), lambda _: None) == DATA
            for task in stuck:
                task.cancel()
            await asyncio.gather(*stuck, return_exceptions=True)
            assert len(slow.asked) <= number
            assert await fetcher.fetch(other.url("/a.png"), lambda _: None) == DATA

    _run(run())
