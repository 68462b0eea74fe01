"""The table of settings: what is taken without a validator is what pydantic takes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from kimi_serve.schemas import fields
from kimi_serve.schemas.fields import SettingField, setting_fields, settings_of
from kimi_serve.schemas.settings import Settings

WORDS = st.one_of(
    st.text(max_size=6),
    st.sampled_from(["", "red", "display", "jpeg", "none", "127.0.0.1", "::1", "::g", "a b"]),
)
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**60),
    st.integers(-2, 70_000),
    st.floats(),
    st.floats(0, 4000),
    WORDS,
    st.lists(WORDS, max_size=3),
    st.lists(WORDS, max_size=3).map(tuple),
    st.dictionaries(WORDS, WORDS | st.integers(), max_size=3),
    WORDS.map(SecretStr),
)


@pytest.mark.parametrize("field", setting_fields().values(), ids=lambda field: field.path)
@given(value=VALUES)
def test_the_short_way_agrees_with_pydantic(field: SettingField, value: Any) -> None:
    try:
        expected: Any = fields._adapter(field.path).validate_python(value, strict=True)  # pyright: ignore[reportPrivateUsage]
    except ValidationError:
        if value is not None:
            assert not fields.is_plainly_valid(field, value)
            with pytest.raises(ValidationError):
                field.validate(value)
        return
    taken = field.validate(value)
    assert taken == expected
    assert type(taken) is type(expected)


def test_none_is_taken_where_the_field_may_be_null() -> None:
    for field in setting_fields().values():
        assert fields.is_plainly_valid(field, None) is field.is_nullable


def test_settings_of_validated_leaves_are_those_that_pydantic_makes() -> None:
    tree = {
        "model": {"path": "org/model"},
        "server": {"port": 1, "api_key": SecretStr("x")},
        "engine": {"env": {"A": "b"}, "nodes": {"count": 2, "rank": 1}},
    }
    made = settings_of(tree)
    assert made == Settings.model_validate(tree)
    assert made.engine.nodes.model_fields_set == {"count", "rank"}
    assert settings_of({}) == Settings()
