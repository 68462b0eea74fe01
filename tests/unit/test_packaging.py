"""The wheel holds exactly what the folders hold."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("launcher", "preprocess", "schemas")
# A package without modules: what lies in the folder is installed under another name.
DATA = {"kimi_serve.rule_pages": "docs/rules"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _is_installed(distribution: str) -> bool:
    """Ask the installed distributions: a `build/` folder here would pass for the module."""
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _python_packages() -> set[str]:
    return {
        "kimi_serve." + ".".join(file.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for file in (ROOT / folder).rglob("*.py")
    }


def test_every_package_is_listed() -> None:
    assert set(PROJECT["tool"]["setuptools"]["packages"]) == _python_packages() | set(DATA)


def test_every_package_is_mapped_to_its_folder() -> None:
    mapping = PROJECT["tool"]["setuptools"]["package-dir"]
    expected = {name: name.removeprefix("kimi_serve.").replace(".", "/") for name in mapping}
    assert mapping == expected | DATA


@pytest.mark.skipif(not _is_installed("build"), reason="the check group (build) is not installed")
def test_wheel_from_a_clean_copy_holds_the_folders(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in (*FOLDERS, *DATA.values(), "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.so")
            )
        else:
            shutil.copy(source, copy / name)
    subprocess.run(
        [sys.executable, "-P", "-m", "build", "--wheel", "--outdir", tmp_path / "dist", copy],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = {
        name.removeprefix("kimi_serve/")
        for name in zipfile.ZipFile(wheel).namelist()
        if name.startswith("kimi_serve/")
    }
    files = {
        file.relative_to(copy).as_posix()
        for folder in FOLDERS
        for file in (copy / folder).rglob("*")
        if file.is_file()
    }
    pages = {f"rule_pages/{path.name}" for path in (copy / DATA["kimi_serve.rule_pages"]).iterdir()}
    assert len(pages) > 40
    kernel = {"preprocess/native/_kernel.abi3.so"} if shutil.which("cc") else set[str]()
    assert names == files | pages | kernel


def test_a_plain_install_pulls_no_torch_and_no_transformers() -> None:
    names = {re.split(r"[<>=\[; ]", line)[0] for line in PROJECT["project"]["dependencies"]}
    assert not names & {"torch", "torchvision", "transformers", "nvidia-ml-py"}
    extra = {
        re.split(r"[<>=\[; ]", line)[0]
        for line in PROJECT["project"]["optional-dependencies"]["gpu"]
    }
    assert extra == {"torch", "torchvision", "transformers", "nvidia-ml-py"}
