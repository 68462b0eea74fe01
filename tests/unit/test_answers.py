"""Which form of an answer a client asks for."""

from __future__ import annotations

import pytest

from kimi_serve.launcher.front.answers import SAFETENSORS, accepts_safetensors


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        (SAFETENSORS, True),
        ("Application/Vnd.Safetensors", True),
        (f"{SAFETENSORS};q=0", False),
        (f"{SAFETENSORS};q=0.0", False),
        (f"{SAFETENSORS}; q=0.000", False),
        (f"{SAFETENSORS};Q = 0.00", False),
        (f"{SAFETENSORS};q=0.001", True),
        (f"{SAFETENSORS};q=2", True),
        (f"{SAFETENSORS};q=nan", True),
        (f"{SAFETENSORS};version=1;q=0", False),
        (f"application/json, {SAFETENSORS}", True),
        (f"application/json, {SAFETENSORS};q=0.1", False),
        (f"application/json;q=0.5, {SAFETENSORS};q=0.5", True),
        (f"application/json;q=0.1, {SAFETENSORS};q=0.5", True),
        (f"*/*, {SAFETENSORS};q=0.1", True),
    ],
)
def test_safetensors_where_they_are_named_and_json_is_not_preferred(
    accept: str, wanted: bool
) -> None:
    assert accepts_safetensors(accept) == wanted
