"""What an engine is started with: every word of its command line and every variable, each with
the setting that it came from.

Made by `launcher.engines`, pure; executed by `launcher.supervise`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .provenance import Origin
from .vocabulary import EngineName


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """One flag with its values as separate words, or a word of its own when `name` is "".

    `path` is the setting that it says, "engine.args" for what a user wrote in the engine's own
    words. `secret` names a variable that stands for the values where they are shown, "" when they
    may be seen; `written` are the values as they are written where they refer to variables, "" for
    one that does not. `joined` writes `--flag=value`, for a value that would be read as a flag
    itself.
    """

    name: str
    path: str
    origin: Origin
    reason: str
    values: tuple[str, ...] = field(default=(), repr=False)
    secret: str = ""
    joined: bool = False
    written: tuple[str, ...] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The words of argv, secrets in clear."""
        return self._words(self.values)

    @property
    def shown(self) -> tuple[str, ...]:
        """The same with `${NAME}` for each secret."""
        return self._words(self.secrets or self.values)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What stands for the values, with `${NAME}`; none where the values may be seen."""
        if not self.secret:
            return ()
        numbers = range(1, len(self.values) + 1)
        names = [f"{self.secret}_{n}" if len(self.values) > 1 else self.secret for n in numbers]
        written = self.written or ("",) * len(self.values)
        return tuple(text or f"${{{name}}}" for text, name in zip(written, names, strict=True))

    @property
    def unnamed(self) -> tuple[str, ...]:
        """The variables that stand for a secret that no variable holds."""
        written = self.written or ("",) * len(self.values)
        shown = zip(self.secrets, written, strict=False)
        return tuple(text[2:-1] for text, own in shown if not own)

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
    written: str = ""

    @property
    def shown(self) -> str | None:
        """The value, `${NAME}` where it is a secret."""
        if not self.secret or self.value is None:
            return self.value
        return self.written or f"${{{self.secret}}}"


@dataclass(frozen=True, slots=True)
class EngineInstall:
    """The interpreter that runs an engine, and what it has installed.

    `problem` is "" where the engine's package is there, else why it is not, in a clause; `remedy`
    says what to do about it.
    """

    python: str
    version: str | None
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Readiness:
    """How to see that the engine answers.

    `paths` are tried in order: one that the engine does not have (404) gives way to the next.
    Ready is `consecutive` answers 200 in a row, each on a connection of its own, or one of them
    after `log_line` was written `log_count` times.

    `url` is http(s)://host:port, unix://PATH for HTTP at a socket file, or tcp://host:port where
    no HTTP is spoken. A connection that is accepted there, and a server that only wants the
    certificate of its client, say less than an answer: where there is a `log_line`, they count
    after it alone. `url` is "" where nothing can be asked: the engine is then ready when it runs.

    Where it is not `required`, an engine that lives and does not answer in time counts as ready.
    """

    url: str
    paths: tuple[str, ...]
    consecutive: int
    log_line: str
    log_count: int
    required: bool = True


@dataclass(frozen=True, slots=True)
class Stopping:
    """How the engine ends its work.

    With `drains` it finishes what runs after SIGTERM, so that comes first. Else the launcher
    waits until `load_path` (or, where that does not answer, the connections) say that nothing runs.
    `drain_timeout_s` is the time for it. An engine that never `has_requests` is not waited for.
    """

    drains: bool
    load_path: str
    drain_timeout_s: float
    has_requests: bool = True


@dataclass(frozen=True, slots=True)
class EngineLaunch:
    """One engine process. `head` is the interpreter and its entry point.

    `ports` are those of `host` that it listens on, none where it takes a socket file or no clients.
    """

    engine: EngineName
    head: tuple[str, ...]
    flags: tuple[EngineFlag, ...]
    variables: tuple[EngineVariable, ...]
    host: str
    port: int
    readiness: Readiness
    stopping: Stopping
    ports: tuple[int, ...] = ()

    def argv(self) -> tuple[str, ...]:
        """The command, secrets in clear."""
        return (*self.head, *(word for flag in self.flags for word in flag.words))

    def said_by(self, flag: str, path: str) -> str:
        """Name what says the setting at `path`: that, or the flag in the engine's own words."""
        paths = {each.path for each in self.flags if each.name == flag}
        return f"{flag} in {paths.pop()}" if paths and path not in paths else path

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
