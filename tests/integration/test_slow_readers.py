"""Clients that take their answers slowly, or never: nobody waits for them, and no byte changes."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from urllib.parse import urlsplit

from image_samples import DATA
from integration_server import RunningServer, Start

GOLDEN = DATA / "golden"
NAMES = ("hd_1920x1080.png", "phone_1440x3120.png", "edge_1806x1792.png", "big_3000x4000.png")
SAFETENSORS = "application/vnd.safetensors"


def body(*names: str) -> bytes:
    urls = [
        "data:;base64," + base64.b64encode((GOLDEN / name).read_bytes()).decode() for name in names
    ]
    return json.dumps({"images": urls}).encode()


def ask(server: RunningServer, accept: str, *names: str) -> socket.socket:
    """Send a request, and read nothing of the answer but its first byte."""
    url = urlsplit(server.url)
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
    client.settimeout(60)
    client.connect((url.hostname, url.port))
    content = body(*names)
    head = f"POST /v1/preprocess HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\nConnection: close\r\n"
    client.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    assert client.recv(1) == b"H"
    return client


def rest(client: socket.socket) -> bytes:
    pieces: list[bytes] = []
    while piece := client.recv(1 << 18):
        pieces.append(piece)
    client.close()
    head, _, content = b"".join(pieces).partition(b"\r\n\r\n")
    assert head.startswith(b"TTP/1.1 200 "), head[:100]
    return content


def pixels_digest(content: bytes, accept: str) -> str:
    if accept == SAFETENSORS:
        start = 8 + int.from_bytes(content[:8], "little")
        pixels = content[start:]
    else:
        answer = json.loads(content)
        grids = b"".join(
            side.to_bytes(8, "little") for grid in answer["grid_thws"] for side in grid
        )
        pixels = grids + base64.b64decode(answer["pixel_values"]["data"], validate=True)
    return hashlib.sha256(pixels).hexdigest()


def test_more_stalled_clients_than_slots_keep_nobody_out_and_get_their_own_bytes(
    start: Start,
) -> None:
    server = start("--tokenizer-worker-num", "1", "--force-cpu-image-preprocessing")
    server.wait_until_serving()
    expected = {
        names: pixels_digest(rest(ask(server, SAFETENSORS, *names)), SAFETENSORS)
        for names in ((NAMES[0],), (NAMES[1],), (NAMES[2],), NAMES)
    }
    stalled = [
        (ask(server, accept, *names), accept, names)
        for names in expected
        for accept in (SAFETENSORS, "application/json")
    ]
    # All slots were needed many times over while those read nothing.
    for names, digest in expected.items():
        content = rest(ask(server, SAFETENSORS, *names))
        assert pixels_digest(content, SAFETENSORS) == digest
    for client, accept, names in stalled:
        assert pixels_digest(rest(client), accept) == expected[names], (names, accept)


def test_clients_that_leave_in_the_midst_give_their_slots_back(start: Start) -> None:
    server = start("--tokenizer-worker-num", "1", "--force-cpu-image-preprocessing")
    server.wait_until_serving()
    for _ in range(5):
        ask(server, SAFETENSORS, NAMES[0]).close()
    digests = {
        pixels_digest(rest(ask(server, accept, NAMES[0])), accept)
        for accept in (SAFETENSORS, "application/json")
    }
    assert len(digests) == 1
    with server.client() as client:
        assert "kimi_serve_held_bytes 0.0" in client.get("/metrics").text
