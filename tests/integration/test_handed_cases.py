"""Every image, reference and prompt of the collections, over HTTP: the stated outcome, no 500."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pytest
from integration_server import DATA, RunningServer, launch

IMAGES: dict[str, dict[str, Any]] = json.loads((DATA / "images.json").read_text(encoding="utf-8"))
STRINGS: list[dict[str, str]] = json.loads((DATA / "strings.json").read_text(encoding="utf-8"))
PROMPTS: list[dict[str, Any]] = json.loads(
    (DATA / "prompts" / "cases.json").read_text(encoding="utf-8")
)
NOT_LISTABLE = (".ico", ".jp2")
PAD = 163605
# Decoders of lossy formats differ by a level here and there.
MEAN_TOLERANCE = 0.5


@pytest.fixture(scope="module")
def all_formats() -> Iterator[RunningServer]:
    formats = "jpeg,png,webp,gif,bmp,tiff,avif"
    running = launch("--tokenizer-worker-num", "2", "--image-formats", formats)
    yield running.wait_until_serving()
    workers = running.workers()
    assert running.stop() == 0
    assert all(worker["state"] == "ready" for worker in workers)
    assert not any("ended" in line for line in running.log), "a worker died of an image"


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_image(all_formats: RunningServer, name: str) -> None:
    case = IMAGES[name]
    data = base64.b64encode((DATA / "images" / name).read_bytes()).decode()
    with all_formats.client() as client:
        response = client.post("/v1/preprocess", json={"images": [f"data:;base64,{data}"]})
    if name.endswith(NOT_LISTABLE):
        assert response.status_code == 415
    elif case["class"] == "reject" or response.status_code != 200:
        assert case["class"] in ("reject", "ok-or-reject")
        assert response.status_code in (400, 413, 415)
        assert response.json()["error"]["param"] == "images[0]"
    else:
        (image,) = response.json()["images"]
        assert [image["width"], image["height"]] == case["size"]
        assert image["resized"] == case["navit"]["resize"]
        assert image["num_tokens"] == case["navit"]["tokens"]
        assert response.json()["grid_thws"] == [case["navit"]["grid_thw"]]
        if image["resized"] == case["size"]:
            assert _mean(response.json()) == pytest.approx(case["mean"], abs=MEAN_TOLERANCE)


def _mean(answer: dict[str, Any]) -> list[float]:
    """Give red, green and blue on average, 0 to 255, of an unresized image; no padding counts."""
    (image,), (grid,), tensor = answer["images"], answer["grid_thws"], answer["pixel_values"]
    assert tensor["dtype"] == "float32"
    values = np.frombuffer(base64.b64decode(tensor["data"]), "<f4").reshape(tensor["shape"])
    _, rows, columns = grid
    _, channels, patch, _ = values.shape
    canvas = values.reshape(rows, columns, channels, patch, patch).transpose(0, 3, 1, 4, 2)
    canvas = canvas.reshape(rows * patch, columns * patch, channels)
    width, height = image["resized"]
    # The demo checkpoint has a mean and a standard deviation of one half.
    levels = (canvas[:height, :width].astype(np.float64) * 0.5 + 0.5) * 255
    assert np.allclose(levels, levels.round(), atol=1e-3)
    return [float(level) for level in levels.mean(axis=(0, 1))]


@pytest.mark.parametrize("case", STRINGS, ids=[case["name"] for case in STRINGS])
def test_reference(all_formats: RunningServer, case: dict[str, str]) -> None:
    reference = case["input"].replace("{cases}", str(DATA))
    with all_formats.client() as client:
        response = client.post("/v1/preprocess", json={"images": [reference]})
    assert response.status_code == (200 if case["required"] == "accept" else 400), response.text
    if response.status_code == 400:
        message = response.json()["error"]["message"]
        assert str(DATA) not in message
        assert len(message) < 600


@pytest.mark.parametrize("case", PROMPTS, ids=[case["name"] for case in PROMPTS])
def test_prompt(all_formats: RunningServer, case: dict[str, Any]) -> None:
    picture = base64.b64encode((DATA / "images" / "57x29.png").read_bytes()).decode()
    content: Any = json.loads(
        json.dumps(case["content"]).replace("file:", f"data:;base64,{picture}#")
    )
    content = _without_names(content)
    role = "user"
    if case["name"] == "image_in_tool_result":
        role = "tool"
        content = [{"type": "image_url", "image_url": {"url": f"data:;base64,{picture}"}}]
    with all_formats.client() as client:
        response = client.post(
            "/v1/preprocess", json={"messages": [{"role": role, "content": content}]}
        )
    if case["name"] == "unknown_part":
        assert response.status_code == 400
        return
    assert response.status_code == 200, response.text
    answer = response.json()
    if case["expected_images"] is not None:
        assert len(answer["images"]) == case["expected_images"]
    assert answer["input_ids"].count(PAD) == answer["usage"]["image_tokens"]
    assert answer["usage"]["image_tokens"] == 6 * len(answer["images"])


def _without_names(value: Any) -> Any:
    """Cut the file name that the collection puts after the scheme."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: _without_names(item) for key, item in entries.items()}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_without_names(item) for item in items]
    if isinstance(value, str) and value.startswith("data:;base64,"):
        return value.partition("#")[0]
    return value
