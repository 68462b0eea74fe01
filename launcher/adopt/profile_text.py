"""Writes a profile as YAML: sections in the order of the settings, each line with its comment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kimi_serve.schemas.fields import sections, setting_fields

from ..sources.characters import printable
from ..sources.yaml_text import scalar

MODELINE = "# yaml-language-server: $schema=kimi-serve.schema.json"
_LONGEST_COMMENT = 160


@dataclass(frozen=True, slots=True)
class EnvReference:
    """A secret, as a profile names one."""

    name: str


Value = str | bool | int | float | tuple[str, ...] | EnvReference


@dataclass(frozen=True, slots=True)
class Entry:
    """What stands on one line, and where it came from."""

    value: Value
    comment: str


def profile_text(
    heading: Iterable[str],
    settings: Mapping[str, Entry],
    args: Sequence[Entry],
    env: Mapping[str, Entry],
) -> str:
    """Write the whole profile."""
    lines = [MODELINE, *(f"# {_comment(line)}" for line in heading)]
    order = [path for path in setting_fields() if path in settings]
    for section in (name for name in sections() if "." not in name):
        own = [path for path in order if path.startswith(f"{section}.")]
        has_more = section == "engine" and (args or env)
        if own or has_more:
            lines.append(f"{section}:")
            lines += _section(section, own, settings)
        if section == "engine":
            lines += _arguments(args)
            lines += _variables(env)
    return "\n".join(lines) + "\n"


def _section(section: str, paths: Sequence[str], settings: Mapping[str, Entry]) -> Iterator[str]:
    inner = ""
    # What stands deeper comes last, under one key.
    for path in sorted(paths, key=lambda path: path.count(".")):
        head, _, name = path.removeprefix(f"{section}.").rpartition(".")
        if head != inner:
            yield f"  {head}:"
            inner = head
        pad = "    " if head else "  "
        entry = settings[path]
        yield f"{pad}{name}: {_value(entry.value)}{_behind(entry.comment)}"


def _arguments(args: Sequence[Entry]) -> Iterator[str]:
    if args:
        yield "  args:"
    for entry in args:
        yield f"    - {_value(entry.value)}{_behind(entry.comment)}"


def _variables(env: Mapping[str, Entry]) -> Iterator[str]:
    if env:
        yield "  env:"
    for name, entry in env.items():
        yield f"    {scalar(name)}: {_value(entry.value)}{_behind(entry.comment)}"


def _value(value: Value) -> str:
    if isinstance(value, EnvReference):
        return f"{{env: {scalar(value.name)}}}"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, tuple):
        return f"[{', '.join(scalar(item) for item in value)}]"
    return scalar(value)


def _number(value: float) -> str:
    """Write a number that readers of YAML 1.1 take for one too: 1e-05 is text to them."""
    text = repr(value)
    return text if "e" not in text or "." in text else text.replace("e", ".0e")


def _behind(comment: str) -> str:
    line = _comment(comment)
    cut = line if len(line) <= _LONGEST_COMMENT else f"{line[:_LONGEST_COMMENT]}..."
    return f"  # {cut}" if comment else ""


def _comment(text: str) -> str:
    """Keep a comment on its line, and from being one that lint obeys."""
    return printable(text).replace("kimi-serve:", "kimi-serve :")
