"""The word that a misspelt one was most likely meant to be; fast over tables of a thousand."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator


class Names:
    """Candidates that are looked through many times: found by how they begin, end, how long."""

    def __init__(self, names: Iterable[str]) -> None:
        self._forwards = sorted(set(names))
        self._backwards = sorted(name[::-1] for name in self._forwards)
        self._by_length: dict[int, list[str]] = {}
        for name in self._forwards:
            self._by_length.setdefault(len(name), []).append(name)
        self._lettered: dict[int, list[tuple[str, int]]] = {}

    def around(self, start: str, end: str) -> set[str]:
        """Give the names that begin or end so."""
        ends = _beginning(self._backwards, end[::-1])
        return {*_beginning(self._forwards, start), *(name[::-1] for name in ends)}

    def lengths(self) -> list[int]:
        return list(self._by_length)

    def of_length(self, length: int) -> list[tuple[str, int]]:
        """Give the names of a length, each with its letters."""
        if length not in self._lettered:
            self._lettered[length] = [(each, _letters(each)) for each in self._by_length[length]]
        return self._lettered[length]


def _beginning(ordered: list[str], start: str) -> list[str]:
    first = bisect_left(ordered, start)
    last = first
    while last < len(ordered) and ordered[last].startswith(start):
        last += 1
    return ordered[first:last]


def closest(word: str, candidates: Iterable[str] | Names, cutoff: float) -> str | None:
    """Give what `difflib.get_close_matches` gives first, in a tenth of its time.

    Those that share a third of the word at one of its ends, where one slip leaves the other as it
    was, are compared first, so that the bar is high for all others: most are ruled out by their
    length, then by their letters.
    """
    from difflib import SequenceMatcher  # slow to load, and most texts have no mistake

    names = candidates if isinstance(candidates, Names) else Names(candidates)
    length = len(word)
    third = max(1, length // 3)
    likely = names.around(word[:third], word[-third:])
    matcher = SequenceMatcher()
    matcher.set_seq2(word)
    ceiling, own = _ceiling(word), _letters(word)
    best = (cutoff, "")

    def compare(each: str) -> None:
        nonlocal best
        if 2.0 * ceiling(each) / (length + len(each) or 1) >= best[0]:
            matcher.set_seq1(each)
            best = max(best, (matcher.ratio(), each))

    for each in likely:
        if _is_between(len(each), length, best[0]):
            compare(each)
    for size in sorted(names.lengths(), key=lambda size: abs(size - length)):
        if not _is_between(size, length, best[0]):
            continue
        for each, letters in names.of_length(size):
            # A letter of one that the other lacks is shared by nobody.
            lost = max((own & ~letters).bit_count(), (letters & ~own).bit_count() + length - size)
            if 2.0 * (length - lost) / (length + size or 1) >= best[0] and each not in likely:
                compare(each)
    return best[1] or None


def slips(word: str) -> Iterator[str]:
    """Give what a word may have been before two neighbours changed places."""
    for index in range(len(word) - 1):
        first, second = word[index], word[index + 1]
        if first != second:
            yield f"{word[:index]}{second}{first}{word[index + 2 :]}"


def _letters(text: str) -> int:
    """Give the letters that occur as bits; two may share one."""
    bits = 0
    for letter in set(text):
        bits |= 1 << (ord(letter) & 63)
    return bits


def _is_between(size: int, length: int, bar: float) -> bool:
    """Tell whether a text of that size can be as near as `bar` to one of `length`."""
    return length * bar / (2 - bar) - 0.01 <= size <= length * (2 - bar) / bar + 0.01


def _ceiling(word: str) -> Callable[[str], int]:
    """Give a function that counts the letters which a text shares with `word`, in any order."""
    letters = tuple(Counter(word).items())

    def shared(text: str) -> int:
        count = 0
        for letter, number in letters:
            found = text.count(letter)
            count += found if found < number else number
        return count

    return shared
