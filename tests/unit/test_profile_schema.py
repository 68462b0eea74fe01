"""The JSON Schema of profiles: fresh, and of one mind with the reader of profiles.

What it cannot say, and the property therefore leaves out: characters (KS006), the quotes of a
text (KS005, so all texts are quoted here), numbers such as 2.0 where a whole number is meant,
keys that are there twice, whether an IPv6 address is well-formed in all its groups, files that
`extends` names, unknown home directories.
"""

from __future__ import annotations

import importlib
import json
import re
import string
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator

from kimi_serve.launcher.cli import run
from kimi_serve.launcher.report.profile_schema import CHECKED_TEXTS, profile_schema
from kimi_serve.launcher.sources.profile import read_profile_text
from kimi_serve.schemas.colour import NAMES
from kimi_serve.schemas.fields import SettingField, sections, setting_fields

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "docs" / "kimi-serve.schema.json"
EXAMPLES = sorted((ROOT / "examples" / "profiles").iterdir())


@cache
def _validator() -> Any:
    """Give the validator of jsonschema, or skip."""
    reason = "jsonschema (group test) is not installed"
    jsonschema: Any = pytest.importorskip("jsonschema", reason=reason)
    return jsonschema.Draft202012Validator(profile_schema())


def test_the_committed_schema_is_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema"]) == 0
    assert COMMITTED.read_text(encoding="utf-8") == capsys.readouterr().out, "run `make docs`"


def test_it_is_a_valid_schema() -> None:
    validator = _validator()
    validator.check_schema(profile_schema())


def test_every_setting_has_its_words_for_editors() -> None:
    for field in setting_fields().values():
        described = profile_schema()
        for key in field.path.split("."):
            described = described["properties"][key]
        assert described["description"] == field.help
        assert field.flag in described["markdownDescription"]
        assert field.env_name in described["markdownDescription"]
        default: Any = json.loads(json.dumps(field.default))
        assert described["default"] == default


def test_every_text_with_a_validator_of_its_own_is_described() -> None:
    checked = {
        field.path
        for field in setting_fields().values()
        if any(isinstance(marker, AfterValidator) for marker in field.info.metadata)
    }
    assert checked == CHECKED_TEXTS.keys()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_valid_and_names_the_schema(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    first = text.partition("\n")[0]
    assert first == "# yaml-language-server: $schema=../../docs/kimi-serve.schema.json"
    assert path.parent.joinpath(first.partition("=")[2]).resolve() == COMMITTED
    validator = _validator()
    assert [error.message for error in validator.iter_errors(yaml.safe_load(text))] == []


def _check_jsonschema(*files: Path) -> object:
    """Run the program of that name; gives its exit code."""
    reason = "check-jsonschema (group check) is not installed"
    pytest.importorskip("check_jsonschema", reason=reason)
    command: Any = importlib.import_module("check_jsonschema.cli.main_command")
    with pytest.raises(SystemExit) as ended:
        command.main(["--schemafile", str(COMMITTED), *map(str, files)])
    return ended.value.code


def test_every_example_is_valid_for_check_jsonschema(capsys: pytest.CaptureFixture[str]) -> None:
    assert _check_jsonschema(*EXAMPLES) == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    [
        "server:\n",
        "server: {port: on}\n",
        'server: {port: "8080"}\n',
        "server: {api_key: sk-1}\n",
        "server: {prot: 1}\n",
        "servr: {port: 1}\n",
        "tokenizer: {worker_num: 0}\n",
        "image: {background: whit}\n",
        "model: {path: 'a${b'}\n",
        "engine: {version: 0.33}\n",
        "- a\n",
    ],
)
def test_mistakes_are_seen_by_check_jsonschema(text: str, tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(text)
    assert _check_jsonschema(tmp_path / "p.yaml") == 1


# One of each kind of what a file can hold where it does not belong.
_ALPHABET = string.ascii_letters + string.digits + " ${}_:/.#-%\n"
_texts = st.one_of(
    st.text(_ALPHABET, max_size=12).filter(lambda text: not text.startswith("~")),
    st.sampled_from(["${NAME}", "a${NAME}b", "$${x}", "${", "${1}", "$$${A}", "$", "white\n"]),
    st.sampled_from(["#fff", "#FFFFFF", "#ffff", "wHite", *NAMES]),
    st.sampled_from(["v0.5.23", "0.5.23+cu128", "1 2", "latest", "GPU-a", "MIG-a/1", "7", "00000"]),
    st.sampled_from(["a..b", "a_b", "a.0x1", "${H}.1", "x" * 64, "::1", "fe80::1%eth0"]),
    st.sampled_from(["10.0.0.1", "host", "host:80", "a-", "[::1]"]),
)
_numbers = st.one_of(
    st.integers(-5, 70_000),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: number % 1 != 0),
)
_anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), _numbers, _texts),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(_texts, st.sampled_from(["env", "file"])), inner, max_size=2),
    ),
    max_leaves=4,
)


def _near(field: SettingField) -> st.SearchStrategy[Any]:
    """Give values that often fit."""
    item = st.sampled_from(field.choices) | _texts if field.choices else _texts
    if field.kind == "list":
        return st.lists(item, max_size=3)
    if field.kind == "mapping":
        return st.dictionaries(_texts, _texts, max_size=3)
    if field.kind == "secret":
        return st.dictionaries(st.sampled_from(["env", "file"]), _texts, max_size=2)
    return {"bool": st.booleans(), "int": _numbers, "float": _numbers}.get(field.kind, item)


def _empty() -> dict[str, Any]:
    return {}


@st.composite
def _profiles(draw: st.DrawFn) -> dict[str, Any]:
    """Give one setting, or something else, in place: one reason at a time to be refused."""
    field = draw(st.sampled_from(list(setting_fields().values())))
    value = draw(st.one_of(_near(field), _anything))
    profile: dict[str, Any] = {field.section: {field.name: value}}
    if draw(st.integers(0, 9)) == 0:
        other = draw(st.sampled_from([*sections(), "nothing"]))
        profile[other] = draw(st.one_of(st.builds(_empty), _anything))
    if draw(st.integers(0, 9)) == 0:
        names = st.sampled_from(["parent.yaml", ""])
        profile["extends"] = draw(st.one_of(names, st.lists(names, max_size=2), _anything))
    return profile


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("profiles")
    (folder / "parent.yaml").write_text("log: {level: info}\n")
    return folder


def _is_read(profile: object, folder: Path) -> bool:
    # JSON is YAML in which every text is quoted. It may write a number with an exponent, which is
    # warned of and taken.
    layers = read_profile_text(json.dumps(profile), "p.yaml", str(folder), env=None)
    found = (finding for layer in layers for finding in layer.findings)
    return not any(finding.rule != "KS005" or finding.severity == "error" for finding in found)


def _is_outside(profile: dict[str, Any]) -> bool:
    """Say whether a profile holds what only the reader judges."""
    server = profile.get("server")
    section = cast(dict[str, Any], server) if isinstance(server, dict) else {}
    hosts: list[Any] = [section.get("host"), section.get("admin_host")]
    gpu: Any = profile.get("gpu")
    ids: Any = cast(dict[str, Any], gpu).get("ids") if isinstance(gpu, dict) else None
    if isinstance(ids, list) and len(cast(list[Any], ids)) > 1:
        return True  # one may be there twice
    if any(isinstance(host, str) and re.fullmatch("[0-9A-Fa-fxX.]+", host) for host in hosts):
        return True  # the numbers of an address
    parents: Any = profile.get("extends")
    names = cast(list[Any], parents) if isinstance(parents, list) else [parents]
    return any(
        isinstance(host, str) and ":" in host and host not in ("::1", "fe80::1%eth0")
        for host in hosts
    ) or any(isinstance(name, str) and name not in ("parent.yaml", "") for name in names)


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(profile=_profiles())
@example(profile={})
@example(profile={"server": None})
@example(profile={"server": {"api_key": "sk-1"}})
@example(profile={"server": {"api_key": {"env": "A", "file": "b"}}})
@example(profile={"image": {"formats": []}})
@example(profile={"image": {"formats": ["${FORMAT}", "png"]}})
@example(profile={"gpu": {"ids": ["$${"]}})
@example(profile={"gpu": {"ids": ["$${A}"]}})
@example(profile={"gpu": {"ids": ["${A}"]}})
@example(profile={"media": {"allowed_local_dirs": [""]}})
@example(profile={"media": {"allowed_domains": [""]}})
@example(profile={"engine": {"env": {"A": 1}}})
@example(profile={"gpu": {"mem_fraction_static": 1}})
def test_schema_and_reader_agree(profile: dict[str, Any], folder: Path) -> None:
    if _is_outside(profile):
        return
    assert _validator().is_valid(profile) == _is_read(profile, folder)


@pytest.mark.parametrize("root", [[], "text", 3, None])
def test_the_root_is_a_mapping(root: object) -> None:
    assert not _validator().is_valid(root)
