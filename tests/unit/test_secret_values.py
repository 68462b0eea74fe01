"""Which texts are secrets, how they are covered, and what stays readable."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_serve.launcher.secrets.known import Known
from kimi_serve.launcher.secrets.shapes import cover, mask, secrets_in
from kimi_serve.launcher.secrets.trees import redacted, secrets_of

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("the key is sk-abcdefgh1234", "the key is ***"),
        ("hf_AbCdEfGh12 and ghp_abcdefgh12", "*** and ***"),
        ("AKIAIOSFODNN7EXAMPLE", "***"),
        ("from https://me:pw@host/x", "from https://***@host/x"),
        ("Authorization: Bearer abc123def456", "Authorization: Bearer ***"),
        ("--api-key=x, then", "--api-key=***, then"),
        (f"before {PEM} after", "before *** after"),
        ("eyJhbGciOiJI.eyJzdWIiOiIx.abc", "***"),
    ],
)
def test_a_shape_is_masked_anywhere(text: str, masked: str) -> None:
    assert mask(text) == masked
    assert cover(text, secrets_in(text)).count("***") >= masked.count("***")


@pytest.mark.parametrize(
    "text",
    [
        "unknown key disk-offloading, risk-management",
        "--api-key needs a value; basic configuration",
        "HF_HUB_ENABLE_HF_TRANSFER and hf_overrides, hf_transfer",
        "write server.api_key: {env: NAME} instead",
        "https://host:8080/a and user@host",
        "--max-total-tokens=4096 --tokenizer-path=/models/k2",
        "asia-northeast1-docker.pkg.dev/x",
        'write "${HF_TOKEN}" or --api-key=${KEY}',
    ],
)
def test_sentences_stay(text: str) -> None:
    assert mask(text) == text
    assert Known().hide(text) == text


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (["--api-key", "x1", "--tp", "8"], ["--api-key", "***", "--tp", "8"]),
        (["--api-key", "--tp", "8"], ["--api-key", "--tp", "8"]),
        (["--api-key=x1", "--max-tokens", "4"], ["--api-key=***", "--max-tokens", "4"]),
        (["--ssl-keyfile", "/a/b.pem"], ["--ssl-keyfile", "/a/b.pem"]),
        (["--max-total-tokens", "4096"], ["--max-total-tokens", "4096"]),
        (['{"api_key": "x1", "n": 1}'], ['{"api_key": "***", "n": 1}']),
        (['{"auth": {"a": "x1"}, "tokens": 5}'], ['{"auth": {"a": "***"}, "tokens": 5}']),
        (["--header", "Authorization: Bearer abc"], ["--header", "Authorization: Bearer ***"]),
        ({"A": "http://u:p@h", "B": "b"}, {"A": "***", "B": "b"}),
        ({"HF_TOKEN": "x1", "TOKENIZERS_PARALLELISM": "false"},
         {"HF_TOKEN": "***", "TOKENIZERS_PARALLELISM": "false"}),
        ([{"name": "HF_TOKEN", "value": "x1"}], [{"name": "HF_TOKEN", "value": "***"}]),
        ({"HF_TOKEN": "${HF_TOKEN}"}, {"HF_TOKEN": "${HF_TOKEN}"}),
        ("https://u:p@h/x", "https://***@h/x"),
        ([1, None, True], [1, None, True]),
    ],
)  # fmt: skip
def test_values_are_redacted(value: Any, shown: Any) -> None:
    assert redacted(value) == shown


def test_the_secrets_of_a_value() -> None:
    found = secrets_of({"HF_TOKEN": "one1", "P": "http://u:two2@h", "J": '{"key": "three\\u0033"}'})
    assert {"one1", "two2", "three3"} <= found
    assert "u" not in found


def test_a_known_secret_is_hidden_in_every_spelling() -> None:
    secret = 'hun"ter\\2\u200bX'
    known = Known([secret])
    for text in (secret, repr(secret), json.dumps(secret), f"a {secret} b"):
        assert "ter" not in known.hide(text), text


def test_a_short_secret_is_no_part_of_a_word() -> None:
    known = Known(["1", "no", "prod", "EMPTY", "token"])
    assert known.hide("no 1 of products") == "no 1 of products"
    assert known.hide("is 'prod', not production") == "is '***', not production"
    assert known.hide("--hf-token EMPTY") == "--hf-token EMPTY"


def test_words_of_our_own_stay() -> None:
    known = Known(["worker_num", "display", "sglang", "true", "30000"])
    text = "worker_num of sglang is true on 30000, display"
    assert known.hide(text) == text


def test_the_beginning_of_a_secret_is_hidden_where_a_text_is_cut() -> None:
    known = Known(["hunter2hunter2"])
    assert known.hide("'xxxx hunter2h'... is long") == "'xxxx ***'... is long"
    assert known.hide("and so on...") == "and so on..."


@given(st.text(), st.text(min_size=8).map(str.strip).filter(lambda secret: len(secret) >= 8))
def test_a_known_secret_is_in_no_text(around: str, secret: str) -> None:
    known = Known([secret])
    if known:
        assert secret not in known.hide(f"{around}{secret}{around}").replace("***", "\0")


@given(st.text())
def test_masking_twice_changes_nothing(text: str) -> None:
    assert mask(mask(text)) == mask(text)
