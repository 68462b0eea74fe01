"""Versions as people write them: tags, images, builds; what is none is refused."""

from __future__ import annotations

import pytest
from plan_factories import make_plan

from kimi_serve.schemas.engine_facts import engine_table
from kimi_serve.schemas.engine_launch import EngineInstall
from kimi_serve.schemas.versions import VersionRange, is_same_release, tidied, version_key

RELEASE = (0, 5, 23)


@pytest.mark.parametrize(
    ("version", "key"),
    [
        ("0.5.23", RELEASE),
        ("v0.5.23", RELEASE),
        ("V0.5.23", RELEASE),
        (" 0.5.23 ", RELEASE),
        ("0.5.23.post1", RELEASE),
        ("0.5.23rc1", RELEASE),
        ("0.5.23+cu128", RELEASE),
        ("0.5.23+cu12.8", RELEASE),
        ("0.5.23+g1a2.d20260101", RELEASE),
        ("v0.5.23-cu128", RELEASE),
        ("0.5.dev", (0, 5)),
        ("1.10", (1, 10)),
        ("0.33.0", (0, 33)),
        ("0.33", (0, 33)),
        ("0.0", ()),
        ("latest", ()),
        ("vv1", ()),
        ("9" * 5000, ()),
        ("", ()),
    ],
)
def test_version_key(version: str, key: tuple[int, ...]) -> None:
    assert version_key(version) == key


def test_versions_order_by_number() -> None:
    assert version_key("0.5.9") < version_key("v0.5.10")


@pytest.mark.parametrize(
    ("version", "kept"),
    [("v0.5.23-cu128", "0.5.23-cu128"), (" V0.33.0 ", "0.33.0"), ("0.5.23rc1", "0.5.23rc1")],
)
def test_a_tag_is_kept_as_the_package_says_it(version: str, kept: str) -> None:
    assert tidied(version) == kept


@pytest.mark.parametrize("version", ["latest", "main", "nightly-dev-1", "", " ", "1 2", "9" * 5000])
def test_what_names_no_release_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="is no version: write the number of a release") as caught:
        tidied(version)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("version", ["v0.5.23", "0.5.23.post1", "0.5.23+cu12.8", "v0.5.23-cu128"])
def test_a_build_has_the_table_of_its_release(version: str) -> None:
    table = engine_table("sglang", version)
    assert table is not None
    assert table.version == "0.5.23"


def test_two_numbers_are_the_first_of_their_line() -> None:
    assert engine_table("vllm", "0.33") is engine_table("vllm", "0.33.0")


@pytest.mark.parametrize(
    ("version", "other", "is_same"),
    [
        ("0.5.23", "0.5.23+cu128", True),
        ("v0.5.23-cu130", "0.5.23+cu128", True),
        ("0.5.23-amd64", "0.5.23", True),
        ("0.5.23-rc.1", "0.5.23rc1", True),
        ("0.5.23", "0.5.23rc1", False),
        ("0.5.23.post1", "0.5.23", False),
        ("0.5.23.post1", "0.5.23.post2", False),
        ("0.5.23", "0.5.24", False),
    ],
)
def test_builds_of_one_release(version: str, other: str, is_same: bool) -> None:
    assert is_same_release(version, other) is is_same


@pytest.mark.parametrize(("installed", "number"), [("0.5.23+cu128", 0), ("0.5.23.post1", 1)])
def test_another_build_is_no_other_version(installed: str, number: int) -> None:
    install = EngineInstall("/opt/e/bin/python", installed)
    plan = make_plan({"engine.kind": "sglang", "engine.version": "0.5.23"}, install=install)
    said = [finding for finding in plan.findings if "installed is" in finding.message]
    assert len(said) == number


def test_a_range() -> None:
    some = VersionRange("sglang", "0.5.0", "0.6")
    assert some.covers("sglang", "v0.5")
    assert some.covers("sglang", "0.5.23+cu128")
    assert not some.covers("sglang", "0.6.0")
    assert not some.covers("sglang", "0.4.9")
    assert not some.covers("vllm", "0.5.1")
    assert VersionRange("none", "", "").covers("none", "")
