"""schemathesis takes the OpenAPI document at its word, against a real server."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from integration_server import DATA, RunningServer, launch

schemathesis: Any = pytest.importorskip("schemathesis", reason="is in the check group only")

KEY = "sesame-sesame"
PICTURES = ("golden/exact_28x28.png", "golden/odd_27x29.png", "images/57x29.png")
OPERATIONS = [
    ("POST", "/v1/preprocess"),
    ("POST", "/tokenize"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/metrics"),
    ("GET", "/v1/models"),
    ("GET", "/server_info"),
]
# The others take nothing that could be wrong.
CASES = [
    *((method, path, "positive") for method, path in OPERATIONS),
    *((method, path, "negative") for method, path in OPERATIONS if method == "POST"),
]


def data_urls() -> list[str]:
    bodies = [base64.b64encode((DATA / name).read_bytes()).decode() for name in PICTURES]
    return [f"data:image/png;base64,{body}" for body in bodies]


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    """A server with a key: 401 is one of the documented answers."""
    running = launch("--tokenizer-worker-num", "2", "--api-key", KEY)
    yield running.wait_until_serving()
    assert running.stop() == 0
    log = "".join(running.log)
    assert "unexpected error" not in log
    assert "internal error" not in log


@pytest.fixture(scope="module")
def schema(guarded: RunningServer) -> Any:
    # Texts that the schema cannot describe: what an image is, only a decoder knows.
    schemathesis.openapi.format("image-reference", st.sampled_from(data_urls()))
    return schemathesis.openapi.from_url(
        f"{guarded.url}/openapi.json", headers={"Authorization": f"Bearer {KEY}"}
    )


def test_every_route_is_tried(schema: Any) -> None:
    found = {(each.ok().method.upper(), each.ok().path) for each in schema.get_all_operations()}
    assert found == set(OPERATIONS)


@pytest.mark.filterwarnings("ignore")  # of the tool's own imports
@pytest.mark.parametrize(("method", "path", "mode"), CASES, ids=lambda part: part)
def test_answers_are_what_the_document_says(schema: Any, method: str, path: str, mode: str) -> None:
    operation = schema[path][method]
    kind = schemathesis.GenerationMode(mode)
    count = 40 if method == "POST" else 4

    @given(case=operation.as_strategy(generation_mode=kind))
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    def ask(case: Any) -> None:
        case.call_and_validate(headers={"Authorization": f"Bearer {KEY}"}, timeout=20)

    ask()
