"""Each shared word has one home; the tables have all of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from kimi_serve.preprocess.images.normalise import NUMPY_DTYPES
from kimi_serve.preprocess.images.sniff import FORMAT_NAMES
from kimi_serve.schemas.fields import setting_fields
from kimi_serve.schemas.hub_id import is_hub_id
from kimi_serve.schemas.vocabulary import DTYPES, TOKENIZER_KINDS, ImageDtype, ImageFormat

ROOT = Path(__file__).parents[2]


def test_every_image_dtype_is_in_the_tables() -> None:
    assert DTYPES.keys() == {*get_args(ImageDtype), "int64"}
    for dtype, kind in NUMPY_DTYPES.items():
        assert DTYPES[dtype].num_bytes == np.dtype(kind).itemsize


def test_every_format_has_a_name() -> None:
    assert FORMAT_NAMES.keys() == set(get_args(ImageFormat))


def test_the_tokenizer_file_that_transformers_prefers_goes_first() -> None:
    assert TOKENIZER_KINDS == ("tokenizer.json", "tiktoken.model")


@pytest.mark.parametrize("word", ["bfloat16", "checkpoint", "tiktoken.model"])
def test_no_other_schema_spells_a_vocabulary(word: str) -> None:
    literal = re.compile(rf'Literal\[[^\]]*"{re.escape(word)}"')
    homes = [
        path.relative_to(ROOT).as_posix()
        for folder in ("schemas", "preprocess", "launcher/resolver", "launcher/sources")
        for path in (ROOT / folder).rglob("*.py")
        if literal.search(path.read_text(encoding="utf-8"))
    ]
    assert homes == ["schemas/vocabulary.py"]


def test_only_bools_have_a_negative_flag() -> None:
    for field in setting_fields().values():
        if field.kind == "bool":
            assert field.negative_flag == field.flag.replace("--", "--no-", 1)
        else:
            assert field.negative_flag is None


@pytest.mark.parametrize(
    ("text", "is_id"),
    [
        ("moonshotai/Kimi-K2.5", True),
        ("gpt2", True),
        ("_org/_name", True),
        ("a/" + "b" * 94, True),
        ("a/" + "b" * 95, False),
        ("org/name--x", False),
        ("org/name..x", False),
        ("a/b/c", False),
        ("./model", False),
        ("/model", False),
        ("~/model", False),
        ("org/", False),
        ("", False),
        ("org/name\n", False),
    ],
)
def test_hub_ids(text: str, is_id: bool) -> None:
    assert is_hub_id(text) is is_id
