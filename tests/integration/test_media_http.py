"""Images by URL and by path through a real server: the same pixels, the same care."""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
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
from integration_server import DATA, RunningServer, launch, wait_until

URLS: list[dict[str, str]] = json.loads((DATA / "urls.json").read_text(encoding="utf-8"))
STRINGS: list[dict[str, str]] = json.loads((DATA / "strings.json").read_text(encoding="utf-8"))
PICTURE = DATA / "golden" / "photo444_200x150.jpg"
PICTURE_BYTES = PICTURE.read_bytes()
HTML = b"<!doctype html><title>404</title>"
OK = b"HTTP/1.1 200 OK\r\n"
MAX_BYTES = 2**20
MAX_BODY = 3 * 2**20
BIG = PICTURE_BYTES + b"\0" * (MAX_BYTES - len(PICTURE_BYTES))

ROUTES: dict[str, Route] = {
    "/a.jpg": file(PICTURE_BYTES),
    "/moved": leads_to("/a.jpg"),
    "/inside": leads_to("http://127.0.0.1:1/"),
    "/rotated": file((DATA / "images" / "exif_rot6_bigendian.jpg").read_bytes()),
    "/bomb": file((DATA / "images" / "bomb_144mp.png").read_bytes()),
    "/big1": file(BIG),
    "/big2": file(BIG),
    "/big3": file(BIG),
    "/big4": file(BIG),
    "/html": file(HTML, "Content-Type: text/html"),
    "/10-gb": stalls_after(OK + b"Content-Length: 10737418240\r\n\r\n"),
    "/big-body": raw(OK + b"Content-Length: 3\r\n\r\n" + PICTURE_BYTES),
    "/endless": drips(OK + b"\r\n", b"x" * 65536, 0),
    "/short-body": raw(OK + b"Content-Length: 100000\r\n\r\n" + PICTURE_BYTES),
    "/slow": drips(OK + b"Content-Length: 1000\r\n\r\n", b"x"),
    "/500": raw(b"HTTP/1.1 500 X\r\nContent-Length: 6\r\n\r\nsecret"),
    "/stalls": stalls_after(b""),
}
# What urls.json says in words: the path that does it, the statuses that are right.
SAID = {
    "http://allowed.example/redirect->http://127.0.0.1/": ("/inside", (400,)),
    "Content-Length 10 GB": ("/10-gb", (413,)),
    "Content-Length lies small / body big": ("/big-body", (400,)),
    "Content-Length lies big / body short": ("/short-body", (400,)),
    "1 byte/s slowloris": ("/slow", (504,)),
    "200 text/html": ("/html", (400,)),
    "500 / 502 / timeout": ("/500", (502,)),
    "signed URL in error log": ("/html?signature=s3cr3t", (400,)),
}


@pytest.fixture(scope="module")
def host() -> Iterator[ImageHost]:
    with image_host(ROUTES) as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    images = tmp_path_factory.mktemp("images")
    (images / "a.jpg").write_bytes(PICTURE_BYTES)
    (images / "spa ce%20 \u00fc.png").write_bytes(PICTURE_BYTES)
    (images / "rotated.jpg").write_bytes((DATA / "images/exif_rot6_bigendian.jpg").read_bytes())
    (images / "notes.txt").write_text("nothing to see")
    return images


@pytest.fixture(scope="module")
def fetching(host: ImageHost, folder: Path) -> Iterator[RunningServer]:
    running = launch(
        *("--tokenizer-worker-num", "2", "--media-allowed-local-dirs", str(folder)),
        *("--media-allowed-domains", f"http://127.0.0.1:{host.port},nobody.invalid"),
        *("--media-timeout-s", "2", "--media-max-bytes", str(MAX_BYTES)),
        *("--server-max-body-bytes", str(MAX_BODY)),
    )
    yield running.wait_until_serving()
    assert running.stop_with_nothing_held() == 0
    log = "".join(running.log)
    assert "s3cr3t" not in log
    assert "Traceback" not in log


def post(server: RunningServer, *references: str) -> httpx.Response:
    with server.client() as client:
        return client.post("/v1/preprocess", json={"images": references})


def refused(server: RunningServer, *references: str) -> tuple[int, dict[str, Any]]:
    response = post(server, *references)
    assert response.status_code != 200
    error: dict[str, Any] = response.json()["error"]
    return response.status_code, error


@pytest.mark.parametrize("name", ["a.jpg", "rotated.jpg"])
def test_the_same_bytes_four_ways(
    fetching: RunningServer, host: ImageHost, folder: Path, name: str
) -> None:
    path = folder / name
    data = base64.b64encode(path.read_bytes()).decode()
    ways = [
        f"data:image/jpeg;base64,{data}",
        data,
        str(path),
        f"file://{path}",
        host.url("/a.jpg" if name == "a.jpg" else "/rotated"),
    ]
    answers = [post(fetching, way).json() for way in ways]
    for answer in answers[1:]:
        assert answer["images"] == answers[0]["images"]
        assert answer["pixel_values"] == answers[0]["pixel_values"]
    together = post(fetching, *ways).json()
    assert [image["sha256"] for image in together["images"]] == [
        answers[0]["images"][0]["sha256"]
    ] * len(ways)


def test_a_chat_with_an_image_by_url(fetching: RunningServer, host: ImageHost) -> None:
    content = [
        {"type": "image_url", "image_url": {"url": host.url("/moved")}},
        {"type": "text", "text": "what is shown here?"},
    ]
    with fetching.client() as client:
        body = {"messages": [{"role": "user", "content": content}]}
        answer = client.post("/v1/preprocess", json=body).json()
    assert answer["images"][0]["num_tokens"] == 48
    assert answer["input_ids"].count(163605) == 48


@pytest.mark.parametrize("case", URLS, ids=[case["note"] or case["url"] for case in URLS])
def test_handed_url(fetching: RunningServer, host: ImageHost, case: dict[str, str]) -> None:
    if case["url"] in SAID:
        path, statuses = SAID[case["url"]]
        status, error = refused(fetching, host.url(path))
        assert status in statuses, error
        assert "127.0.0.1" in error["message"] or path.startswith(("/html", "/big-body"))
    elif case["url"] == "DNS failure":
        status, error = refused(fetching, "https://nobody.invalid/a.png")
        assert status in (400, 502)
    elif case["url"].startswith("http"):
        status, error = refused(fetching, case["url"])
        assert status == 400
    else:
        assert case["url"].startswith("DNS rebinding"), "see test_media_fetch.py"
        return
    assert error["param"] == "images[0]"
    assert "secret" not in error["message"]
    assert "s3cr3t" not in error["message"]


@pytest.mark.parametrize("case", STRINGS, ids=[case["name"] for case in STRINGS])
def test_handed_string(fetching: RunningServer, folder: Path, case: dict[str, str]) -> None:
    response = post(fetching, case["input"].replace("{cases}", str(folder)))
    accepted = case["required"] in ("accept", "policy")
    assert response.status_code == (200 if accepted else 400), response.text
    assert str(folder) not in response.text


def test_local_files_are_refused_in_the_same_words(fetching: RunningServer, folder: Path) -> None:
    references = ("/etc/passwd", f"{folder}/nope.jpg", f"{folder}", f"{folder}/notes.txt")
    errors = [refused(fetching, reference) for reference in (*references, "/nowhere", "a.jpg")]
    assert all(error == errors[0] for error in errors)
    assert errors[0][0] == 400


def test_what_is_too_large(fetching: RunningServer, host: ImageHost) -> None:
    assert refused(fetching, host.url("/endless"))[0] == 413
    status, error = refused(fetching, host.url("/bomb"))
    assert (status, error["code"]) == (413, "image_too_large")


def test_one_request_has_one_bound(fetching: RunningServer, host: ImageHost) -> None:
    big = [host.url(f"/big{number}") for number in (1, 2, 3, 4)]
    assert post(fetching, *big[:3]).status_code == 200
    status, error = refused(fetching, *big)
    assert (status, error["code"]) == (413, "request_too_large")
    # One file is read once, however often it is shown.
    assert post(fetching, *[big[0]] * 4).status_code == 200


def test_one_url_is_fetched_once_a_request(fetching: RunningServer, host: ImageHost) -> None:
    del host.asked[:]
    answer = post(fetching, *[host.url("/a.jpg")] * 5, host.url("/a.jpg?2")).json()
    assert len({image["sha256"] for image in answer["images"]}) == 1
    assert len(host.asked) == 2


def test_the_first_image_of_a_shared_fault_is_named(
    fetching: RunningServer, host: ImageHost
) -> None:
    good, bad = host.url("/a.jpg"), host.url("/500")
    _, error = refused(fetching, good, bad, bad, good)
    assert error["param"] == "images[1]"
    # What would not be asked at all is found before anything is.
    del host.asked[:]
    _, error = refused(fetching, good, "https://evil.example/a.png")
    assert error["param"] == "images[1]"
    assert not host.asked


def test_a_stalled_host_holds_no_worker_and_a_client_that_goes_ends_its_fetch(
    fetching: RunningServer, host: ImageHost
) -> None:
    before = fetching.metric('kimi_serve_media_total{outcome="cancelled",source="http"}')
    asked = len(host.asked)
    body = json.dumps({"images": [host.url(f"/stalls?{n}") for n in range(9)]}).encode()
    head = f"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    address = httpx.URL(fetching.url)
    with socket.create_connection((address.host, address.port or 80)) as leaving:
        leaving.sendall(head.encode() + body)
        wait_until(lambda: len(host.asked) > asked)
        assert post(fetching, host.url("/a.jpg")).status_code == 200
    name = 'kimi_serve_media_total{outcome="cancelled",source="http"}'
    wait_until(lambda: fetching.metric(name) > before)
    wait_until(lambda: fetching.metric("kimi_serve_held_bytes") == 0)


def test_what_metrics_say(fetching: RunningServer, host: ImageHost, folder: Path) -> None:
    def now() -> list[float]:
        return [
            fetching.metric('kimi_serve_media_total{outcome="ok",source="http"}'),
            fetching.metric('kimi_serve_media_total{outcome="ok",source="file"}'),
            fetching.metric('kimi_serve_media_total{outcome="failed",source="http"}'),
            fetching.metric('kimi_serve_media_bytes_total{source="http"}'),
            fetching.metric('kimi_serve_media_seconds_count{source="file"}'),
        ]

    before = now()
    assert post(fetching, host.url("/a.jpg"), str(folder / "a.jpg")).status_code == 200
    refused(fetching, host.url("/500"))
    changes = [after - start for after, start in zip(now(), before, strict=True)]
    assert changes == [1, 1, 1, len(PICTURE_BYTES), 1]
    with fetching.client() as client:
        assert str(host.port) not in client.get("/metrics").text


def test_https_is_the_rule(start: Any, tmp_path: Path) -> None:
    authority = Authority()
    certificate = authority.write(tmp_path / "ca.pem")
    good, bad = authority.server("localhost"), authority.server("other.example")
    with image_host(ROUTES, good) as right, image_host(ROUTES, bad) as wrong:
        running = start(
            "--media-allowed-domains",
            f"localhost:{right.port},localhost:{wrong.port}",
            env={"SSL_CERT_FILE": str(certificate)},
        ).wait_until_serving()
        assert post(running, right.url("/a.jpg", host="localhost")).status_code == 200
        plain = right.url("/a.jpg", host="localhost").replace("https:", "http:")
        status, error = refused(running, plain)
        assert status == 400
        assert "https alone" in error["message"]
        status, error = refused(running, wrong.url("/a.jpg", host="localhost"))
        assert (status, error["code"]) == (502, "image_host_failed")
        assert "certificate" in error["message"]
