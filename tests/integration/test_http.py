"""The HTTP interface of a real server: answers, shapes, errors."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import safetensors
from integration_server import DATA, RunningServer, Start, launch, wait_until

GOLDEN = json.loads((DATA / "golden" / "golden.json").read_text(encoding="utf-8"))
STANDARD = {
    "in_patch_limit": 16384,
    "patch_limit_on_one_side": 512,
    "patch_size": 14,
    "merge_kernel_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
GOLDEN_CASES = [case for case in GOLDEN["cases"] if case["config"] == STANDARD]
RED_28 = DATA / "golden" / "exact_28x28.png"


def data_url(file: Path, mime: str = "image/png") -> str:
    return f"data:{mime};base64,{base64.b64encode(file.read_bytes()).decode()}"


def post(server: RunningServer, body: object, **headers: str) -> httpx.Response:
    with server.client() as client:
        return client.post("/v1/preprocess", json=body, headers=headers)


def tensors_of(response: httpx.Response) -> dict[str, dict[str, Any]]:
    """Read a safetensors body with the library."""
    deserialize: Callable[[bytes], list[tuple[str, dict[str, Any]]]]
    deserialize = cast("Any", safetensors).deserialize
    return dict(deserialize(response.content))


def error_of(response: httpx.Response) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert set(error) == {"message", "type", "code", "param"}
    assert "Traceback" not in error["message"]
    return error


@pytest.fixture(scope="module")
def exact_server() -> Any:
    """A server under the checkpoint's own policy."""
    running = launch("--tokenizer-worker-num", "2", "--image-policy", "checkpoint")
    yield running.wait_until_serving()
    assert running.stop() == 0


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=[case["file"] for case in GOLDEN_CASES])
def test_golden_images_over_http(exact_server: RunningServer, case: dict[str, Any]) -> None:
    answer = post(exact_server, {"images": [data_url(DATA / "golden" / case["file"])]}).json()
    pixels = base64.b64decode(answer["pixel_values"]["data"], validate=True)
    expected = case.get("hfirst_pixel_sha256", case["pixel_sha256"])
    assert hashlib.sha256(pixels).hexdigest() == expected
    assert answer["pixel_values"]["shape"] == case["shape"]
    assert answer["grid_thws"] == [case["grid_thw"]]
    assert answer["images"][0]["num_tokens"] == case["num_tokens"]
    assert answer["images"][0]["resized"] == case["new_size"]


def test_a_chat_with_two_images(server: RunningServer) -> None:
    first, second = DATA / "golden" / "exact_28x28.png", DATA / "golden" / "odd_27x29.png"
    content = [
        {"type": "image_url", "image_url": {"url": data_url(first)}},
        {"type": "text", "text": "compare with"},
        {"type": "image_url", "image_url": {"url": data_url(second)}},
    ]
    answer = post(server, {"messages": [{"role": "user", "content": content}]}).json()
    assert [image["num_tokens"] for image in answer["images"]] == [1, 2]
    assert answer["grid_thws"] == [[1, 2, 2], [1, 4, 2]]
    assert answer["input_ids"].count(163605) == 3
    assert answer["usage"] == {"prompt_tokens": len(answer["input_ids"]), "image_tokens": 3}
    assert answer["pixel_values"]["shape"] == [12, 3, 14, 14]
    assert len(base64.b64decode(answer["pixel_values"]["data"])) == 12 * 588 * 4
    assert [image["index"] for image in answer["images"]] == [0, 1]


def test_safetensors_holds_what_json_holds(server: RunningServer) -> None:
    body = {
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "what"},
                    {"type": "image_url", "image_url": {"url": data_url(RED_28)}},
                ],
            }
        ]
    }
    plain = post(server, body).json()
    response = post(server, body, accept="application/vnd.safetensors")
    assert response.headers["content-type"] == "application/vnd.safetensors"
    tensors = tensors_of(response)
    assert tensors["pixel_values"]["dtype"] == "F32"
    assert tensors["pixel_values"]["shape"] == [4, 3, 14, 14]
    assert bytes(tensors["pixel_values"]["data"]) == base64.b64decode(plain["pixel_values"]["data"])
    assert memoryview(bytes(tensors["input_ids"]["data"])).cast("q").tolist() == plain["input_ids"]
    assert memoryview(bytes(tensors["grid_thws"]["data"])).cast("q").tolist() == [1, 2, 2]
    header_bytes = int.from_bytes(response.content[:8], "little")
    metadata = json.loads(response.content[8 : 8 + header_bytes])["__metadata__"]
    assert json.loads(metadata["images"]) == plain["images"]
    assert json.loads(metadata["usage"]) == plain["usage"]


def test_images_alone_have_no_ids(server: RunningServer) -> None:
    answer = post(server, {"images": [data_url(RED_28)] * 3}).json()
    assert answer["input_ids"] is None
    assert answer["usage"] == {"prompt_tokens": 0, "image_tokens": 3}
    assert answer["pixel_values"]["shape"] == [12, 3, 14, 14]


def test_a_chat_without_images(server: RunningServer) -> None:
    answer = post(server, {"messages": [{"role": "user", "content": "hello"}]}).json()
    assert answer["images"] == []
    assert answer["pixel_values"]["shape"] == [0, 3, 14, 14]
    assert answer["pixel_values"]["data"] == ""


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({}, 400, "messages"),
        ({"messages": [], "images": []}, 400, "messages"),
        ({"images": []}, 400, "images"),
        ({"images": "x"}, 422, "images"),
        ({"images": [7]}, 422, "images.0"),
        ({"image": ["x"]}, 400, "messages"),
        ({"images": ["data:image/png;base64,AAAA"]}, 400, "images[0]"),
        ({"images": ["https://example.com/a.png"]}, 400, "images[0]"),
        ({"images": ["/etc/passwd"]}, 400, "images[0]"),
        ({"images": ["file:///etc/passwd"]}, 400, "images[0]"),
    ],
)
def test_refused_bodies(server: RunningServer, body: object, status: int, param: str) -> None:
    response = post(server, body)
    assert response.status_code == status, response.text
    assert error_of(response)["param"] == param


def test_the_second_of_three_images_is_named(server: RunningServer) -> None:
    good = data_url(RED_28)
    broken = data_url(DATA / "images" / "bad_zlib.png")
    response = post(server, {"images": [good, broken, good]})
    assert response.status_code == 400
    assert error_of(response)["param"] == "images[1]"


def test_status_by_kind(server: RunningServer) -> None:
    images = DATA / "images"
    assert post(server, {"images": [data_url(images / "bgra32.bmp")]}).status_code == 415
    assert post(server, {"images": [data_url(images / "bomb_144mp.png")]}).status_code == 413
    assert post(server, {"images": [data_url(images / "truncated.jpg")]}).status_code == 400


def test_too_many_images_name_the_limit(server: RunningServer) -> None:
    response = post(server, {"images": [data_url(RED_28)] * 65})
    assert response.status_code == 400
    assert "image.max_per_request" in error_of(response)["message"]
    assert post(server, {"images": [data_url(RED_28)] * 64}).status_code == 200


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"images": ["\\ud800"]}', b"null"])
def test_what_is_not_json(server: RunningServer, content: bytes) -> None:
    with server.client() as client:
        response = client.post("/v1/preprocess", content=content)
    assert response.status_code in (400, 422)
    error_of(response)


def test_unknown_routes_and_methods_have_the_envelope(server: RunningServer) -> None:
    with server.client() as client:
        assert error_of(client.get("/nope"))["code"] == "http_error"
        response = client.get("/v1/preprocess")
    assert response.status_code == 405
    error_of(response)


def test_tokenize(server: RunningServer) -> None:
    with server.client() as client:
        answer = client.post("/tokenize", json={"prompt": "hello <|media_pad|>"}).json()
        chat = client.post(
            "/tokenize", json={"messages": [{"role": "user", "content": "hello"}]}
        ).json()
        image = {"type": "image_url", "image_url": {"url": data_url(RED_28)}}
        with_image = client.post(
            "/tokenize", json={"messages": [{"role": "user", "content": [image]}]}
        )
    assert 163605 not in answer["tokens"]
    assert answer["count"] == len(answer["tokens"])
    assert chat["tokens"][0] == 163587
    assert with_image.status_code == 400


def test_small_routes(server: RunningServer) -> None:
    with server.client() as client:
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/ready").json() == {"ready": True, "workers_ready": 2, "workers": 2}
        assert client.get("/v1/models").json()["data"][0]["object"] == "model"
        metrics = client.get("/metrics").text
        schema = client.get("/openapi.json").json()
    assert 'kimi_serve_workers{state="ready"} 2.0' in metrics
    assert "/v1/preprocess" in schema["paths"]


def test_workers_report_their_own_devices(server: RunningServer) -> None:
    workers = server.workers()
    assert len({worker["pid"] for worker in workers}) == 2
    for worker in workers:
        assert worker["decode_device"] == worker["preprocess_device"] == "cpu"
        assert worker["cuda_visible_devices"] == ""
        assert worker["cuda_libraries"] == []
        assert worker["torch_imported"] is False


def test_the_key_guards_everything_but_the_probes(start: Start) -> None:
    running = start("--api-key", "sesame-sesame").wait_until_serving()
    with running.client() as client:
        assert client.get("/health").status_code == 200
        assert client.get("/ready").status_code == 200
        for path in ("/metrics", "/server_info", "/v1/models", "/openapi.json"):
            refused = client.get(path)
            assert refused.status_code == 401
            assert error_of(refused)["code"] == "invalid_api_key"
        wrong = client.get("/v1/models", headers={"Authorization": "Bearer sesame"})
        right = client.get("/server_info", headers={"Authorization": "Bearer sesame-sesame"})
    assert wrong.status_code == 401
    assert right.status_code == 200
    assert "sesame" not in right.text
    assert running.stop() == 0
    assert "sesame" not in "".join(running.log)


def test_bounds_on_bodies(start: Start) -> None:
    running = start(
        "--server-max-body-bytes", "20000",
        "--server-max-response-bytes", "10000",
        "--media-max-bytes", "1000",
    ).wait_until_serving()  # fmt: skip
    with running.client() as client:
        large = client.post("/v1/preprocess", content=b" " * 30000)
        chunked = client.post("/v1/preprocess", content=iter([b" " * 15000] * 2))
        many = client.post(
            "/v1/preprocess", json={"images": [data_url(DATA / "images" / "13x13.png")] * 4}
        )
        heavy = client.post("/v1/preprocess", json={"images": [data_url(RED_28)]})
    assert large.status_code == chunked.status_code == 413
    assert "server.max_body_bytes" in error_of(large)["message"]
    assert many.status_code == 413
    assert "server.max_response_bytes" in error_of(many)["message"]
    assert heavy.status_code == 413
    assert error_of(heavy)["param"] == "images[0]"


@pytest.mark.parametrize(
    ("dtype", "itemsize", "name"), [("bfloat16", 2, "BF16"), ("uint8", 1, "U8")]
)
def test_other_types(start: Start, dtype: str, itemsize: int, name: str) -> None:
    running = start("--image-dtype", dtype).wait_until_serving()
    body = {"images": [data_url(RED_28)]}
    plain = post(running, body).json()
    assert plain["pixel_values"]["dtype"] == dtype
    assert len(base64.b64decode(plain["pixel_values"]["data"])) == 4 * 588 * itemsize
    tensors = tensors_of(post(running, body, accept="application/vnd.safetensors"))
    assert tensors["pixel_values"]["dtype"] == name


@pytest.mark.parametrize("size", [200_000, 5_000_000, 40_000_000])
def test_a_large_body_gets_its_answer_and_no_reset(start: Start, size: int) -> None:
    running = start("--server-max-body-bytes", "100000").wait_until_serving()
    with running.client() as client:
        response = client.post("/v1/preprocess", content=b" " * size)
    assert response.status_code == 413


def test_answers_that_nobody_reads_are_bounded_and_cut(start: Start) -> None:
    running = start(
        "--server-max-queued-bytes", "60000000", "--server-request-timeout-s", "4"
    ).wait_until_serving()  # fmt: skip
    body = json.dumps({"images": [data_url(DATA / "golden" / "hd_1920x1080.png")]}).encode()
    head = (
        f"POST /v1/preprocess HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    address = httpx.URL(running.url)
    lazy = [socket.create_connection((address.host, address.port or 0)) for _ in range(4)]
    statuses = Counter[int]()
    for connection in lazy:
        connection.sendall(head + body)
        statuses[int(connection.recv(12).split()[1])] += 1
    # 33 MB of base64 an answer: one is held, the others are told to come back.
    assert statuses == {200: 1, 429: 3}

    def held() -> float:
        with running.client() as client:
            metrics = client.get("/metrics").text
        line = next(line for line in metrics.splitlines() if line.startswith("kimi_serve_held_b"))
        return float(line.split()[1])

    wait_until(lambda: held() == 0)
    for connection in lazy:
        connection.close()


def test_accept_is_read_as_http_says(server: RunningServer) -> None:
    body = {"images": [data_url(RED_28)]}
    kinds = {
        accept: post(server, body, accept=accept).headers["content-type"]
        for accept in (
            "*/*",
            "Application/Vnd.Safetensors",
            "application/json, application/vnd.safetensors;q=0",
            "application/vnd.safetensors; q=0.5, application/json;q=0.1",
        )
    }
    assert list(kinds.values()) == [
        "application/json",
        "application/vnd.safetensors",
        "application/json",
        "application/vnd.safetensors",
    ]


@pytest.mark.parametrize("field", ["chat_template", "mm_processor_kwargs", "thinking"])
def test_fields_that_would_change_the_answer_are_not_ignored(
    server: RunningServer, field: str
) -> None:
    response = post(server, {"images": [data_url(RED_28)], field: {"a": 1}})
    assert response.status_code == 422
    assert field in error_of(response)["message"]


def test_a_compressed_body_is_named(server: RunningServer) -> None:
    response = post(server, {"images": []}, **{"content-encoding": "gzip"})
    assert response.status_code == 400
    assert "gzip" in error_of(response)["message"]


def test_a_fault_in_a_chat_has_its_place(server: RunningServer) -> None:
    response = post(server, {"messages": [{"role": "user", "content": [{"type": "imag_url"}]}]})
    assert error_of(response)["param"] == "messages[0].content[0].type"
    response = post(server, [])
    assert error_of(response)["param"] == "body"
