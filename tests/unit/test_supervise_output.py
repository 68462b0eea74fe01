"""Levels, cuts and secrets in what an engine writes."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kimi_serve.launcher.supervise.cleaning import MAX_LINE, Cleaner, LineSplitter
from kimi_serve.launcher.supervise.line_levels import LineLevels

D, I, W, E, C = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL  # noqa: E741


@pytest.mark.parametrize(
    "lines",
    [
        [("(APIServer pid=1) INFO 11-29 17:00:00 [x.py:1] m", I)],
        [("(EngineCore_DP0 pid=12) ERROR 11-29 17:00:00 [core.py:1] m", E)],
        [("WARNING 11-29 17:00:00 [x.py:1] m", W), ("DEBUG 11-29 17:00:00 [x.py:1] m", D)],
        [("INFO:     Started server process [1]", I), ("WARNING:  m", W), ("ERROR:    m", E)],
        [("[2026-01-01 00:00:00 TP0] m", I), ("[2026-01-01 00:00:00] WARNING: m", W)],
        [("[WARNING] granian", W), ("CRITICAL:root:m", C)],
        [("2026-01-01 00:00:00.000 | WARNING  | a:b:1 - m", W)],
        [("2026-01-01 00:00:00,123 - ERROR - m", E)],
        [("[rank0]:[W1129 17:00:00.000 x.cpp:1] m", W), ("E1129 17:00:00.1 1 x.cc:1] m", E)],
        [("host:12:34 [0] NCCL WARN m", W), ("host:12:34 [0] NCCL INFO m", I)],
        [("/a/b.py:12: UserWarning: Invalid value", W), ("  warnings.warn(", W), ("plain", I)],
        [
            ("Traceback (most recent call last):", E),
            ('  File "x"', E),
            ("", E),
            ("ValueError: x", E),
            ("", E),
            ("During handling of the above exception, another exception occurred:", E),
            ("", E),
            ("Traceback (most recent call last):", E),
            ("  File", E),
            ("[2026-01-01 00:00:00] another process", I),
            ("    line", E),
            ("RuntimeError", E),
            ("plain", I),
            ("  deeper", I),
        ],
        [
            ("[2026-01-01 00:00:00 TP0] hit an exception: Traceback (most recent call last):", E),
            ("  File", E),
            ("KeyError: 1", E),
        ],
        [
            ("(Worker pid=1) Traceback (most recent call last):", E),
            ("(APIServer pid=2) plain", I),
            ("(Worker pid=1)   File", E),
            ("(Worker pid=1) KeyError: 1", E),
            ("(Worker pid=1) plain", I),
        ],
        [("ERROR:    Exception in ASGI application", E), ("  + Exception Group", E), ("x", I)],
    ],
)
def test_levels(lines: list[tuple[str, int]]) -> None:
    levels = LineLevels()
    assert [(line, levels.level(line)) for line, _ in lines] == lines


def split(*chunks: bytes, secrets: tuple[str, ...] = ()) -> list[str]:
    splitter = LineSplitter(Cleaner(secrets))
    lines = [line for chunk in chunks for line in splitter.feed(chunk)]
    return [line for line in (*lines, splitter.finish()) if line]


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ((b"a\nb\r", b"\nc"), ["a", "b", "c"]),
        ((b"10%\r20%\r\r\n",), ["10%", "20%"]),
        ((b"\x1b[31mred\x1b[0m \x1b]0;title\x07x\tt",), ["red x\tt"]),
        ((b"n\0l \xff \xe2\x80\xa8",), ["n\\x00l \ufffd \\u2028"]),
        ((b"x" * MAX_LINE,), ["x" * MAX_LINE]),
        ((b"x" * MAX_LINE, b"y" * 10), ["x" * MAX_LINE + " [10 more bytes]"]),
    ],
)
def test_lines(chunks: tuple[bytes, ...], lines: list[str]) -> None:
    assert split(*chunks) == lines


@pytest.mark.parametrize(
    "text",
    ["key='{}'", '{{"key": "{}"}}', "http://u:{}@h", "{}{}", "\x1b[1m{}\x1b[0m"],
)
@pytest.mark.parametrize("secret", ["sk-012345", "q\"uo'te\\", "gehe\u00efm", "a b/c"])
def test_secrets_are_covered(text: str, secret: str) -> None:
    (line,) = split(text.format(secret, secret).encode(), secrets=(secret,))
    assert secret not in line
    assert "***" in line


def test_a_secret_within_another_is_covered_whole() -> None:
    assert split(b"abcdef", secrets=("abc", "abcdef")) == ["***"]


def test_spellings_of_a_secret() -> None:
    secret = "a'\"\\ \u00ef"
    for spelt in (repr(secret), '"a\'\\"\\\\ \\u00ef"', "a%27%22%5C%20%C3%AF"):
        (line,) = split(spelt.encode(), secrets=(secret,))
        assert "***" in line, line


@given(
    st.integers(0, 40), st.integers(1, 40), st.integers(0, 3), st.sampled_from([b"", b"\x1b[0m"])
)
def test_no_cut_shows_a_part_of_a_secret(
    before: int, chunk: int, copies: int, colour: bytes
) -> None:
    secret = "SECRET-0123456789"
    text = colour * 50 + b"x" * (MAX_LINE - 350 + 8 * before) + secret.encode() * copies + b"z" * 99
    chunks = [text[start : start + chunk * 97] for start in range(0, len(text), chunk * 97)]
    (line,) = split(*chunks, secrets=(secret,))
    assert "SECRET" not in line
    assert "456789" not in line
