"""Strings that name an image: data URLs and bare base64 in all dialects, and what is refused.

Nothing here opens a file or a socket.
"""

from __future__ import annotations

import contextlib
import re
from typing import Literal
from urllib.parse import unquote_to_bytes

import pybase64

from kimi_serve.schemas.errors import MediaError

from .limits import require_bytes
from .sniff import is_hexadecimal, sniff

ReferenceKind = Literal["inline", "remote", "local"]

_ADVICE = "send the image as a data URL (data:image/png;base64,...)"
_PLAIN_HEADER = re.compile(rb"data:[A-Za-z0-9.+/-]{0,99};base64,")
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_HEAD = 96
# Every JPEG begins FF D8 FF, so its base64 begins like an absolute path.
_BARE_JPEG = "/9j/"
_BARE_BASE64 = re.compile(r"(?:[A-Za-z0-9+/_=\s-]|%[0-9A-Fa-f]{2})*")
_QUOTE_OR_COMMA = re.compile(r'\\.|[",]', re.S)
BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/]")
_REPAIRABLE = (b"\n", b"\r", b"\t", b" ", b"-", b"_")
_URL_SAFE = bytes.maketrans(b"-_", b"+/")
# Things that clients paste by mistake; they are read as content, so that the error can name them.
_PASTED = re.compile(r"b?['\"]|<|[{\[]\s*['\"{\[\]}]")
_MEANINGLESS = ("empty", "unknown bytes", "text", "white space only")


def classify(text: str) -> ReferenceKind:
    """Tell from its beginning whether a reference carries the image or only points at one."""
    head = _trimmed(text[: 4 * _HEAD])[:_HEAD]
    scheme = _SCHEME.match(head)
    if scheme is not None:
        name = scheme[1].lower()
        return "inline" if name == "data" else "local" if name == "file" else "remote"
    if head.startswith(("//", "\\\\")):
        return "remote" if head.startswith("//") else "local"
    if head.startswith("/"):
        is_jpeg = head.startswith(_BARE_JPEG) and _BARE_BASE64.fullmatch(head)
        return "inline" if is_jpeg else "local"
    if not head or _PASTED.match(head):
        return "inline"
    return "inline" if _BARE_BASE64.fullmatch(_whole_escapes(head)) else "local"


def refusal(kind: Literal["remote", "local"], text: str) -> MediaError:
    """Make the error for a reference that only points at an image.

    All local paths get the same text, so nothing can be learnt about what exists.
    """
    if kind == "local":
        return MediaError(f"local paths and file URLs are not accepted: {_ADVICE}")
    scheme = _SCHEME.match(_trimmed(text))
    name = scheme[1].lower() if scheme else "scheme-relative"
    if name in ("http", "https"):
        return MediaError(f"{name} URLs are not fetched by this server: {_ADVICE}")
    return MediaError(f"{name} references cannot be read: {_ADVICE}")


def read_reference(content: bytes, max_bytes: int) -> bytes:
    """Decode a reference as UTF-8 bytes; plain base64 is read where it lies, without a copy.

    Gives, or raises, what `read_inline` does.
    """
    header = _PLAIN_HEADER.match(content)
    body = memoryview(content)[header.end() if header else len(content) :]
    if 0 < len(body) <= 4 * (max_bytes // 3):
        with contextlib.suppress(ValueError):
            return pybase64.b64decode(body, validate=True)
    return read_inline(content.decode(), max_bytes)


def read_inline(text: str, max_bytes: int) -> bytes:
    """Decode a data URL or bare base64 into the bytes of the file that it carries."""
    kind = classify(text)
    if kind != "inline":
        raise refusal(kind, text)
    text = _trimmed(text)
    if not text:
        raise MediaError(f"the image reference is an empty string: {_ADVICE}")
    if text[:5].lower() == "data:":
        return _read_data_url(text, max_bytes)
    return _read_bare(text, max_bytes)


def _read_data_url(text: str, max_bytes: int) -> bytes:
    comma = _comma(text)
    if comma is None:
        raise MediaError(f"the data URL {_shown(text)} has no comma before its data: {_ADVICE}")
    header, body = text[5:comma], text[comma + 1 :].strip()
    if not body:
        raise MediaError(f"the data URL {_shown(text)} is empty after its comma")
    _refuse_known_mistakes(body)
    # RFC 2397: a lone 'base64' is a media type, only ';base64' announces the encoding.
    if ";" in header and header.rpartition(";")[2].strip().lower() == "base64":
        return _decode_base64(body, max_bytes)
    data = _unquoted(body)
    if sniff(data).name.startswith("base64"):
        message = (
            f"the header of the data URL {_shown(text)} must end in ';base64' before the comma"
        )
        raise MediaError(message)
    require_bytes(len(data), max_bytes)
    return data


def _comma(text: str) -> int | None:
    """Find the comma that ends the header; one inside a quoted parameter does not."""
    quoted = False
    for found in _QUOTE_OR_COMMA.finditer(text):
        mark = found[0] if quoted else found[0][-1]
        if mark == '"':
            quoted = not quoted
        elif mark == "," and not quoted:
            return found.end() - 1
    return None


def _read_bare(text: str, max_bytes: int) -> bytes:
    _refuse_known_mistakes(text)
    if _PASTED.match(text):
        raise MediaError(f"{_text_name(text)} is not supported as an image reference: {_ADVICE}")
    if is_hexadecimal(text):
        raise MediaError(f"the image is written in hexadecimal ({_shown(text)}): {_ADVICE}")
    # No file of any image format is as short as a word.
    data = _decode_base64(text, max_bytes) if len(text) >= 32 else b""
    found = sniff(data)
    if found.format is None and found.name in _MEANINGLESS:
        message = f"{_shown(text)} is neither a data URL nor the base64 of an image: {_ADVICE}"
        raise MediaError(message)
    return data


def _refuse_known_mistakes(body: str) -> None:
    """Name the accidents of clients that would otherwise read as odd characters."""
    if body[:5].lower() == "data:":
        raise MediaError("the data URL has its prefix twice ('data:...,data:...'): send it once")
    if body.startswith(("b'", 'b"')):
        message = "the image is the Python text of a bytes object (b'...'): call .decode() on it"
        raise MediaError(message)
    if body.startswith(("'", '"')):
        raise MediaError("the image reference has quotes around it: send it without them")


def _decode_base64(body: str, max_bytes: int) -> bytes:
    """Decode strictly, after one percent-decoding and the repairs that leave no doubt."""
    if "%" in body:
        body = _unquoted(body).decode("latin-1").strip()
        _refuse_known_mistakes(body)
    try:
        raw = body.encode("ascii")
    except UnicodeEncodeError as error:
        raise _odd_character(body[error.start], error.start) from None
    raw = _repaired(raw) if any(mark in raw for mark in _REPAIRABLE) else raw.rstrip(b"=")
    require_bytes(len(raw) * 3 // 4, max_bytes)
    try:
        return pybase64.b64decode(raw + b"=" * (-len(raw) % 4), validate=True)
    except ValueError:
        _repaired(raw)  # names the fault
        raise MediaError("the image data is not base64") from None


def _repaired(raw: bytes) -> bytes:
    """Unfold lines and take the URL-safe alphabet; whatever else is odd is named with its place.

    Every step is linear in the length: the text comes from a stranger.
    """
    lines = (line.strip(b" \t") for line in raw.splitlines())
    raw = b"".join(lines).replace(b"\t", b"").translate(_URL_SAFE).rstrip(b"=")
    odd = _NOT_BASE64.search(raw)
    if odd is not None and odd[0] == b" ":
        raise MediaError(
            "the base64 text has a space inside: a '+' was decoded as a space on the way; "
            "send it as %2B, or send JSON instead of form data"
        )
    if odd is not None:
        raise _odd_character(odd[0].decode("latin-1"), odd.start())
    if len(raw) % 4 == 1:
        raise MediaError(f"the base64 text is cut: {len(raw)} characters cannot be a whole file")
    return raw


def _unquoted(body: str) -> bytes:
    odd = BAD_ESCAPE.search(body)
    if odd is not None:
        message = f"the data URL has a '%' at position {odd.start()} that starts no escape"
        raise MediaError(f"{message}: write it as %25")
    try:
        return unquote_to_bytes(body)
    except UnicodeEncodeError as error:
        raise _odd_character(body[error.start], error.start) from None


def _odd_character(character: str, position: int) -> MediaError:
    shown = repr(character) if len(repr(character)) < 12 else "?"
    return MediaError(f"the image data has the character {shown} at position {position}")


def _trimmed(text: str) -> str:
    """Take off outer white space, and the byte order mark that some editors put in front."""
    return text.strip().removeprefix("\ufeff").strip()


def _whole_escapes(head: str) -> str:
    """Drop an escape that the end of the head cut in two."""
    return re.sub(r"%[0-9A-Fa-f]?\Z", "", head)


def _text_name(text: str) -> str:
    return sniff(text[:4096].encode("utf-8", "replace")).name


def _shown(text: str) -> str:
    """Give the beginning of a reference for a message."""
    text = text.strip()
    return repr(text) if len(text) <= 40 else f"{text[:32]!r}... of {len(text)} characters"
