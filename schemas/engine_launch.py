"""What an engine is started with: every word of its command line and every variable, each with
the setting that it came from.

Made by `launcher.engines`, pure; executed by `launcher.supervise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from .provenance import Origin

EngineName = Literal["sglang", "vllm"]


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """One flag with its values as separate words, or a word of its own when `name` is "".

    `path` is the setting that it says, "engine.args" for what a user wrote in the engine's own
    words. `secret` names a variable that stands for the values where they are shown, "" when they
    may be seen. `joined` writes `--flag=value`, for a value that would be read as a flag itself.
    """

    name: str
    path: str
    origin: Origin
    reason: str
    values: tuple[str, ...] = field(default=(), repr=False)
    secret: str = ""
    joined: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The words of argv, secrets in clear."""
        return self._words(self.values)

    @property
    def shown(self) -> tuple[str, ...]:
        """The same with `${NAME}` for each secret."""
        return self._words(tuple(f"${{{name}}}" for name in self.secrets) or self.values)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The variables that stand for the values, none where the values may be seen."""
        if not self.secret or len(self.values) < 2:
            return (self.secret,) * len(self.values) if self.secret else ()
        return tuple(f"{self.secret}_{number}" for number in range(1, len(self.values) + 1))

    def _words(self, values: tuple[str, ...]) -> tuple[str, ...]:
        if self.joined:
            return (f"{self.name}={values[0]}",)
        return (*filter(None, (self.name,)), *values)


@dataclass(frozen=True, slots=True)
class EngineVariable:
    """One variable that is set, or taken away when `value` is None; the rest as in `EngineFlag`."""

    name: str
    path: str
    origin: Origin
    reason: str
    value: str | None = field(default=None, repr=False)
    secret: str = ""

    @property
    def shown(self) -> str | None:
        """The value, `${NAME}` where it is a secret."""
        return f"${{{self.secret}}}" if self.secret and self.value is not None else self.value


@dataclass(frozen=True, slots=True)
class EngineInstall:
    """The interpreter that runs an engine, and what it has installed.

    `problem` is "" where the engine's package is there, else why it is not, in a clause.
    """

    python: str
    version: str | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """How to see that the engine answers.

    `paths` are tried in order: one that the engine does not have (404) gives way to the next.
    Ready is `consecutive` answers 200 in a row, each on a connection of its own, or one of them
    after `log_line` was written `log_count` times. `url` is "" where nothing can be asked: the
    engine is then ready when it runs.
    """

    url: str
    paths: tuple[str, ...]
    consecutive: int
    log_line: str
    log_count: int


@dataclass(frozen=True, slots=True)
class Stopping:
    """How the engine ends its work.

    With `drains` it finishes what runs after SIGTERM, so that comes first. Else the launcher
    waits until `load_path` (or, where that does not answer, the connections) say that nothing runs.
    """

    drains: bool
    load_path: str


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """One engine process. `head` is the interpreter and its entry point."""

    engine: EngineName
    head: tuple[str, ...]
    flags: tuple[EngineFlag, ...]
    variables: tuple[EngineVariable, ...]
    host: str
    port: int
    readiness: Readiness
    stopping: Stopping

    def argv(self) -> tuple[str, ...]:
        """The command, secrets in clear."""
        return (*self.head, *(word for flag in self.flags for word in flag.words))

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """What the engine finds: all that is inherited, but for what is set or taken away here."""
        found = dict(inherited)
        for variable in self.variables:
            found.pop(variable.name, None)
            if variable.value is not None:
                found[variable.name] = variable.value
        return found

    def secrets(self) -> tuple[str, ...]:
        """Every value that must never be shown, the longest first."""
        found = {value for flag in self.flags if flag.secret for value in flag.values}
        found |= {each.value for each in self.variables if each.secret and each.value}
        return tuple(sorted(filter(None, found), key=len, reverse=True))
