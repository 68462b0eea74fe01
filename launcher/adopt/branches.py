"""Which branch of a shell script is being read: the first of each condition is taken as run."""

from __future__ import annotations

from dataclasses import dataclass, field

from .words import Told, Word

_OPENING = ("if", "for", "while", "until", "case", "select")
_CLOSING = ("fi", "done", "esac")
# Words that begin no command by themselves.
_SILENT = ("then", "else", "do", *_CLOSING)
_TESTS = ("[", "[[", "test")


@dataclass(slots=True)
class _Block:
    """A condition or a loop whose commands are being read."""

    name: str
    is_other: bool = False


@dataclass(slots=True)
class Branches:
    """The conditions around a command, and the test in front of it."""

    told: Told
    _blocks: list[_Block] = field(default_factory=lambda: list[_Block]())
    _test: str = ""

    def keyword(self, word: Word) -> bool:
        """Note where a branch begins or ends; gives whether the word is nothing but that."""
        if word.text in _OPENING:
            self._blocks.append(_Block(f"`{word.text}` ({word.place})"))
        elif self._blocks and word.text in ("elif", "else"):
            self._blocks[-1].is_other = True
        elif self._blocks and word.text in _CLOSING:
            self._blocks.pop()
        return word.text in _SILENT

    def end(self, words: tuple[Word, ...], operator: str) -> None:
        """Note the end of a command: `[ ... ] &&` decides about the next."""
        is_test = bool(words) and words[0].text in _TESTS and operator in ("&&", "||")
        self._test = f"`{words[0].text}` ({words[0].place})" if is_test else ""

    @property
    def condition(self) -> str:
        """Name what decides whether the command that is read runs."""
        return self._blocks[-1].name if self._blocks else self._test

    @property
    def is_other(self) -> bool:
        """Whether it is in a branch that is not taken."""
        return any(block.is_other for block in self._blocks)

    def counts(self, name: str, place: str) -> bool:
        """Say of a variable that is set under a condition whether it is taken."""
        if not self.condition:
            return True
        if self.is_other:
            text = f"left out ({place}): {name} is set in the other branch of {self.condition}"
            self.told.note(f"{text}, whose condition is taken as true")
            return False
        self.told.note(f"{place}: {name} is set under {self.condition}: taken as if it held")
        return True
