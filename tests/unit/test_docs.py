"""Pages that are made from the code are fresh; every setting is on them."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from deployments_page import ENVIRONMENT, NAMES, deployments_page
from settings_page import settings_page

from kimi_serve.launcher.cli import run
from kimi_serve.launcher.lint.command import lint
from kimi_serve.launcher.lint.formats import FORMAT_NAMES
from kimi_serve.launcher.sources.load import load_settings
from kimi_serve.schemas import errors
from kimi_serve.schemas.fields import setting_fields

ROOT = Path(__file__).parents[2]
PROFILES = sorted((ROOT / "examples" / "profiles").glob("*.yaml"))


def test_the_settings_page_is_fresh() -> None:
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == settings_page(), "run `make docs`"
    for field in setting_fields().values():
        assert f"`{field.env_name}`" in page


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_every_example_profile_loads_without_a_finding(profile: Path) -> None:
    assert load_settings([profile], env=ENVIRONMENT).findings == ()


@pytest.mark.parametrize("profile", PROFILES, ids=lambda path: path.name)
def test_every_example_profile_is_clean(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", "--fail-on", "warning", str(profile)]) == 0, capsys.readouterr().out


def test_the_deployments_page_is_fresh_and_has_every_example() -> None:
    page = (ROOT / "docs" / "deployments.md").read_text(encoding="utf-8")
    assert page == deployments_page(), "run `make docs`"
    assert {f"{name}.kimi-serve.yaml" for name in NAMES} == {path.name for path in PROFILES}
    assert str(ROOT) not in page


def test_the_readme_shows_the_example_profile_as_it_is() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    profile = ROOT / "examples" / "profiles" / "forced-cpu.kimi-serve.yaml"
    lines = profile.read_text(encoding="utf-8").splitlines(keepends=True)
    assert shown == "".join(line for line in lines if not line.startswith("#"))


def test_the_readme_names_every_folder_and_links_to_pages_that_are_there() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    folders = {
        f"{path.parent.relative_to(ROOT).as_posix()}/"
        for top in ("launcher", "preprocess", "schemas")
        for path in (ROOT / top).glob("*/__init__.py")
    }
    assert folders
    assert not [folder for folder in folders if f"| `{folder}` |" not in text]
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / target).exists(), target
    for page in (ROOT / "docs").glob("*.md"):
        assert f"(docs/{page.name})" in text, page


def test_the_deployments_page_covers_secrets_and_nothing_else() -> None:
    page = (ROOT / "docs" / "deployments.md").read_text(encoding="utf-8")
    covered = [line for line in page.splitlines() if "***" in line]
    assert covered
    assert all(re.match(r"  server\.api_key +\*\*\* ", line) for line in covered)


def test_the_http_page_has_every_status_and_code() -> None:
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RequestError)
    ]
    for kind in kinds:
        assert f"| {kind.status} | `{kind.code}` |" in page, kind


def test_the_lint_page_has_every_option_and_format() -> None:
    page = (ROOT / "docs" / "lint.md").read_text(encoding="utf-8")
    for option in lint.params:
        if isinstance(option, click.Option):
            assert any(name in page for name in option.opts), option.opts
    for name in FORMAT_NAMES:
        assert f"| `{name}` |" in page


def test_contributing_stays_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 60
