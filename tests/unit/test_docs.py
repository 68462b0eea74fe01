"""Pages that are made from the code are fresh; every setting is on them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from settings_page import settings_page

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
    assert load_settings([profile], env={}).findings == ()


def test_the_readme_shows_the_example_profile_as_it_is() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    text = (ROOT / "examples" / "profiles" / "forced-cpu.yaml").read_text(encoding="utf-8")
    assert shown == text.partition("\n")[2]


def test_the_http_page_has_every_status_and_code() -> None:
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.RequestError)
    ]
    for kind in kinds:
        assert f"| {kind.status} | `{kind.code}` |" in page, kind


def test_contributing_stays_short() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) < 60
