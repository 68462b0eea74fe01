"""A light client for http_load.py: threads over bare sockets that keep nothing of an answer.

    python benchmarks/http_client.py HOST PORT PATH ACCEPT SECONDS CONNECTIONS IMAGES FILE

Prints images, wall seconds, and its own CPU seconds while it asked.
"""

from __future__ import annotations

import base64
import json
import re
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

# Where vLLM takes a chat; everything else is asked as kimi-serve is.
RENDER = "/v1/chat/completions/render"
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def exchange(client: socket.socket, request: bytes, buffer: bytearray) -> None:
    """Send a request and read its whole answer; raises when that is not 200."""
    client.sendall(request)
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(1 << 14)
    head, _, body = head.partition(b"\r\n\r\n")
    length = _LENGTH.search(head)
    if b" 200 " not in head[:20] or length is None:
        raise RuntimeError(head[:200] + body[:200])
    left = int(length[1]) - len(body)
    while left:
        left -= client.recv_into(buffer, min(left, len(buffer)))


def load(
    address: tuple[str, int], request: bytes, seconds: float, connections: int
) -> tuple[int, float, float]:
    """Give requests answered, wall seconds and CPU seconds."""
    counts = [0] * connections
    end = time.monotonic() + seconds

    def ask(index: int) -> None:
        buffer = bytearray(1 << 20)
        with socket.create_connection(address, timeout=60) as client:
            while time.monotonic() < end:
                exchange(client, request, buffer)
                counts[index] += 1

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(connections)]
    began, cpu = time.monotonic(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts), time.monotonic() - began, time.process_time() - cpu


def request_of(host: str, path: str, accept: str, image: bytes, images: int) -> bytes:
    url = "data:image/jpeg;base64," + base64.b64encode(image).decode()
    if path == RENDER:
        parts = [{"type": "image_url", "image_url": {"url": url}}] * images
        asked: dict[str, Any] = {"messages": [{"role": "user", "content": parts}]}
    else:
        asked = {"images": [url] * images}
    body = json.dumps(asked)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body.encode()


def main() -> None:
    host, port, path, accept, seconds, connections, images, file = sys.argv[1:]
    request = request_of(host, path, accept, Path(file).read_bytes(), int(images))
    count, wall, cpu = load((host, int(port)), request, float(seconds), int(connections))
    print(json.dumps({"images": count * int(images), "wall_s": wall, "cpu_s": cpu}))


if __name__ == "__main__":
    main()
