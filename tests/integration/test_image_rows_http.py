"""Rows of docs/image-reports.md over HTTP: which image is named, and that each gets an answer."""

from __future__ import annotations

import base64

import pytest
from integration_server import DATA, RunningServer, Start

DAMAGED = {
    "truncated.jpg": 400, "truncated_header.jpg": 400, "html_404_as.jpg": 400, "one.bin": 400,
    "truncated.png": 400, "soi_only.jpg": 400, "broken_second_idat.png": 400,
    "truncated.webp": 400, "bad_zlib.png": 400, "elf_as.png": 400, "json_error_as.png": 400,
    "sof3_lossless_claim.jpg": 400, "bomb_144mp.png": 413, "bomb_ihdr_lie.png": 413,
    "ztxt_bomb.png": 400, "svg_as.png": 400, "icon.ico": 415,
}  # fmt: skip


def reference(data: bytes) -> str:
    return f"data:;base64,{base64.b64encode(data).decode()}"


def read(name: str) -> bytes:
    return (DATA / "images" / name).read_bytes()


@pytest.mark.parametrize("name", DAMAGED)
def test_a33_to_a40_a_damaged_image_is_a_named_4xx(server: RunningServer, name: str) -> None:
    good = reference(read("57x29.png"))
    before = {worker["pid"] for worker in server.workers()}
    with server.client() as client:
        response = client.post(
            "/v1/preprocess", json={"images": [good, good, reference(read(name))]}
        )
    assert response.status_code == DAMAGED[name]
    error = response.json()["error"]
    assert error["param"] == "images[2]"
    assert "Traceback" not in error["message"]
    assert " 0x" not in error["message"]
    assert {worker["pid"] for worker in server.workers()} == before


def test_a36_an_empty_image(server: RunningServer) -> None:
    with server.client() as client:
        response = client.post("/v1/preprocess", json={"images": [reference(b"")]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "images[0]"


def test_a39_what_was_refused_is_not_tried_again(start: Start) -> None:
    running = start().wait_until_serving()
    with running.client() as client:
        for _ in range(3):
            assert (
                client.post(
                    "/v1/preprocess", json={"images": [reference(read("bad_zlib.png"))]}
                ).status_code
                == 400
            )
        metrics = client.get("/metrics").text
    assert "kimi_serve_jobs_retried_total 0.0" in metrics
    assert "kimi_serve_worker_deaths_total 0.0" in metrics


def test_a10_a11_grey_and_colour_in_one_request(server: RunningServer) -> None:
    names = ("gray.jpg", "base_420.jpg", "rgba.png", "la.png")
    with server.client() as client:
        together = client.post(
            "/v1/preprocess", json={"images": [reference(read(name)) for name in names]}
        ).json()
        alone = [
            client.post("/v1/preprocess", json={"images": [reference(read(name))]}).json()
            for name in names
        ]
    parts = [base64.b64decode(answer["pixel_values"]["data"]) for answer in alone]
    assert base64.b64decode(together["pixel_values"]["data"]) == b"".join(parts)
    hashes = [image["sha256"] for image in together["images"]]
    assert hashes == [answer["images"][0]["sha256"] for answer in alone]


def test_a30_the_cache_keeps_settings_apart(start: Start) -> None:
    """The same bytes under two alpha policies, each server with a cache that it has filled."""
    answers: list[list[bytes]] = []
    for policy in ("display", "checkpoint"):
        running = start("--image-policy", policy, "--image-cache-bytes", "100000000")
        running.wait_until_serving()
        with running.client() as client:
            bodies = [
                client.post("/v1/preprocess", json={"images": [reference(read("rgba.png"))]}).json()
                for _ in range(2)
            ]
            assert "kimi_serve_image_cache_hits_total 1.0" in client.get("/metrics").text
        answers.append([base64.b64decode(body["pixel_values"]["data"]) for body in bodies])
    assert answers[0][0] == answers[0][1]
    assert answers[1][0] == answers[1][1]
    assert answers[0][0] != answers[1][0]


def test_a31_a32_alike_images_are_kept_apart(start: Start) -> None:
    running = start("--image-cache-bytes", "100000000").wait_until_serving()
    scan = bytearray(read("base_444.jpg"))
    scan[-200] ^= 1  # equal headers, another scan
    pairs = (
        (read("same_bytes_6x4.png"), read("same_bytes_4x6.png")),
        (read("base_444.jpg"), bytes(scan)),
    )
    with running.client() as client:
        for pair in pairs:
            grids = [
                client.post("/v1/preprocess", json={"images": [reference(data)]}).json()
                for data in pair * 2
            ]
            seen = [(a["images"][0]["sha256"], a["pixel_values"]["data"]) for a in grids]
            assert seen[:2] == seen[2:]
            assert seen[0] != seen[1]
        metrics = client.get("/metrics").text
    assert "kimi_serve_image_cache_hits_total 4.0" in metrics


def test_a44_the_pixels_of_one_request_are_bounded_too(start: Start) -> None:
    running = start("--server-max-response-bytes", "2000000").wait_until_serving()
    one = reference(read("base_444.jpg"))
    with running.client() as client:
        assert client.post("/v1/preprocess", json={"images": [one]}).status_code == 200
        response = client.post("/v1/preprocess", json={"images": [one] * 60})
    assert response.status_code == 413
    assert "server.max_response_bytes" in response.json()["error"]["message"]
