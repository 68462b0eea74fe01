"""What lint calls a secret: all that plan hides, less what may be none."""

from __future__ import annotations

import pytest

from kimi_serve.launcher.secrets.literal import literals_of_items, literals_of_variable
from kimi_serve.launcher.secrets.places import find_places
from kimi_serve.launcher.secrets.shapes import cover, merged
from kimi_serve.launcher.secrets.trees import redacted


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("PGPASSWORD", "hunter2"),
        ("MY_PASSPHRASE", "abc"),
        ("DB_PASS", "hunter2"),
        ("A", "glpat-abcdefgh1234"),
        ("A", "nvapi-abcdefgh1234"),
        ("A", "Authorization: Bearer abcdef123456"),
        ("A", '{"x": [{"token": "hf_AbCdEfGh12"}]}'),
        ("A", "http://me:pw@${PROXY}:1"),
        ("TOKEN_URL", "https://me:pw@host/x"),
        ("A", "https://ghp_abcdefgh12@host/x"),
    ],
)
def test_a_variable_that_holds_a_secret(name: str, text: str) -> None:
    assert literals_of_variable(name, text)
    assert redacted({name: text}) != {name: text}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
        ("MY_TOKEN", "/run/secrets/token"),
        ("SECRET_PROVIDER", "vault"),
        ("MY_TOKEN", ""),
        ("MY_TOKEN", "${OTHER}"),
        ("MY_TOKEN", "pre-${OTHER}"),
        ("MY_TOKEN", "***"),
        ("HF_TOKEN_PATH", "cache/token"),
        ("API_KEY_FILE", "keys.txt"),
        ("AUTH_TYPE", "oidc"),
        ("SECRET_NAME", "kimi-secrets"),
        ("EOS_TOKEN", "</s>"),
        ("TOOL_CALL_START_TOKEN", "<tool>"),
        ("PARTITION_KEY", "day"),
        ("TOKENIZERS_PARALLELISM", "false"),
        ("A", "https://git@github.com/x"),
        ("A", '{"eos_token_id": 163586}'),
    ],
)
def test_a_variable_that_holds_none(name: str, text: str) -> None:
    assert not literals_of_variable(name, text)


def test_the_engine_may_know_that_a_variable_is_secret() -> None:
    assert literals_of_variable("A", "abc", is_secret=True) == {"abc"}
    assert not literals_of_variable("A", "abc")
    assert not literals_of_variable("A", "/a/b", is_secret=True)


@pytest.mark.parametrize(
    ("items", "places"),
    [
        (["--api-key", "abc", "--tp", "8"], [1]),
        (["--api-key", "abc", "def", "--tp", "8"], [1, 2]),
        (["--api-ke=abc", "def"], [0]),
        (["--hf-token", "abc", "def"], [1]),
        (["--unknown-password", "abc"], [1]),
        (["--mm-process-config", '{"api_key": "abc"}'], [1]),
        (["glpat-abcdefgh1234"], [0]),
        (["--api-key", "${KEY}", "--hf-token", "x-${TOK}", "--admin-api-key=${A}"], []),
        (["--api-key-file", "keys.txt", "--token-url=a/b"], []),
        (["--api-key-file", "sk-abcdefgh1234"], [1]),
        (["--api-key", "--tp", "8"], []),
    ],
)
def test_items_of_a_command_line(items: list[str], places: list[int]) -> None:
    found = [place for place, secrets in enumerate(literals_of_items(items)) if secrets]
    assert found == places


def test_each_of_several_keys_is_hidden() -> None:
    items = ["--api-key", "onekey", "twokey", "--served-model-name", "abc"]
    assert redacted(items) == ["--api-key", "***", "***", "--served-model-name", "abc"]
    text = f"engine: {{args: [{', '.join(items)}]}}\n"
    places = find_places(text)
    assert {"onekey", "twokey"} <= places.values
    hidden = cover(text, merged(places.ranges))
    assert hidden == "engine: {args: [--api-key, ***, ***, --served-model-name, abc]}\n"
