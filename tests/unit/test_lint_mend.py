"""Safe fixes: what they write, and that every other byte stays."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_serve.launcher.lint.mend import apply_fixes, mend
from kimi_serve.launcher.lint.mending import STDIN
from kimi_serve.launcher.lint.patch import make_patch
from kimi_serve.launcher.lint.run import lint_profile
from kimi_serve.launcher.secrets.known import Known
from kimi_serve.schemas.findings import Edit, Finding, Fix


def lint(data: bytes) -> tuple[Finding, ...]:
    return lint_profile(data, name="p.yaml", folder=Path("/deploy")).written


def fixed(text: str) -> str:
    return mend(text.encode(), "p.yaml", lint).decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("engine: {version: 0.10}\n", 'engine: {version: "0.10"}\n'),
        ("model: {trust_remote_code: on}\n", "model: {trust_remote_code: true}\n"),
        ("tokenizer: {skip_init: No} # x\r\n", "tokenizer: {skip_init: false} # x\r\n"),
        ("server: # none\nlog: {level: info}\n", "server: {} # none\nlog: {level: info}\n"),
        ("server: ~\n", "server: {}\n"),
        ("engine: {args: '--port 1'}\n", 'engine: {args: ["--port", "1"]}\n'),
        ("ser\u200bver: {port: 1}\n", "server: {port: 1}\n"),
        ("log: {level: in\u200bf\u200bo}\n", "log: {level: info}\n"),
        ("log: {level: info} # kimi-serve: ignore[KS201] x\n", "log: {level: info}\n"),
        ("# kimi-serve: ignore[KS201] x\r\nlog: {level: info}", "log: {level: info}"),
        (
            "log: {levl: 1} # kimi-serve: ignore[KS101, KS201] x\n",
            "log: {levl: 1} # kimi-serve: ignore[KS101] x\n",
        ),
    ],
)
def test_safe_fixes(before: str, after: str) -> None:
    assert fixed(before) == after
    assert fixed(f"\ufeff{before}") == f"\ufeff{after}"
    assert fixed(after) == after


@pytest.mark.parametrize(
    "text",
    [
        "log: {levl: info}\n",
        "server: {port: 010}\n",
        "{server}\n",
        "log: [\n",
        "log: {level: off}\n",
        "log: {level: info} # a\u2028b\n",
        *(
            f"engine: {{args: {json.dumps(line)}}}\n"
            for line in (
                "--served-model-name $NAME",
                "--chat-template ~/t.jinja",
                "--port 1; echo",
                "--port 1 | cat",
                "--port 1 && ls",
                "--port 1 > log",
                "--config < x",
                "--port `cat p`",
                "--name a\\ b",
                "--name 'open",
                "python -m sglang.launch_server --port 1",
                "sglang serve --port 1",
                "vllm serve m --port 1",
                "PORT=1 --port 1",
            )
        ),
    ],
)
def test_what_is_not_safe_stays(text: str) -> None:
    assert fixed(text) == text


def test_a_rename_is_offered_as_unsafe() -> None:
    (found,) = [item for item in lint(b"log: {levl: info}\n") if item.rule == "KS101"]
    assert found.fix == Fix("unsafe", (Edit("p.yaml", 1, 7, 11, "level"),))


def test_overlapping_edits_wait() -> None:
    first = Fix("safe", (Edit("p", 1, 1, 4, "x"),))
    second = Fix("safe", (Edit("p", 1, 3, 5, "y"), Edit("p", 1, 6, 7, "z")))
    assert apply_fixes(b"abcdefg", [first, second]) == b"xdefg"


def test_the_diff_shows_no_secret() -> None:
    before = b"server: {api_key: sk-EXAMPLEEXAMPLE}\nlog:\n"
    patch = make_patch(before, before.replace(b"log:", b"log: {}"), STDIN, Known())
    assert b"+log: {}" in patch.data
    assert b"EXAMPLE" not in patch.data
    assert patch.num_left_out == 0


WORDS = ["log", "server", "model", "on", "off", "0.10", ": ", " ", "\n", "  ", "{", "}", "# x"]
PIECES = st.sampled_from([*WORDS, "\u200b", "\u00a0", "\r\n", "version", "engine", "kind", "'"])


@given(st.lists(PIECES, max_size=25).map("".join))
def test_mending_ends_and_never_breaks_what_was_readable(text: str) -> None:
    data = text.encode()
    after = mend(data, "p.yaml", lint)
    assert mend(after, "p.yaml", lint) == after
    if not any(found.rule == "KS001" for found in lint(data)):
        assert not any(found.rule == "KS001" for found in lint(after))
