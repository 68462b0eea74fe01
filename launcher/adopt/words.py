"""What the readers of commands give: words with their places, variables, and what to say of them.

A text is written as profiles write one: `${NAME}` refers to a variable, `$${` stands for `${`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from kimi_serve.schemas.findings import Finding, Severity
from kimi_serve.schemas.provenance import Origin

from ..secrets.trees import redacted
from ..sources.characters import bare, printable

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\}")
_ASSIGNMENT = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)=(?P<value>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Word:
    """One word; `unsure` is the part that only a running shell could tell, "" for none."""

    text: str
    place: str = ""
    unsure: str = ""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that the engine gets. `value` is None for one that is passed on by its name.

    `is_explicit` tells that it was given to this command, and not to all that share a file.
    """

    name: str
    value: Word | None
    place: str
    is_explicit: bool = True


@dataclass(frozen=True, slots=True)
class EnvFile:
    """A file of variables; what `is_optional` may be missing where the command runs."""

    name: Word
    is_optional: bool = False


@dataclass(slots=True)
class Told:
    """Collects what there is to say: notes for all that becomes no line, and findings.

    `files` are those that were read: the profile must not be written over one.
    """

    _notes: dict[str, None] = field(default_factory=lambda: dict[str, None]())
    findings: list[Finding] = field(default_factory=lambda: list[Finding]())
    files: list[str] = field(default_factory=lambda: list[str]())

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes, each once, in the order in which they came up."""
        return tuple(self._notes)

    def note(self, text: str) -> None:
        """Say something once; `text` holds no secret."""
        self._notes[printable(text)] = None

    def add(self, other: Told) -> None:
        """Say all of another as well."""
        self._notes |= other._notes
        self.findings += other.findings
        self.files += other.files

    def left_out(self, words: Sequence[Word], why: str) -> None:
        """Say that these words become nothing, and why."""
        if words:
            self.note(f"left out ({_places(words)}): {shown_words(words)}: {why}")

    def find(
        self, rule: str, severity: Severity, message: str, place: str, help: str, path: str = ""
    ) -> None:
        """Say what a rule says, about a place of the command."""
        origin = Origin("flag", printable(place or "the command"))
        finding = Finding(rule, severity, message, origin, path, help)
        if finding not in self.findings:
            self.findings.append(finding)


def literal(text: str) -> str:
    """Write a text so that nothing in it is a reference."""
    return text.replace("${", "$${")


def reference(name: str) -> str:
    """Write a reference to a variable."""
    return f"${{{name}}}"


def references_in(text: str) -> tuple[str, ...]:
    """Give the variables that a text refers to."""
    return tuple(match["name"] for match in _REFERENCE.finditer(text) if match["name"])


def only_reference(text: str) -> str:
    """Give the variable of a text that is `${NAME}` and no more, "" for another."""
    match = _REFERENCE.fullmatch(text)
    return match["name"] or "" if match else ""


def resolved(word: Word, known: Mapping[str, str]) -> Word:
    """Put known variables into a word."""

    def instead(match: re.Match[str]) -> str:
        return known.get(match["name"], match[0]) if match["name"] else match[0]

    return replace(word, text=_REFERENCE.sub(instead, word.text))


# A reference of an outer shell on its way through an inner one: characters of private use.
_OPEN, _CLOSE = "\ue000", "\ue001"


def for_shell(text: str) -> str:
    """Write a text as an inner shell gets it; what an outer one has resolved is out of reach."""

    def instead(match: re.Match[str]) -> str:
        return f"{_OPEN}{match['name']}{_CLOSE}" if match["name"] else "${"

    return _REFERENCE.sub(instead, text)


def from_shell(word: Word, place: str) -> Word:
    """Take a word back from an inner shell."""
    text = word.text.replace(_OPEN, "${").replace(_CLOSE, "}")
    return Word(text, place, word.unsure.replace(_OPEN, "${").replace(_CLOSE, "}"))


def assignment(word: Word) -> Variable | None:
    """Read NAME=value."""
    match = _ASSIGNMENT.fullmatch(word.text)
    if match is None:
        return None
    return Variable(match["name"], replace(word, text=match["value"]), word.place)


def shown_words(words: Iterable[Word]) -> str:
    """Write words for a message: without secrets, on one line, not too long."""
    texts = cast("list[str]", redacted([word.text for word in words]))
    return " ".join(bare(text) if text.strip() else repr(text) for text in texts)


def _places(words: Sequence[Word]) -> str:
    first, last = words[0].place, words[-1].place
    if first == last or not last:
        return first
    head, _, number = first.rpartition(" ")
    last_head, _, last_number = last.rpartition(" ")
    return f"{head}s {number} to {last_number}" if head == last_head else f"{first} to {last}"
