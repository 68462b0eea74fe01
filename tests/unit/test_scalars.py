"""Text of variables and flags to typed values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr
from source_findings import everything

from kimi_serve.launcher.sources.layers import UNSET, Notes
from kimi_serve.launcher.sources.paths import Surroundings
from kimi_serve.launcher.sources.scalars import read_text
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.provenance import Origin

FIELDS = setting_fields()
PLACE = Surroundings("/start", {})


def take(path: str, text: str) -> Any:
    """Give the checked value, or "KSnnn message" of the refusal."""
    notes = Notes.on(Origin("env", FIELDS[path].env_name))
    leaf = read_text(FIELDS[path], text, Origin("env", "X"), PLACE, notes)
    if notes.findings:
        (found,) = notes.findings
        return f"{found.rule} {found.message}"
    return UNSET if leaf is None else leaf.value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True), ("0", False), ("true", True), ("False", False), ("YES", True), ("no", False),
        ("y", True), ("N", False), ("on", True), ("off", False), ("t", True), ("F", False),
        (" true ", True), ("\ttrue\n", True), ("", UNSET), ("  ", UNSET),
    ],
)  # fmt: skip
def test_boolean_words(text: str, value: object) -> None:
    assert take("image.force_cpu_preprocessing", text) == value


@pytest.mark.parametrize("text", ["ture", "2", "enabled", "none", "-1", "1.0", "true false"])
def test_other_words_are_no_booleans(text: str) -> None:
    said = take("image.force_cpu_preprocessing", text)
    assert said == f"KS104 `image.force_cpu_preprocessing` must be true or false, not {text!r}"


@pytest.mark.parametrize(
    ("path", "text", "odd"),
    [
        ("image.force_cpu_preprocessing", "true\u00a0", "U+00A0 (no-break space) at index 4"),
        ("image.force_cpu_preprocessing", " 1\u00a0", "U+00A0 (no-break space) at index 2"),
        ("server.port", "80\u200b80", "U+200B (zero width space) at index 2"),
        ("server.port", "\u201c80\u201d", "U+201C (left double quotation mark) at index 0"),
        ("server.port", "\u22121", "U+2212 (minus sign) at index 0"),
        ("server.port", "\uff18\uff10", "U+FF18 (fullwidth digit eight) at index 0"),
        ("server.host", "127.0.0.1\u00a0", "U+00A0 (no-break space) at index 9"),
        ("model.served_name", "\u201ckimi\u201d", "U+201C (left double quotation mark) at index 0"),
        ("engine.args", "--tp,\u2013-pp", "U+2013 (en dash) at index 0"),
        ("log.level", "info\u2060", "U+2060 (word joiner) at index 4"),
        ("server.api_key", "sesame\u00a0", "U+00A0 (no-break space) at index 6"),
    ],
)
def test_pasted_characters_are_named(path: str, text: str, odd: str) -> None:
    said = take(path, text)
    assert said.startswith("KS006 ")
    assert said.endswith(odd)
    assert "sesame" not in said


def test_typography_inside_free_text_is_legitimate() -> None:
    assert take("model.served_name", "Kimi \u2013 the \u201cnew\u201d one") == (
        "Kimi \u2013 the \u201cnew\u201d one"
    )


@pytest.mark.parametrize(
    ("path", "text", "value"),
    [
        ("server.port", " 8080 ", 8080),
        ("server.port", "+80", 80),
        ("media.timeout_s", "1e1", 10.0),
        ("media.timeout_s", "3", 3.0),
        ("media.timeout_s", ".5", 0.5),
        ("log.level", "WARNING", "warning"),
        ("image.formats", "JPEG, png", ("jpeg", "png")),
        ("image.formats", '["jpeg"]', ("jpeg",)),
        ("media.allowed_domains", "a.com,b.com", ("a.com", "b.com")),
        ("media.allowed_domains", "[]", ()),
        ("gpu.ids", "[0, 1]", ("0", "1")),
        ("engine.args", '["--a", "{\\"b\\": [1, 2]}"]', ("--a", '{"b": [1, 2]}')),
        ("engine.env", '{"A": "1"}', {"A": "1"}),
        ("model.path", "./k", "/start/k"),
        ("model.path", "org/name", "org/name"),
        ("media.allowed_local_dirs", "a,/b", ("/start/a", "/b")),
        ("server.api_key", " key ", SecretStr("key")),
    ],
)
def test_values(path: str, text: str, value: object) -> None:
    assert take(path, text) == value


@pytest.mark.parametrize(
    ("path", "text", "part"),
    [
        ("server.port", "1_000", "must be a whole number from 0 to 65535, not '1_000'"),
        ("server.port", "08080", "not '08080'"),
        ("server.port", "8.0", "not '8.0'"),
        ("server.port", "0x10", "not '0x10'"),
        ("server.port", "\u0663", "not '\u0663'"),
        ("server.port", "70000", "must be a whole number from 0 to 65535, not '70000'"),
        ("server.port", "9" * 5000, "must be a whole number from 0 to 65535, not '9999"),
        ("media.timeout_s", "nan", "must be a number above 0 and at most 3600, not 'nan'"),
        ("media.timeout_s", "1e999", "above 0 and at most 3600"),
        ("media.timeout_s", "0", "above 0 and at most 3600"),
        ("log.level", "off", "must be one of debug, info, warning, error, not 'off'"),
        ("image.formats", "jpeg,pmg", "must be a list of jpeg"),
        ("image.formats", "[]", "with at least one item, not '[]'"),
        ("image.formats", "[1", "is not JSON"),
        ("media.allowed_domains", "a,,b", "an empty item is not text"),
        ("media.allowed_domains", "[true]", "the item true is not text"),
        ("media.allowed_domains", "[" * 100_000, "nested too deeply"),
        ("engine.env", "A=1", "is not JSON"),
        ("engine.env", "[]", "must be a mapping of names to texts"),
        ("engine.env", '{"A": 1}', "the value of 'A' is no text"),
        ("engine.env", '{"A": "1", "A": "2"}', "the key 'A' is there twice"),
        ("model.served_name", "a\udc80", "is not valid text"),
        ("image.background", "mauve", "'mauve' is not a colour"),
    ],
)
def test_refusals_say_what_is_allowed(path: str, text: str, part: str) -> None:
    said = take(path, text)
    assert said.startswith("KS104 ")
    assert path in said
    assert part in said
    assert "pydantic" not in said
    assert len(said) < 400


@given(st.sampled_from(sorted(FIELDS)), st.text(max_size=40))
def test_any_text_is_taken_or_refused(path: str, text: str) -> None:
    said = take(path, text)
    if isinstance(said, str) and said.startswith("KS"):
        assert said[:6] in ("KS006 ", "KS104 ") or said == text.strip()


@given(st.text(min_size=1, max_size=30))
def test_no_message_holds_a_secret(tail: str) -> None:
    secret = f"hunter2{tail}"
    notes = Notes.on(Origin("env", "KEY"))
    leaf = read_text(FIELDS["server.api_key"], secret, Origin("env", "KEY"), PLACE, notes)
    assert "hunter2" not in everything(notes.findings) + repr(leaf)
