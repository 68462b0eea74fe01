"""The least that any server does: read a request, decode its image, send bytes that are ready.

    python benchmarks/bare_server.py FILE BYTES

FILE is decoded for every request, whatever that carries, and BYTES bytes are the answer: no JSON,
no base64, no patches, no hand-over. What this costs beside the bare decode is the cost of moving
an answer through the machine's own sockets. One process a core; prints its port.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import simplejpeg  # type: ignore[import-untyped]

_REQUEST_BYTES = 1 << 20


def answer(client: socket.socket, data: bytes, body: memoryview) -> None:
    """Serve one connection until it ends."""
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    buffer = bytearray(_REQUEST_BYTES)
    pixels = np.ones(simplejpeg.decode_jpeg(data, "RGB").size, np.uint8)
    while read_request(client, buffer):
        simplejpeg.decode_jpeg(data, "RGB", buffer=pixels, strict=True)
        client.sendall(head)
        client.sendall(body)


def read_request(client: socket.socket, buffer: bytearray) -> bool:
    """Read one request and drop it; False at the end of the connection."""
    count = client.recv_into(buffer)
    if count == 0:
        return False
    head, _, body = bytes(buffer[:count]).partition(b"\r\n\r\n")
    left = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]) - len(body)
    while left > 0:
        left -= client.recv_into(buffer, min(left, len(buffer)))
    return True


def serve(listener: socket.socket, data: bytes, body: memoryview) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=answer, args=(client, data, body), daemon=True).start()


def main() -> None:
    file, size = sys.argv[1:]
    data = Path(file).read_bytes()
    body = np.ones(int(size), np.uint8).data
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    for _ in range(len(os.sched_getaffinity(0)) - 1):
        if os.fork() == 0:
            break
    serve(listener, data, body)


if __name__ == "__main__":
    main()
