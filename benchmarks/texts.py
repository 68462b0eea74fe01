"""Latency of texts alone, and beside clients that keep big images queued.

    python benchmarks/texts.py [--seconds S] [--clients 4] [--images 8]

Prints JSON: milliseconds of /tokenize and /health, alone and beside; all clients run on the same
cores as the server.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import ROOT, picture
from http_load import PATHS, SAFETENSORS, our_server

TEXT = json.dumps({"prompt": "hello world, how are you " * 8}).encode()


def latencies(port: int, path: str, seconds: float) -> dict[str, float]:
    """Ask again and again with short rests; gives percentiles in milliseconds."""
    taken: list[float] = []
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        if path == "/health":
            client.request("GET", path)
        else:
            client.request("POST", path, TEXT)
        response = client.getresponse()
        response.read()
        taken.append(1000 * (time.monotonic() - began))
        assert response.status == 200, response.status
        time.sleep(0.01)
    taken.sort()
    return {f"p{part}": round(taken[len(taken) * part // 100], 1) for part in (50, 90, 99)}


def measure(given: argparse.Namespace, accept: str) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    large = ["--server-max-queued-bytes", str(8 * 2**30), "--server-max-response-bytes",
             str(2 * 2**30), "--server-max-body-bytes", str(2**28)]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder, our_server(2, *large) as (_, port):
        file = Path(folder) / "phone.jpg"
        file.write_bytes(picture(1440, 3120))
        for path in ("/tokenize", "/health"):
            found[f"{path} alone"] = latencies(port, path, given.seconds / 2)
        words = ["127.0.0.1", str(port), "/v1/preprocess", accept, str(2.5 * given.seconds + 4)]
        command = [sys.executable, str(ROOT / "benchmarks" / "http_client.py"), *words]
        with subprocess.Popen(
            [*command, str(given.clients), str(given.images), str(file)],
            stdout=subprocess.DEVNULL,
        ) as load:
            time.sleep(4)
            for path in ("/tokenize", "/health"):
                found[f"{path} beside images"] = latencies(port, path, given.seconds)
            with contextlib.suppress(subprocess.TimeoutExpired):
                load.wait(120)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--images", type=int, default=8)
    given = parser.parse_args()
    os.environ.update(PATHS)
    answer = {accept: measure(given, accept) for accept in (SAFETENSORS, "application/json")}
    json.dump(answer, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
