"""The positioned YAML tree: what is accepted, what is refused where."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kimi_serve.launcher.sources import yaml_tree
from kimi_serve.launcher.sources.layers import Notes, Span
from kimi_serve.launcher.sources.yaml_nodes import (
    Broken,
    Items,
    Node,
    Scalar,
    Table,
    is_old_number,
    old_bool,
    scalar_kind,
)
from kimi_serve.launcher.sources.yaml_tree import MAX_BYTES, parse_yaml
from kimi_serve.schemas.provenance import Origin


def parse(data: str | bytes) -> tuple[Node | None, list[str]]:
    notes = Notes(_place)
    root = parse_yaml(data, notes)
    return root, [
        f"{found.rule} {found.origin.line}:{found.origin.column}-{found.origin.end_column}"
        for found in notes.findings
    ]


def _place(span: Span | None) -> Origin:
    assert span is not None
    return Origin("profile", "p", span.line, span.column, span.end_column)


@pytest.fixture(params=["fast", "pure"], autouse=True)
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run everything on both parsers of PyYAML."""
    if request.param == "pure":
        monkeypatch.setattr(yaml_tree, "LOADER", yaml.SafeLoader)
    elif not hasattr(yaml, "CSafeLoader"):
        pytest.skip("PyYAML was built without libyaml")


def test_positions_count_code_points_from_one_and_end_exclusive() -> None:
    root, findings = parse("a: 1\n'b\U0001f600': {c: \"x y\", d: [e, 'f']}\n")
    assert findings == []
    assert isinstance(root, Table)
    (a, one), (b, table) = root.entries
    assert (a.span, one.span) == (Span(1, 1, 2), Span(1, 4, 5))
    assert b.span == Span(2, 1, 5)
    assert isinstance(table, Table)
    assert table.span == Span(2, 7, 30)
    (_, text), (_, items) = table.entries
    assert text == Scalar("x y", False, Span(2, 11, 16))
    assert isinstance(items, Items)
    assert [item.span for item in items.items] == [Span(2, 22, 23), Span(2, 25, 28)]


def test_both_halves_of_a_repeated_key_are_kept() -> None:
    root, findings = parse("a: 1\na: 2\n")
    assert findings == []
    assert isinstance(root, Table)
    assert [key.text for key, _ in root.entries] == ["a", "a"]


@pytest.mark.parametrize("data", ["", "# nothing\n", "---\n", "\ufeff", b"\xef\xbb\xbf# x"])
def test_nothing_is_no_error(data: str | bytes) -> None:
    root, findings = parse(data)
    assert findings == []
    assert root is None or (isinstance(root, Scalar) and root.text == "")


def test_byte_order_mark_and_crlf_leave_positions_alone() -> None:
    root, findings = parse(b"\xef\xbb\xbfa: 1\r\nb: 2\r\n")
    assert findings == []
    assert isinstance(root, Table)
    assert [value.span for _, value in root.entries] == [Span(1, 4, 5), Span(2, 4, 5)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"name: caf\xe9\n", ["KS001 1:10-11"]),
        (b"a: 1\nb: \xff\n", ["KS001 2:4-5"]),
        ("a: 1".encode("utf-16"), ["KS001 1:1-2"]),
        ("image:\n\tmax_pixels: 1\n", ["KS001 2:1-2"]),
        ("a: 'x\nb: 1\n", ["KS001 1:4-5"]),
        ("a: [1, 2\n", ["KS001 1:4-5"]),
        ("a: b: c\n", ["KS001 1:5-6"]),
        ("a: @x\n", ["KS001 1:4-5"]),
        ("a: {b: ${X}}\n", ["KS001 1:8-9"]),
        ("a: 1\n---\nb: 2\n", ["KS002 2:1-4"]),
        ("a: &x 1\n", ["KS001 1:4-6"]),
        ("a: *x\n", ["KS001 1:4-6"]),
        ("a: !!python/object/apply:os.getpid []\n", ["KS001 1:4-35"]),
        ("a: !!int '3'\n", ["KS001 1:4-9"]),
        ("a: ! x\n", ["KS001 1:4-5"]),
        ("<<: {a: 1}\n", ["KS001 1:1-3"]),
        ("1: a\ntrue: b\n~: e\n", ["KS101 1:1-2", "KS101 2:1-5", "KS101 3:1-2"]),
        ("? [c]\n: d\n", ["KS101 1:3-6"]),
        ("a: \x07\n", ["KS006 1:4-5"]),
        ("a: \ufeffb\n", ["KS006 1:4-5"]),
        ("a: \ud800\n", ["KS006 1:4-5"]),
        ("a: [\n\u00a0", ["KS001 1:4-5", "KS006 2:1-2"]),
        ("x" * (MAX_BYTES + 1), ["KS001 1:1-2"]),
        ("a: " + "[" * 50, ["KS001 1:23-24"]),
        ("- " * 900, ["KS001 1:41-42"]),
    ],
)  # fmt: skip
def test_refused_at(data: str | bytes, expected: list[str]) -> None:
    assert parse(data)[1] == expected


def test_a_tag_is_never_acted_on_and_its_node_is_lost() -> None:
    root, _ = parse("a: !!python/object/apply:os.getpid []\nb: 1\n")
    assert isinstance(root, Table)
    assert isinstance(root.entries[0][1], Broken)
    assert root.entries[1][1] == Scalar("1", True, Span(2, 4, 5))


def test_depth_and_size_cost_no_time_and_no_stack() -> None:
    for text in ("[" * 100_000, "- " * 100_000, "{a: " * 60_000, "? " * 100_000):
        root, findings = parse(text)
        assert root is None
        assert len(findings) == 1


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "null"), ("~", "null"), ("Null", "null"), ("nULL", "str"),
        ("true", "bool"), ("FALSE", "bool"), ("tRue", "str"), ("on", "str"), ("No", "str"),
        ("0", "int"), ("-7", "int"), ("0x1F", "int"), ("0o17", "int"), ("010", "int"),
        ("1_000", "str"), ("0b1", "str"), ("1:20", "str"), ("1.5", "float"), ("1e-1", "float"),
        (".5", "float"), ("-.inf", "float"), (".NaN", "float"), ("1.2.3", "str"), ("nan", "str"),
        ("0.5.23", "str"), ("2024-01-01", "str"), (".", "str"), ("+", "str"), ("1e", "str"),
    ],
)  # fmt: skip
def test_scalars_are_yaml_1_2(text: str, kind: str) -> None:
    span = Span(1, 1, 2)
    assert scalar_kind(Scalar(text, True, span)) == kind
    assert scalar_kind(Scalar(text, False, span)) == "str"


def test_what_yaml_1_1_readers_take_otherwise() -> None:
    span = Span(1, 1, 2)
    for text in ("010", "08080", "1:20", "190:20:30", "1_000", "0b11", "-012"):
        assert is_old_number(Scalar(text, True, span)), text
    for text in ("0", "10", "0.5.23", "1.5", "0x1F", "::1", "a:1"):
        assert not is_old_number(Scalar(text, True, span)), text
    assert [old_bool(Scalar(text, True, span)) for text in ("on", "NO", "y", "true", "oN")] == [
        True, False, True, None, None,
    ]  # fmt: skip
    assert old_bool(Scalar("on", False, span)) is None


_YAML_LIKE = st.text(
    st.one_of(
        st.sampled_from("ab:-[]{}'\"#&*!|>%@`?,~ \n\t\r0123.<\\\u00a0\ufeff$"), st.characters()
    ),
    max_size=60,
)


@given(st.one_of(_YAML_LIKE, st.binary(max_size=60)))
@example('"\\UFFFFFFFF"')
@example('"\\ud800"')
@example("%YAML 1." + "9" * 5000)
@example("a: " + "9" * 5000)
@example("\u2028a: \u0085[")
def test_any_text_gives_a_tree_or_findings(data: Any) -> None:
    for name in ("CSafeLoader", "SafeLoader"):
        if not hasattr(yaml, name):
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yaml_tree, "LOADER", getattr(yaml, name))
            root, findings = parse(data)
        assert root is None or isinstance(root, (Scalar, Items, Table, Broken))
        for finding in findings:
            line, column = finding.split(" ")[1].split("-")[0].split(":")
            assert int(line) >= 1
            assert int(column) >= 1


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_other_encodings_are_named(encoding: str) -> None:
    notes = Notes.on(Origin("profile", "p.yaml"))
    assert parse_yaml("\ufeffa: 1".encode(encoding), notes) is None
    (found,) = notes.findings
    assert found.message == f"the file is {encoding[:6].upper()}, not UTF-8"
