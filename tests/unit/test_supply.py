"""requirements.lock pins what is installed for development and says nothing of where from."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
PINS = {
    canonicalize_name(match[1]): match[2]
    for match in re.finditer(r"^([A-Za-z0-9._-]+)==([^\s;]+)", LOCK, re.MULTILINE)
}
WANTED = [
    *PROJECT["project"]["dependencies"],
    *(
        entry
        for group in ("test", "bench", "check")
        for entry in PROJECT["dependency-groups"][group]
        if isinstance(entry, str)
    ),
]


def test_the_lock_names_no_place() -> None:
    assert not re.search(r"://|--|@|\bfile:|\bindex\b|\bfind-links\b", LOCK)


@pytest.mark.parametrize("text", WANTED)
def test_every_dependency_is_pinned_within_its_bounds(text: str) -> None:
    requirement = Requirement(text)
    assert PINS[canonicalize_name(requirement.name)] in requirement.specifier


def test_bounds_are_where_pyproject_says() -> None:
    bounded = {
        Requirement(text).name
        for text in PROJECT["project"]["dependencies"]
        if "<" in str(Requirement(text).specifier)
    }
    assert bounded == {
        "fastapi", "httptools", "numpy", "pillow", "pydantic", "simplejpeg", "tokenizers", "uvicorn"
    }  # fmt: skip
