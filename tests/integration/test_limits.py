"""What one image, one worker and one client may take, and that others do not notice."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from image_samples import DATA, encoded
from integration_server import Start, wait_until
from PIL import Image

SMALL = DATA / "golden" / "photo444_200x150.jpg"
PHOTO = DATA / "golden" / "phone_1440x3120.png"


def reference(data: bytes) -> str:
    return "data:;base64," + base64.b64encode(data).decode()


def images(*contents: bytes) -> dict[str, list[str]]:
    return {"images": [reference(content) for content in contents]}


def slow_jpeg(scans: int = 80) -> bytes:
    """Give a JPEG whose last scan comes again and again: cheap to send, dear to decode."""
    out = BytesIO()
    Image.effect_noise((3000, 3000), 50).save(out, "JPEG", progressive=True)
    data = out.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * scans + data[-2:]


def test_an_image_over_its_time_costs_itself_only(start: Start) -> None:
    server = start("--tokenizer-worker-num", "2", "--image-timeout-s", "0.3")
    server.wait_until_serving()
    with server.client() as client:
        good = client.post("/v1/preprocess", json=images(SMALL.read_bytes()))
        response = client.post("/v1/preprocess", json=images(SMALL.read_bytes(), slow_jpeg()))
        assert response.status_code == 413
        error = response.json()["error"]
        assert error["param"] == "images[1]"
        assert "image.timeout_s" in error["message"]
        again = client.post("/v1/preprocess", json=images(SMALL.read_bytes()))
    assert again.json()["pixel_values"] == good.json()["pixel_values"]
    # Refused at once, not tried on one worker after the other.
    assert sum("of processor time" in line for line in server.log) == 1


def test_an_image_over_the_memory_of_a_worker_costs_itself_only(start: Start) -> None:
    server = start("--tokenizer-worker-memory-mib", "64", "--image-max-pixels", "400000000")
    server.wait_until_serving()
    (pid,) = [worker["pid"] for worker in server.workers()]
    bomb = (DATA / "images" / "bomb_144mp.png").read_bytes()
    with server.client() as client:
        response = client.post("/v1/preprocess", json=images(SMALL.read_bytes(), bomb))
        assert response.status_code == 413
        assert response.json()["error"]["param"] == "images[1]"
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200
    assert [worker["pid"] for worker in server.workers()] == [pid]


def test_a_body_over_the_memory_of_a_worker_is_refused(start: Start) -> None:
    server = start("--tokenizer-worker-memory-mib", "16").wait_until_serving()
    heavy = encoded(Image.effect_noise((4000, 4000), 90), "PNG")
    assert len(heavy) > 12 * 2**20
    with server.client() as client:
        response = client.post("/v1/preprocess", json=images(heavy))
        assert response.status_code == 413
        assert response.json()["error"]["param"] == "images[0]"
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200


def test_pixels_over_the_memory_of_a_worker_are_refused_in_every_format(start: Start) -> None:
    formats = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
    allowed = ",".join(name.lower() for name in formats)
    server = start("--tokenizer-worker-memory-mib", "16", "--image-formats", allowed)
    server.wait_until_serving()
    flat = Image.new("RGB", (7000, 7000), (90, 120, 30))
    bodies = {name: encoded(flat, name) for name in formats}
    bodies["JPEG, progressive"] = encoded(flat, "JPEG", progressive=True)
    bodies["JPEG, CMYK"] = encoded(flat.convert("CMYK"), "JPEG")
    bodies["PNG, deep"] = encoded(Image.new("I;16", (7000, 7000), 700), "PNG")
    with server.client() as client:
        for name, body in bodies.items():
            response = client.post("/v1/preprocess", json=images(body))
            assert response.status_code == 413, (name, response.text[:300])
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200


def test_a_small_file_that_wants_a_gigabyte_is_refused_by_arithmetic(start: Start) -> None:
    server = start().wait_until_serving()
    (pid,) = [int(str(worker["pid"])) for worker in server.workers()]
    with server.client() as client:
        client.post("/v1/preprocess", json=images(SMALL.read_bytes()))
        before = peak_kib(pid)
        bomb = (DATA / "images" / "bomb_144mp.png").read_bytes()
        response = client.post("/v1/preprocess", json=images(bomb))
    assert response.status_code == 413
    assert (
        "image.max_pixels" in response.json()["error"]["message"]
        or "144000000" in (response.json()["error"]["message"])
    )
    assert peak_kib(pid) - before < 20_000


def peak_kib(pid: int) -> int:
    match = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(match.group(1)) if match else 0


def test_an_image_whose_workers_crash_is_refused_and_takes_one_worker_at_a_time(
    start: Start,
) -> None:
    server = start("--tokenizer-worker-num", "3").wait_until_serving()
    body = images(*[slow_jpeg(scans=8)] * 2)
    stop = threading.Event()

    def crash_busy_ones() -> None:
        while not stop.wait(0.02):
            for worker in server.workers():
                if worker["state"] == "busy":
                    try:
                        os.kill(int(str(worker["pid"])), signal.SIGSEGV)
                    except ProcessLookupError:
                        continue

    crashing = threading.Thread(target=crash_busy_ones)
    crashing.start()
    try:
        with server.client() as client:
            response = client.post("/v1/preprocess", json=body)
    finally:
        stop.set()
        crashing.join()
    assert response.status_code == 400
    assert response.json()["error"]["param"] in ("images[0]", "images[1]")
    assert "crashed 5 workers" in response.json()["error"]["message"]
    with server.client() as client:
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200


def test_requests_past_the_bound_are_told_to_come_back_at_once(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1", "--server-max-queued-requests", "2")
    server.wait_until_serving()
    (pid,) = [int(str(worker["pid"])) for worker in server.workers()]
    os.kill(pid, signal.SIGSTOP)  # continued below, before anybody takes it for dead
    with ThreadPoolExecutor(2) as clients, server.client() as client:
        waiting = [
            clients.submit(client.post, "/v1/preprocess", json=images(SMALL.read_bytes()))
            for _ in range(2)
        ]
        wait_until(lambda: server.metric("kimi_serve_waiting_requests") == 2)
        refused = client.post("/tokenize", json={"prompt": "x"})
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == "1"
        assert "server.max_queued_requests" in refused.json()["error"]["message"]
        with contextlib.suppress(ProcessLookupError):  # taken for dead on a slow machine
            os.kill(pid, signal.SIGCONT)
        assert [answer.result().status_code for answer in waiting] == [200, 200]


def test_a_client_that_sends_slowly_holds_no_worker_and_keeps_nobody_out(start: Start) -> None:
    server = start("--server-max-queued-requests", "1").wait_until_serving()
    url = httpx.URL(server.url)
    slow = [socket.create_connection((url.host, url.port or 0)) for _ in range(20)]
    for each in slow:
        each.sendall(b"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: 999\r\n\r\n{")
    wait_until(lambda: server.metric("kimi_serve_held_bytes") == 20)
    with server.client() as client:
        assert client.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200
    assert all(worker["state"] == "ready" for worker in server.workers())
    for each in slow:
        each.close()
    wait_until(lambda: server.metric("kimi_serve_held_bytes") == 0)


def test_a_client_that_leaves_frees_what_waits_for_it(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    url = httpx.URL(server.url)
    body = httpx.Request("POST", "http://x", json=images(*[PHOTO.read_bytes()] * 40)).content
    head = f"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0)) as leaving:
        leaving.sendall(head.encode() + body)
        wait_until(lambda: server.metric("kimi_serve_queued_jobs") > 0)
    wait_until(lambda: server.metric("kimi_serve_queued_jobs") == 0)
    wait_until(lambda: server.metric("kimi_serve_held_bytes") == 0)
    assert server.metric("kimi_serve_images_total") < 40


@pytest.mark.parametrize("number", [1, 3])
def test_a_client_that_ends_its_side_is_answered(start: Start, number: int) -> None:
    """As `nc -N` does; an interim answer may stand before the answer, as HTTP/1.1 has it."""
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    url = httpx.URL(server.url)
    body = httpx.Request("POST", "http://x", json=images(*[PHOTO.read_bytes()] * number)).content
    head = f"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection((url.host, url.port or 0)) as asking:
        asking.settimeout(60)
        asking.sendall(head.encode() + body)
        asking.shutdown(socket.SHUT_WR)
        received = bytearray()
        while data := asking.recv(2**20):
            received += data
    answer = bytes(received).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    content = json.loads(answer.partition(b"\r\n\r\n")[2])
    assert len(content["images"]) == number


def test_texts_and_other_images_do_not_wait_for_a_request_of_many(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1").wait_until_serving()
    with ThreadPoolExecutor(1) as clients, server.client() as client, server.client() as other:
        big = clients.submit(client.post, "/v1/preprocess", json=images(*[PHOTO.read_bytes()] * 10))
        wait_until(lambda: server.metric("kimi_serve_queued_jobs") > 5)
        for _ in range(20):
            assert other.post("/tokenize", json={"prompt": "x"}).status_code == 200
        assert other.post("/v1/preprocess", json=images(SMALL.read_bytes())).status_code == 200
        assert not big.done()
        assert big.result().status_code == 200
