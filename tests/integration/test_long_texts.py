"""Long texts: they cost themselves only, and end when nobody waits for them."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import httpx
from integration_server import RunningServer, Start, wait_until
from test_limits import SMALL, images

# Work of many seconds, and of some.
HUGE = "a" * 8_000_000
LONG = "a" * 3_000_000


def send(server: RunningServer, text: str) -> socket.socket:
    """Ask for the tokens of a text, and read nothing."""
    url = httpx.URL(server.url)
    body = httpx.Request("POST", "http://x", json={"prompt": text}).content
    client = socket.create_connection((url.host, url.port or 0))
    head = f"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


def is_busy(server: RunningServer) -> bool:
    return any(worker["state"] == "busy" for worker in server.workers())


def test_short_texts_and_images_wait_for_no_long_text(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2").wait_until_serving()
    with ThreadPoolExecutor(2) as clients, server.client() as client, server.client() as other:
        long = [clients.submit(client.post, "/tokenize", json={"prompt": LONG}) for _ in range(2)]
        wait_until(lambda: is_busy(server) and server.metric("kimi_serve_waiting_requests") == 2)
        for _ in range(10):
            assert other.post("/tokenize", json={"prompt": "x"}).status_code == 200
        assert other.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200
        assert not any(each.done() for each in long)
        counts = [each.result().json()["count"] for each in long]
    assert counts[0] == counts[1] > 1000


def test_a_long_text_ends_when_nobody_waits_for_it(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    with send(server, HUGE):
        wait_until(lambda: is_busy(server))
    wait_until(lambda: any("2 s of processor time; killing it" in line for line in server.log))
    with server.client() as client:
        assert client.post("/tokenize", json={"prompt": "x"}).status_code == 200
    assert server.metric("kimi_serve_texts_total") == 1


def test_a_text_over_its_time_is_refused_and_its_neighbours_are_not(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1", "--tokenizer-timeout-s", "0.5")
    server.wait_until_serving()
    with ThreadPoolExecutor(1) as clients, server.client() as client, server.client() as other:
        long = clients.submit(client.post, "/tokenize", json={"prompt": HUGE})
        wait_until(lambda: is_busy(server) or long.done())
        assert other.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200
        refused = long.result()
    assert refused.status_code == 413
    assert "tokenizer.timeout_s" in refused.json()["error"]["message"]


def test_a_text_over_the_longest_is_refused_by_name(start: Start) -> None:
    server = start("--tokenizer-max-text-bytes", "100").wait_until_serving()
    chat = [{"role": "user", "content": "y" * 200}]
    with server.client() as client:
        answers = [
            client.post("/tokenize", json={"prompt": "ä" * 51}),
            client.post("/tokenize", json={"messages": chat}),
            client.post("/v1/preprocess", json={"messages": chat}),
        ]
        assert client.post("/tokenize", json={"prompt": "ä" * 50}).status_code == 200
    for answer in answers:
        assert answer.status_code == 413
        assert "tokenizer.max_text_bytes" in answer.json()["error"]["message"]


def test_a_long_chat_has_the_ids_of_its_text(start: Start) -> None:
    server = start().wait_until_serving()
    content = "some words, 123 " * 20_000
    with server.client() as client:
        text = client.post("/tokenize", json={"prompt": content}).json()["tokens"]
        chat = client.post(
            "/tokenize", json={"messages": [{"role": "user", "content": content}]}
        ).json()["tokens"]
    start_at = chat.index(text[0])
    assert any(chat[at : at + len(text)] == text for at in range(start_at, start_at + 20))
