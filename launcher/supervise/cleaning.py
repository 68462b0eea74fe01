"""What an engine writes, as lines that may be shown: bytes in, clean text out. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote

from kimi_serve.schemas.vocabulary import HIDDEN

MAX_LINE = 16 * 1024

_ESCAPE = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursors
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[@-Z\\-_]"
)
# A line that is only one of these would look like one of ours, or move the terminal's cursor.
_CONTROL = {
    **{code: f"\\x{code:02x}" for code in (*range(9), *range(10, 32), *range(127, 160))},
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029)},
}


class Cleaner:
    """Makes lines readable and takes every secret out of them."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        self.longest = max(map(len, forms), default=0)
        by_length = sorted(forms, key=len, reverse=True)
        self._secret = re.compile("|".join(map(re.escape, by_length))) if forms else None

    def clean(self, data: bytes, num_left_out: int = 0) -> str:
        """Give one line; `num_left_out` bytes of it follow that were not kept."""
        text = _ESCAPE.sub("", data.decode("utf-8", "replace")).translate(_CONTROL)
        if len(data) <= MAX_LINE and not num_left_out:
            return self._cover(text, len(text))
        # What was cut off at the end may be the second half of a secret.
        end = len(text) - (self.longest if num_left_out else 0)
        dropped = num_left_out + max(0, len(data) - MAX_LINE)
        return f"{self._cover(text, max(0, min(MAX_LINE, end)))} [{dropped} more bytes]"

    def _cover(self, text: str, end: int) -> str:
        """Give `text` up to `end`; a secret that begins before it is replaced whole."""
        if self._secret is None:
            return text[:end]
        parts: list[str] = []
        position = 0
        for match in self._secret.finditer(text):
            if match.start() >= end:
                break
            parts += [text[position : match.start()], HIDDEN]
            position = match.end()
        parts.append(text[position : max(position, end)])
        return "".join(parts)


def _forms(secret: str) -> Iterator[str]:
    """Give the ways in which a log may spell a secret: as it is, in JSON, in repr, in a URL."""
    for line in filter(None, (secret, *secret.splitlines())):
        yield line.translate(_CONTROL)
        yield json.dumps(line)[1:-1]
        yield json.dumps(line, ensure_ascii=False)[1:-1]
        yield repr(line)[1:-1]
        yield quote(line)
        yield quote(line, safe="")


class LineSplitter:
    """Cuts a stream into lines; of a long one it keeps what can be shown, and counts the rest."""

    def __init__(self, cleaner: Cleaner) -> None:
        self._cleaner = cleaner
        # A secret that begins within the limit must be seen whole, in its longest UTF-8.
        self._kept = MAX_LINE + 4 * cleaner.longest
        self._line = bytearray()
        self._num_left_out = 0
        self._is_after_return = False

    def feed(self, data: bytes) -> Iterator[str]:
        r"""Take what was read; give the lines that are complete. "\r" ends one too (progress)."""
        *whole, rest = re.split(rb"\r\n|\n|\r", data)
        for index, part in enumerate(whole):
            if not (index == 0 and not part and self._is_after_return and data[:1] == b"\n"):
                self._append(part)
                yield self._take()
        self._append(rest)
        self._is_after_return = data[-1:] == b"\r"

    def rest(self) -> str:
        """Give the last line, which has no end yet; "" when there is none."""
        return self._cleaner.clean(bytes(self._line), self._num_left_out) if self._line else ""

    def finish(self) -> str:
        """Give the last line and forget it."""
        return self._take()

    def _append(self, part: bytes) -> None:
        room = max(0, self._kept - len(self._line))
        self._line += part[:room]
        self._num_left_out += max(0, len(part) - room)

    def _take(self) -> str:
        line = self.rest()
        self._line.clear()
        self._num_left_out = 0
        return line
