"""Secrets without the form of an issuer: in queries, and logins without a scheme."""

from __future__ import annotations

import pytest

from kimi_serve.launcher.secrets.names import meant_variable
from kimi_serve.launcher.secrets.shapes import mask


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://cdn.example.org/x?token=hunter2", "https://cdn.example.org/x?token=***"),
        ("'/x?a=1&api_key=hunter2&b=2' is", "'/x?a=1&api_key=***&b=2' is"),
        ("https://s3/x?X-Amz-Signature=0a1b", "https://s3/x?X-Amz-Signature=***"),
        ("https://blob/x?sv=1&sig=0a1b#top", "https://blob/x?sv=1&sig=***#top"),
        ("'user:hunter2@host:1' in", "'user:***@host:1' in"),
        ("user:hunter2@host", "user:***@host"),
        ("http://user:hunter2@host/x", "http://***@host/x"),
    ],
)
def test_hidden(text: str, shown: str) -> None:
    assert mask(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "https://cdn.example.org/x?width=4&max_tokens=3",
        "https://cdn.example.org/x?token=${TOKEN}",
        "image:v1@sha256:0123456789abcdef",
        "git@github.com:org/name",
        "profile.yaml:3:3: error KS101",
        "me@example.org: hello",
    ],
)
def test_shown(text: str) -> None:
    assert mask(text) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("$KIMI_KEY", "KIMI_KEY"),
        ("${KIMI_KEY}", "KIMI_KEY"),
        ("%KIMI_KEY%", "KIMI_KEY"),
        ("KIMI-KEY", "KIMI_KEY"),
        ("HF TOKEN", "HF_TOKEN"),
        ("correct-horse", ""),
        ("AB12-CD34-EF56", ""),
        ("$hunter2", ""),
        ("sk-EXAMPLEEXAMPLE", ""),
    ],
)
def test_the_variable_that_was_meant(text: str, name: str) -> None:
    assert meant_variable(text) == name
