"""Runs profiles of rule cases and of rule pages through the linter, beside small checkpoints."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from kimi_serve.launcher.lint.run import Surroundings, lint_profile
from kimi_serve.launcher.machine import hardware
from kimi_serve.launcher.sources.flags import check_argv
from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED
from kimi_serve.schemas.findings import Finding
from kimi_serve.schemas.hardware import Hardware

CASES = Path(__file__).parent / "data" / "rules"
PROFILE = "profile.yaml"
# The host of every case that looks at one: a container with what it gets unasked.
HOST = Hardware(8.0, 32768, (), "this host has none", shm_mib=64)
# Folders that every case finds beside its profile.
CHECKPOINTS = {
    "k25": "KimiK25ForConditionalGeneration",
    "two-minds": "KimiK25ForConditionalGeneration",  # its blocks differ in the patch limit
    "k3": "KimiK3ForConditionalGeneration",
    "qwen": "Qwen3VLForConditionalGeneration",
    "text-only": "DeepseekV3ForCausalLM",
}


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a rule: what is linted, and for a failing one what must be found."""

    rule: str
    name: str
    profile: str
    env: Mapping[str, str] | None
    files: Mapping[str, str]
    argv: Sequence[str]
    check_host: bool
    expect: tuple[Mapping[str, Any], ...]
    only: bool

    def __str__(self) -> str:
        return f"{self.rule} {self.name}"


def read_cases(path: Path, kind: str) -> list[Case]:
    """Read the failing or the passing cases of one file."""
    entries: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get(kind, [])
    return [
        Case(
            rule=path.stem,
            name=entry["name"],
            profile=entry.get("profile", ""),
            env=entry.get("env"),
            files=entry.get("files", {}),
            argv=entry.get("argv", ()),
            check_host=entry.get("check_host", False),
            expect=tuple(entry.get("expect", ())),
            only=entry.get("only", False),
        )
        for entry in entries
    ]


def all_cases(kind: str) -> list[Case]:
    return [case for path in sorted(CASES.glob("KS*.toml")) for case in read_cases(path, kind)]


def run_case(case: Case, folder: Path) -> tuple[Finding, ...]:
    """Lint a case in an empty folder."""
    found = lint_in(folder, case.profile, case.env, case.files, check_host=case.check_host)
    return (*check_argv(list(case.argv)), *found)


def lint_in(
    folder: Path,
    profile: str,
    env: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    *,
    check_host: bool = False,
) -> tuple[Finding, ...]:
    """Write what stands beside a profile, and lint the profile as it would be found there."""
    for name, architecture in CHECKPOINTS.items():
        _write_checkpoint(folder / name, architecture)
    for name, text in (files or {}).items():
        _write(folder / name, text)
    _write(folder / PROFILE, profile)
    around = Surroundings(env=env, check_host=check_host)
    with mock.patch.object(hardware, "probe", return_value=HOST):
        return _lint(profile, folder, around)


def _lint(profile: str, folder: Path, around: Surroundings) -> tuple[Finding, ...]:
    data = profile.encode("utf-8")
    linted = lint_profile(data, name=PROFILE, folder=folder, around=around, file=folder / PROFILE)
    return linted.findings


def _write_checkpoint(folder: Path, architecture: str) -> None:
    config: dict[str, Any] = json.loads((BUNDLED / "config.json").read_text(encoding="utf-8"))
    config |= {"architectures": [architecture]}
    if folder.name == "text-only":
        config = {"architectures": [architecture]}
    _write(folder / "config.json", json.dumps(config))
    if folder.name in ("k25", "k3", "two-minds"):
        text = (BUNDLED / "preprocessor_config.json").read_text(encoding="utf-8")
        parameters: dict[str, Any] = json.loads(text)
        if folder.name == "two-minds":
            parameters["max_patches"] = 4096
        _write(folder / "preprocessor_config.json", json.dumps(parameters))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def matches(finding: Finding, expected: Mapping[str, Any]) -> bool:
    """Tell whether a finding is the expected one; what is not said may be anything."""
    origin = finding.origin
    place = {"line": origin.line, "column": origin.column, "name": origin.name}
    said = f"{finding.message} {finding.help or ''}"
    return (
        finding.rule == expected["rule"]
        and finding.severity == expected.get("severity", finding.severity)
        and all(place[key] == expected[key] for key in place if key in expected)
        and all(word in said for word in expected.get("words", ()))
    )


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page: the word behind the fence, and the text."""

    language: str
    text: str


def blocks(section: str) -> list[Block]:
    """Give the fenced blocks of a section of a page."""
    found = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return [Block(language, text) for language, text in found]


def lint_section(section: str, folder: Path) -> tuple[Finding, ...]:
    """Lint what a section of a page shows: a yaml block, env lines, a command line."""
    shown = {block.language: block.text for block in blocks(section)}
    env = None
    if "env" in shown:
        lines = [line for line in shown["env"].splitlines() if line]
        env = dict(line.split("=", 1) for line in lines)
    command = shown.get("console", "")
    found = lint_in(folder, shown.get("yaml", ""), env, check_host="--check-host" in command)
    return (*check_argv(command.split()[1:]), *found)
