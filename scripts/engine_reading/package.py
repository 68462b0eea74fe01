"""The Python files of one engine, out of a wheel or out of an installed directory."""

from __future__ import annotations

import ast
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

ENGINES = ("sglang", "vllm")
_METADATA = re.compile(r"(?P<name>[^/]+)-(?P<version>[^/-]+)\.dist-info/METADATA")


class ReadingError(Exception):
    """The package is not what this script knows how to read; the message says what is missing."""


@dataclass(frozen=True)
class Package:
    """One engine's files, each read and parsed at most once."""

    engine: str
    version: str
    files: Mapping[str, Callable[[], bytes]]
    _texts: dict[str, str] = field(default_factory=dict[str, str])
    _trees: dict[str, ast.Module] = field(default_factory=dict[str, ast.Module])

    def text(self, path: str) -> str:
        if path not in self.files:
            message = f"{self.engine} {self.version} has no {path}"
            raise ReadingError(message)
        if path not in self._texts:
            self._texts[path] = self.files[path]().decode("utf-8", errors="replace")
        return self._texts[path]

    def tree(self, path: str) -> ast.Module:
        if path not in self._trees:
            self._trees[path] = _parse(self.text(path), path)
        return self._trees[path]

    def module_path(self, dotted: str) -> str | None:
        """Give the file of a module of this package, None for a module of another one."""
        stem = dotted.replace(".", "/")
        return next((p for p in (f"{stem}.py", f"{stem}/__init__.py") if p in self.files), None)


def _parse(text: str, path: str) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # the engine's own escapes
            return ast.parse(text)
    except SyntaxError as error:
        message = f"{path}:{error.lineno}: not Python {error.msg}"
        raise ReadingError(message) from error


def open_package(path: Path) -> Package:
    """Open a wheel, an installed package directory, or the directory that holds one."""
    if path.is_dir():
        return _from_directory(path)
    if not path.is_file():
        message = f"{path} does not exist"
        raise ReadingError(message)
    try:
        return _from_wheel(zipfile.ZipFile(path), path)
    except zipfile.BadZipFile as error:
        message = f"{path} is neither a directory nor a wheel (a zip file)"
        raise ReadingError(message) from error


def _from_wheel(wheel: zipfile.ZipFile, path: Path) -> Package:
    names = wheel.namelist()
    found = [match for name in names if (match := _METADATA.fullmatch(name))]
    engine = next((m["name"] for m in found if m["name"] in ENGINES), None)
    if engine is None or len(found) != 1:
        message = f"{path} is not a wheel of {' or '.join(ENGINES)}"
        raise ReadingError(message)
    files = {
        name: _zip_reader(wheel, name)
        for name in names
        if name.startswith(f"{engine}/") and name.endswith(".py")
    }
    return Package(engine, found[0]["version"], files)


def _from_directory(path: Path) -> Package:
    engine = next((name for name in ENGINES if (path / name / "__init__.py").is_file()), None)
    if engine is None and path.name in ENGINES:
        engine, path = path.name, path.parent
    if engine is None or not (path / engine / "__init__.py").is_file():
        message = f"{path} neither is nor holds a package {' or '.join(ENGINES)}"
        raise ReadingError(message)
    versions = sorted(
        match["version"]
        for entry in path.glob(f"{engine}-*.dist-info")
        if (match := _METADATA.fullmatch(f"{entry.name}/METADATA"))
    )
    if len(versions) != 1:
        message = f"{path} has {len(versions)} {engine}-*.dist-info directories, one is needed"
        raise ReadingError(message)
    files = {str(file.relative_to(path)): file.read_bytes for file in (path / engine).rglob("*.py")}
    return Package(engine, versions[0], files)


def _zip_reader(wheel: zipfile.ZipFile, name: str) -> Callable[[], bytes]:
    return lambda: wheel.read(name)
