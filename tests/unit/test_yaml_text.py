"""What is written as YAML is read back as it was, by readers of either version."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kimi_serve.launcher.sources.layers import Notes
from kimi_serve.launcher.sources.yaml_nodes import Items, Scalar, Table
from kimi_serve.launcher.sources.yaml_text import flow_list, quoted, scalar
from kimi_serve.launcher.sources.yaml_tree import parse_yaml
from kimi_serve.schemas.provenance import DEFAULT

# A surrogate is in no file that can be read.
TEXTS = st.text(
    st.characters(exclude_categories=("Cs",)) | st.sampled_from("'\"\\\x85\u2028{}: #-")
)


@given(st.lists(TEXTS))
@example(["a\x85b", '{"a": "\u2029"}', "\x00", "\U0001f600", "'", '"', "\\"])
def test_a_list_is_read_back_as_it_was(texts: list[str]) -> None:
    written = flow_list(texts)
    assert yaml.safe_load(written) == texts
    tree = parse_yaml(f"a: {written}\n", Notes.on(DEFAULT))
    assert isinstance(tree, Table)
    items = tree.entries[0][1]
    assert isinstance(items, Items)
    assert [item.text for item in items.items if isinstance(item, Scalar)] == texts


@given(TEXTS)
def test_a_scalar_is_read_back_as_it_was(text: str) -> None:
    assert yaml.safe_load(f"a: {scalar(text)}  # c\n") == {"a": text}
    assert "\n" not in scalar(text)


@pytest.mark.parametrize("text", ["\ud800", 'a"\udfff'])
def test_a_surrogate_is_written_as_an_escape(text: str) -> None:
    assert scalar(text) == quoted(text)
    assert quoted(text).isascii()
