"""Reads the text of a shell script as far as reading can go: commands and their words.

Nothing is run. A variable that the text itself sets is known, another one stays a reference, and
what only a shell could tell is kept as it is written and marked as unsure.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field

from kimi_serve.schemas.errors import ConfigError

from ..secrets import trees
from ..secrets.names import is_secret_name
from ..secrets.shapes import secrets_in
from ..sources.characters import bare
from .branches import Branches
from .words import Told, Word, assignment, literal, reference, references_in

_PLAIN = re.compile(r"\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_BRACED = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::?[-=](?P<default>[^${}`]*))?\}")
_OPERATOR = re.compile(r"&&|\|\||\|&|;;|[;|&()\n]")
_REDIRECTION = re.compile(r"(?:[0-9]*|&)(?:>>|>\||>&|<<<|<<-?|<&|<>|>|<)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"', "0": "\0"}
_BRACES = re.compile(r"\{[^\s{}]*\}")
_ARRAY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_WHOLE_ARRAY = re.compile(r"\"?\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)\[[@*]\]\}\"?")
_ARRAY_TEXT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=\(")
_GLOBS = "*?"
_DECLARING = ("export", "declare", "local", "readonly", "typeset")


@dataclass(frozen=True, slots=True)
class Command:
    """One simple command, and the operator behind it ("" at the end). `redirections` are its own.

    The words of a redirection are no words of the command. `condition` names what decides whether
    it runs, "" for nothing; with `is_other` it is the branch that is not taken.
    """

    words: tuple[Word, ...]
    operator: str
    redirections: tuple[Word, ...] = ()
    condition: str = ""
    is_other: bool = False


def read_script(
    text: str, told: Told, *, known: Mapping[str, str] | None = None, line: int = 1
) -> tuple[Command, ...]:
    """Read all commands of a text whose first line has this number; `known` are variables."""
    if "\r" in text:
        told.note("the text has Windows line ends (U+000D): they are taken off")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    ends = [match.start() for match in re.finditer("\n", text.rstrip("\n") + "\n")]
    return _Lexer(text, line, dict(known or {}), ends, Branches(told)).commands()


def sets_variables(command: Command) -> tuple[Word, ...]:
    """Give the assignments of a command that does nothing else."""
    words = command.words
    if words and words[0].text in _DECLARING:
        words = tuple(word for word in words[1:] if not word.text.startswith("-"))
    return words if all(assignment(word) for word in words) else ()


@dataclass(slots=True)
class _Piece:
    """A word that is being read."""

    text: str = ""
    unsure: str = ""

    def add(self, text: str) -> None:
        if self.text.endswith("$") and text.startswith("{"):
            self.text += "$"  # both are meant as they stand
        if self.text.endswith("$") and text.startswith("${"):
            self.doubt("a dollar sign before a variable")
        self.text += text

    def doubt(self, text: str) -> None:
        self.unsure = self.unsure or text


@dataclass(slots=True)
class _Lexer:
    """Walks over the text once."""

    source: str
    first_line: int
    known: dict[str, str]
    ends: list[int]
    branches: Branches
    index: int = 0
    number: int = 0
    found: list[Command] = field(default_factory=lambda: list[Command]())
    arrays: dict[str, list[str]] = field(default_factory=lambda: dict[str, list[str]]())
    words: list[Word] = field(default_factory=lambda: list[Word]())
    redirections: list[Word] = field(default_factory=lambda: list[Word]())
    heredocs: list[str] = field(default_factory=lambda: list[str]())

    def commands(self) -> tuple[Command, ...]:
        while self.index < len(self.source):
            self._step()
        self._end("")
        return tuple(self.found)

    def _step(self) -> None:
        character = self.source[self.index]
        if character in " \t":
            self.index += 1
        elif self.source.startswith("\\\n", self.index):
            self.index += 2
        elif character == "#":
            self.index = self._line_end()
        elif match := _REDIRECTION.match(self.source, self.index):
            self._redirect(match)
        elif match := _OPERATOR.match(self.source, self.index):
            self.index = match.end()
            self._end(match[0])
            if match[0] == "\n":
                self._skip_heredocs()
        else:
            word = self._word()
            if word and not (not self.words and self.branches.keyword(word)):
                self.words.append(word)

    def _end(self, operator: str) -> None:
        if self.words or self.redirections:
            words = tuple(self.words)
            branches = self.branches
            others = tuple(self.redirections)
            command = Command(words, operator, others, branches.condition, branches.is_other)
            self.found.append(command)
            for word in sets_variables(command):
                self._learn(word)
            branches.end(words, operator)
        self.words, self.redirections = [], []

    def _learn(self, word: Word) -> None:
        variable = assignment(word)
        if variable is None or _ARRAY_TEXT.match(word.text):
            return
        if not self.branches.counts(variable.name, word.place):
            return
        is_secret = is_secret_name(variable.name) or secrets_in(word.text)
        if is_secret or word.unsure or references_in(word.text):
            self.known.pop(variable.name, None)
        else:
            self.known[variable.name] = word.text.partition("=")[2]

    def _redirect(self, match: re.Match[str]) -> None:
        place = self._place()
        self.index = match.end()
        while self.index < len(self.source) and self.source[self.index] in " \t":
            self.index += 1
        word = self._word() if self.index < len(self.source) else None
        target = word.text if word else ""
        self.redirections.append(Word(match[0] + target, place))
        if match[0].endswith(("<<", "<<-")):
            self.heredocs.append(target)

    def _skip_heredocs(self) -> None:
        """Pass over the text that is fed to a command."""
        for mark in self.heredocs:
            while self.index < len(self.source):
                end = self._line_end()
                line = self.source[self.index : end]
                self.index = min(end + 1, len(self.source))
                if line.strip("\t") == mark:
                    break
        self.heredocs = []

    def _word(self) -> Word | None:
        """Read a word; None for one that is nothing but an empty variable."""
        self.number += 1
        piece, has_text = _Piece(), False
        place = self._place()
        while self.index < len(self.source):
            character = self.source[self.index]
            if character == "(" and _ARRAY.fullmatch(piece.text):
                return self._array(piece, place)
            if character in " \t\n;|&()<>":
                break
            several = self._several() if character in '$"' else None
            if several is None:
                self._take(piece, character)
                has_text = True
            elif len(several) > 1:
                self._spread(piece, several, place)
                piece, has_text = _Piece(several[-1]), True
            else:
                piece.add("".join(several))
        return Word(piece.text, place, piece.unsure) if piece.text or has_text else None

    def _spread(self, piece: _Piece, several: list[str], place: str) -> None:
        """Take what becomes several words, all but the last of them."""
        piece.add(several[0])
        self.words.append(Word(piece.text, place, piece.unsure))
        self.words += [Word(text, place) for text in several[1:-1]]

    def _array(self, piece: _Piece, place: str) -> Word:
        """Read `NAME=(word word)`; the array is known from here on."""
        name, is_more = piece.text.rstrip("+="), piece.text.endswith("+=")
        self.index += 1
        inner: list[Word] = []
        while self.index < len(self.source) and self.source[self.index] != ")":
            outer, self.words = self.words, []
            if self.source[self.index] in " \t\n;|&(<>":
                self.index += 1
            elif self.source[self.index] == "#":
                self.index = self._line_end()
            elif self.source.startswith("\\\n", self.index):
                self.index += 2
            else:
                word = self._word()
                inner += [*self.words, *([word] if word else [])]
            self.words = outer
        self.index += 1
        texts = [word.text for word in inner]
        is_shown = not any(word.unsure for word in inner) and not trees.secrets_of(texts)
        if is_shown and self.branches.counts(name, place):
            self.arrays[name] = [*(self.arrays.get(name, []) if is_more else []), *texts]
        return Word(f"{piece.text}({' '.join(texts)})", place)

    def _several(self) -> list[str] | None:
        """Take a known array, or a variable outside of quotes that a shell splits at its blanks."""
        array = _WHOLE_ARRAY.match(self.source, self.index)
        if array and array["name"] in self.arrays:
            self.index = array.end()
            return self.arrays[array["name"]]
        match = _BRACED.match(self.source, self.index) or _PLAIN.match(self.source, self.index)
        if match is None or match["name"] not in self.known:
            return None
        self.index = match.end()
        return self.known[match["name"]].split()

    def _take(self, piece: _Piece, character: str) -> None:
        if character == "'":
            piece.add(literal(self._quoted(self.index + 1, "'")))
        elif self.source.startswith("$'", self.index):
            text = self._quoted(self.index + 2, "'")
            piece.add(
                literal(re.sub(r"\\(.)", lambda found: _ESCAPES.get(found[1], found[0]), text))
            )
        elif character == '"':
            self._double(piece)
        elif character == "\\":
            self._escape(piece)
        elif character in "$`":
            self._expand(piece)
        else:
            if character in _GLOBS:
                piece.doubt(f"{character} is a pattern that a shell completes")
            elif character == "{" and self._is_brace_list():
                piece.doubt("a shell makes several words of {...}: put it in single quotes")
            piece.add(character)
            self.index += 1

    def _is_brace_list(self) -> bool:
        match = _BRACES.match(self.source, self.index)
        return match is not None and ("," in match[0] or ".." in match[0])

    def _escape(self, piece: _Piece) -> None:
        following = self.source[self.index + 1 : self.index + 2]
        self.index += 2
        if following != "\n":
            piece.add(following or "\\")

    def _quoted(self, start: int, mark: str) -> str:
        end = self.source.find(mark, start)
        if end < 0:
            self._unclosed(mark)
        self.index = end + 1
        return self.source[start:end]

    def _unclosed(self, mark: str) -> None:
        raise ConfigError(
            f"the {mark} of line {self._line()} of the command has no end",
            hint="paste the whole command, with all its quotes",
        )

    def _double(self, piece: _Piece) -> None:
        piece.add("")
        start = self.index
        self.index += 1
        while self.index < len(self.source) and self.source[self.index] != '"':
            character = self.source[self.index]
            following = self.source[self.index + 1 : self.index + 2]
            if character == "\\" and following and following in '$`"\\\n':
                self.index += 2
                piece.add("" if following == "\n" else following)
            elif character in "$`":
                self._expand(piece)
            else:
                piece.add(character)
                self.index += 1
        if self.index >= len(self.source):
            self.index = start
            self._unclosed('"')
        self.index += 1

    def _expand(self, piece: _Piece) -> None:
        """Read what begins with a dollar sign or a backtick."""
        braced = _BRACED.match(self.source, self.index)
        plain = _PLAIN.match(self.source, self.index)
        following = self.source[self.index + 1 : self.index + 2]
        if braced or plain:
            self._variable(piece, braced or plain)
        elif self.source[self.index] == "`":
            end = self.source.find("`", self.index + 1)
            if end < 0:
                self._unclosed("`")
            self._opaque(piece, end + 1)
        elif following and following in "({":
            self._opaque(piece, self._balanced(following, {"(": ")", "{": "}"}[following]))
        elif following and following in "0123456789@*#?!$-":
            self._opaque(piece, self.index + 2)
        else:
            piece.add("$")
            self.index += 1

    def _variable(self, piece: _Piece, match: re.Match[str] | None) -> None:
        assert match is not None
        name, default = match["name"], match.groupdict().get("default")
        if name in self.known:
            piece.add(self.known[name])
        elif default is None:
            piece.add(reference(name))
        else:
            piece.add(default)
            piece.doubt(f"the default of {name}, which is not looked up")
        self.index = match.end()

    def _balanced(self, opening: str, closing: str) -> int:
        """Give where ends what begins here with a dollar sign and an opening bracket."""
        depth = 0
        for index in range(self.index + 1, len(self.source)):
            character = self.source[index]
            depth += (character == opening) - (character == closing)
            if depth == 0:
                return index + 1
        self._unclosed(f"${opening}")
        return len(self.source)

    def _opaque(self, piece: _Piece, end: int) -> None:
        text = self.source[self.index : end]
        piece.add(literal(text))
        piece.doubt(f"{bare(text)} is known to a running shell only")
        self.index = end

    def _line(self) -> int:
        return self.first_line + bisect_left(self.ends, self.index)

    def _place(self) -> str:
        return f"line {self._line()}" if len(self.ends) > 1 else f"word {self.number or 1}"

    def _line_end(self) -> int:
        end = self.source.find("\n", self.index)
        return len(self.source) if end < 0 else end
