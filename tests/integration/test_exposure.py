"""What a stranger can reach, learn or fill: keys, listeners, heads, headers of answers."""

from __future__ import annotations

import base64
import json
import re
import socket
from collections.abc import Iterator

import httpx
import pytest
from integration_server import DATA, RunningServer, Start, launch, wait_until

KEY, OLD_KEY = "sesame-sesame", "barley-barley"
ADMIN = re.compile(r"are on (http://\S+) only")
RED = base64.b64encode((DATA / "golden" / "exact_28x28.png").read_bytes()).decode()


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    """A server with a key, the key before it, an admin port and a cache."""
    running = launch(
        "--api-key", KEY, "--server-admin-port", "0", "--image-cache-bytes", "200000000",
        env={"KIMI_SERVE_SERVER__PREVIOUS_API_KEY": OLD_KEY},
    )  # fmt: skip
    yield running.wait_until_serving()
    assert running.stop() == 0
    log = "".join(running.log)
    assert KEY not in log
    assert OLD_KEY not in log


def admin_url(server: RunningServer) -> str:
    found = [match[1] for line in server.log if (match := ADMIN.search(line))]
    return found[0]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (f"Bearer {KEY}", 200),
        (f"bearer  {KEY}", 200),
        (f"Bearer {OLD_KEY}", 200),
        (f"Bearer {KEY}x", 401),
        (f"Bearer {KEY[:-1]}", 401),
        (f"Bearer {KEY} {OLD_KEY}", 401),
        (f"Basic {KEY}", 401),
        (KEY, 401),
        ("Bearer", 401),
        ("", 401),
        ("Bearer \xff\xfe", 401),
    ],
)
def test_keys(guarded: RunningServer, header: str, status: int) -> None:
    with guarded.client() as client:
        response = client.get("/v1/models", headers={b"Authorization": header.encode("latin-1")})
    assert response.status_code == status
    if status == 401:
        assert response.headers["www-authenticate"] == "Bearer"
        assert KEY not in response.text


def test_two_authorization_headers_are_none(guarded: RunningServer) -> None:
    pair = [("Authorization", f"Bearer {KEY}"), ("Authorization", f"Bearer {KEY}")]
    with guarded.client() as client:
        assert client.get("/v1/models", headers=pair).status_code == 401


@pytest.mark.parametrize(
    "path", ["/health/", "//health", "/HEALTH", "/health%2f", "/%68ealth/x", "/health/../metrics"]
)
def test_no_spelling_of_an_open_path_opens_another(guarded: RunningServer, path: str) -> None:
    with socket.create_connection(address(guarded.url)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert read_all(connection).startswith(b"HTTP/1.1 401")


def test_the_admin_routes_are_on_their_listener_alone(guarded: RunningServer) -> None:
    admin = admin_url(guarded)
    with guarded.client(headers=bearer(KEY)) as client:
        for path in ("/metrics", "/server_info"):
            unknown = client.get("/nothing-here")
            hidden = client.get(path)
            assert hidden.status_code == unknown.status_code == 404
            assert hidden.text == unknown.text
            assert httpx.get(admin + path).status_code == 401
            assert httpx.get(admin + path, headers=bearer(KEY)).status_code == 200
        assert "/metrics" not in client.get("/openapi.json").json()["paths"]
        assert client.get("/health").status_code == 200
    for path in ("/v1/models", "/openapi.json", "/v1/preprocess", "/tokenize"):
        assert httpx.post(admin + path, headers=bearer(KEY)).status_code == 404
    assert httpx.get(admin + "/health").status_code == 200
    assert httpx.get(admin + "/ready").status_code == 200


def test_both_listeners_cannot_have_one_port(start: Start) -> None:
    with socket.create_server(("127.0.0.2", 0)) as taken:
        port = taken.getsockname()[1]
    running = start("--port", str(port), "--server-admin-host", "127.0.0.2",
                    "--server-admin-port", str(port))  # fmt: skip
    assert running.process.wait(30) == 2
    wait_until(lambda: any("KS402" in line for line in running.log))


def test_public_without_a_key_is_said_at_start(start: Start) -> None:
    running = start("--host", "0.0.0.0").wait_until_serving()
    assert any("WARNING" in line and "KS506" in line for line in running.log)


ANSWERS = [
    ("GET", "/health", 200),
    ("GET", "/ready", 200),
    ("GET", "/v1/models", 401),
    ("DELETE", "/health", 405),
    ("OPTIONS", "/health", 405),
    ("GET", "/health?" + "x" * 5000, 414),
]


@pytest.mark.parametrize(("method", "path", "status"), ANSWERS)
def test_every_answer_is_neither_guessed_at_nor_kept(
    guarded: RunningServer, method: str, path: str, status: int
) -> None:
    with guarded.client() as client:
        response = client.request(method, path)
    assert response.status_code == status
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["cache-control"] == "no-store"
    assert "server" not in response.headers
    assert not [name for name in response.headers if name.startswith("access-control")]


def test_nothing_of_path_or_headers_comes_back(guarded: RunningServer) -> None:
    mark = "zqzqzq"
    with guarded.client(headers=bearer(KEY)) as client:
        for response in (
            client.get(f"/{mark}"),
            client.get(f"/v1/models/{mark}?{mark}"),
            client.get("/v1/models/", headers={"Host": mark}),
            client.request(mark.upper(), "/v1/models"),
            client.post("/tokenize", json={"prompt": "x"}, headers={"Content-Encoding": mark}),
            client.post("/tokenize", json={"prompt": "x"}, headers={"Accept": mark}),
            client.get("/v1/models", headers={"Authorization": f"Bearer {mark}"}),
            client.get("/v1/models", headers={"Origin": f"https://{mark}"}),
        ):
            whole = response.text + str(response.headers)
            assert mark not in whole.lower(), whole
            assert response.status_code not in (301, 302, 307, 308)


def address(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    assert parsed.port is not None
    return parsed.host, parsed.port


def read_all(connection: socket.socket) -> bytes:
    """Read until the server ends the connection; a reset ends it too."""
    connection.settimeout(30)
    parts: list[bytes] = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def exchange(url: str, data: bytes) -> bytes:
    with socket.create_connection(address(url)) as connection:
        try:
            connection.sendall(data)
        except ConnectionError:
            return read_all(connection)
        return read_all(connection)


CLOSE = b"Host: x\r\nConnection: close\r\n"


def head(extra: bytes, target: bytes = b"/health") -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\n" + CLOSE + extra + b"\r\n"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(b""), 200),
        (head(b"".join(b"X-%d: y\r\n" % number for number in range(97))), 200),
        (head(b"".join(b"X-%d: y\r\n" % number for number in range(99))), 431),
        (head(b"X: " + b"y" * 30_000 + b"\r\n"), 200),
        (head(b"X: " + b"y" * 40_000 + b"\r\n"), 431),
        (head(b"", b"/" + b"y" * 5000), 414),
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/9.9\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
        (b"POST /tokenize HTTP/1.1\r\n" + CLOSE + b"Content-Length: -1\r\n\r\n", 400),
        (
            b"POST /tokenize HTTP/1.1\r\n" + CLOSE
            + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
    ],
)  # fmt: skip
def test_bounds_on_heads(server: RunningServer, data: bytes, status: int) -> None:
    answer = exchange(server.url, data)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    if status != 200:
        body = answer.partition(b"\r\n\r\n")[2]
        assert set(json.loads(body)["error"]) == {"message", "type", "code", "param"}
        assert b"x-content-type-options: nosniff" in answer.lower()


def test_a_body_behind_an_upgrade_is_not_lost_without_a_word(server: RunningServer) -> None:
    body = b'{"prompt": "x"}'
    asked = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    with socket.create_connection(address(server.url)) as connection:
        connection.settimeout(30)
        connection.sendall(asked + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        answer = b""
        while b"does not upgrade" not in answer and (piece := connection.recv(65536)):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"does not upgrade" in answer


@pytest.mark.parametrize(
    "start_of_head", [b"GET /health HTTP/1.1\r\nX: ", b"GET /", b"POST /tokenize HTTP/1.1\r\nA"]
)
def test_a_head_without_an_end_is_cut_before_it_costs_memory(
    server: RunningServer, start_of_head: bytes
) -> None:
    with socket.create_connection(address(server.url)) as connection:
        connection.settimeout(30)
        connection.sendall(start_of_head)
        sent = 0
        try:
            while sent < 64 * 2**20:
                connection.sendall(b"y" * 65536)
                sent += 65536
        except ConnectionError:
            pass
    # What the sockets take in between is the kernel's.
    assert sent < 32 * 2**20


def test_trailers_without_an_end_are_cut(server: RunningServer) -> None:
    body = json.dumps({"prompt": "x"}).encode()
    with socket.create_connection(address(server.url)) as connection:
        connection.settimeout(30)
        connection.sendall(
            b"POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
            + b"%x\r\n" % len(body) + body + b"\r\n0\r\nX: "
        )  # fmt: skip
        sent = 0
        try:
            while sent < 64 * 2**20:
                connection.sendall(b"y" * 65536)
                sent += 65536
        except ConnectionError:
            pass
    assert sent < 32 * 2**20


def test_the_cache_answers_the_same_bytes(guarded: RunningServer) -> None:
    def counted(name: str) -> float:
        text = httpx.get(admin_url(guarded) + "/metrics", headers=bearer(KEY)).text
        return float(re.findall(rf"^kimi_serve_image_cache_{name} (\S+)$", text, re.M)[0])

    chat = [
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{RED}"}},
                {"type": "text", "text": "?"},
            ],
        }
    ]
    before = counted("hits_total")
    with guarded.client(headers=bearer(KEY)) as client:
        for accept in ("application/json", "application/vnd.safetensors"):
            answers = [
                client.post("/v1/preprocess", json={"messages": chat}, headers={"Accept": accept})
                for _ in range(3)
            ]
            bodies = {re.sub(rb"prep-[0-9a-f]{32}", b"", answer.content) for answer in answers}
            assert len(bodies) == 1
        refused = [
            client.post("/v1/preprocess", json={"images": ["data:image/png;base64,AAAA"]})
            for _ in range(2)
        ]
    assert [answer.status_code for answer in refused] == [400, 400]
    assert counted("hits_total") - before == 4
    assert counted("entries") >= 2
    assert 0 < counted("bytes") < 100_000


@pytest.mark.parametrize(
    ("coding", "body", "status"),
    [
        (b"chunked", b"-1\r\nx\r\n", 400),
        (b"chunked", b"0x10\r\nx\r\n", 400),
        (b"chunked", b"12345678901234567\r\nx\r\n", 400),
        (b"chunked", b"2\r\n{}\r\nzz\r\n", 400),
        (b"gzip", b"", 400),
        (b"gzip, chunked", b"2\r\n{}\r\n0\r\n\r\n", 501),
        (b"chunked", b"2\r\n{}\r\n0\r\n\r\n", 400),
    ],
)
@pytest.mark.parametrize("is_split", [False, True])
def test_a_body_that_is_coded_wrongly_is_answered(
    server: RunningServer, coding: bytes, body: bytes, status: int, is_split: bool
) -> None:
    start = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: "
    start += coding + b"\r\n\r\n"
    with socket.create_connection(address(server.url)) as connection:
        connection.settimeout(30)
        if is_split:
            connection.sendall(start)
            connection.sendall(body)
        else:
            connection.sendall(start + body)
        answer = read_all(connection)
    headers, _, content = answer.partition(b"\r\n\r\n")
    assert int(headers.split()[1]) == status
    assert json.loads(content)["error"]["message"]


def test_a_fault_in_a_body_does_not_end_the_answer_before_it(server: RunningServer) -> None:
    first = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection(address(server.url)) as connection:
        connection.settimeout(30)
        connection.sendall(first)
        before = b""
        while b'"ok"}' not in before:
            before += connection.recv(65536)
        assert before.startswith(b"HTTP/1.1 200")
        connection.sendall(b"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 400") == 1
