"""References in every dialect: what is read, what is refused, and what the refusal says."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import DISPLAY, encoded, load_json, picture

from kimi_serve.preprocess.images.decode import decode_image
from kimi_serve.preprocess.images.reference import classify, read_inline, read_reference, refusal
from kimi_serve.schemas.errors import MediaError, MediaTooLargeError

LIMIT = 2**24
CASES: list[dict[str, Any]] = load_json("strings.json")
PNG = encoded(picture(), "PNG")
# Its base64 holds '+' and '/', which the odd dialects change.
PNG_64 = b64encode(PNG).decode()
JPEG_64 = b64encode(encoded(picture(), "JPEG")).decode()
FOLDED = "\r\n".join(PNG_64[at : at + 76] for at in range(0, len(PNG_64), 76))
SVG = "<svg xmlns='http://www.w3.org/2000/svg'/>"


def _read(text: str) -> bytes:
    data = read_inline(text, LIMIT)
    decode_image(data, DISPLAY)
    return data


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    text = case["input"].replace("{cases}", "/srv/cases")
    if case["required"] == "accept":
        assert classify(text) == "inline"
        assert _read(text)
        return
    with pytest.raises(MediaError) as caught:
        _read(text)
    assert caught.value.status == 400
    assert "/srv" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{PNG_64}",
        f"DATA:image/png;base64,{PNG_64}",
        f"Data:IMAGE/PNG;BASE64,{PNG_64}",
        f"data:image/png;charset=utf-8;base64,{PNG_64}",
        f'data:image/png;name="a,b.png";base64,{PNG_64}',
        f'data:image/png;name="a\\",b.png";base64,{PNG_64}',
        f"data:image/png; base64,{PNG_64}",
        f"data:image/png;base64 ,{PNG_64}",
        f"data:image/png;base64, {PNG_64}",
        f"data:;base64,{PNG_64}",
        f"data:image/png;base64,{PNG_64.rstrip('=')}",
        f"data:image/png;base64,{PNG_64}====",
        f"data:image/png;base64,{urlsafe_b64encode(PNG).decode()}",
        f"data:image/png;base64,{urlsafe_b64encode(PNG).decode().rstrip('=')}",
        f"data:image/png;base64,{quote(PNG_64, safe='')}",
        f"data:image/png;base64,{quote(FOLDED)}",
        f"data:image/png;base64,{FOLDED}",
        f"data:image/png;base64,\n{FOLDED}\n",
        f"data:image/png;base64,{FOLDED.replace(chr(13), '')}",
        f"data:image/png;base64,{FOLDED.replace(chr(10), '')}",
        f"data:image/png;base64,{FOLDED.replace(chr(13), chr(9))}",
        f"data:image/png;base64,{FOLDED.replace(chr(10), chr(10) + '    ')}",
        f"data:image/png;base64,{FOLDED.replace(chr(13), '  ')}",
        f"data:image/png,{quote(PNG)}",
        f"data:,{quote(PNG)}",
        f"\n data:image/png;base64,{PNG_64} \n",
        f"\ufeffdata:image/png;base64,{PNG_64}",
        f" \ufeff\n data:image/png;base64,{PNG_64}",
        f"\ufeff{PNG_64}",
        PNG_64,
        f"  {PNG_64}\n",
        FOLDED,
        quote(PNG_64, safe=""),
        urlsafe_b64encode(PNG).decode().rstrip("="),
    ],
)
def test_dialects_of_one_file(text: str) -> None:
    assert classify(text) == "inline"
    assert _read(text) == PNG


@pytest.mark.parametrize("text", [JPEG_64, JPEG_64.rstrip("="), "\n" + JPEG_64, JPEG_64[:80]])
def test_bare_jpeg_is_no_path(text: str) -> None:
    assert text.strip().startswith("/9j/")
    assert classify(text) == "inline"


def test_space_for_plus_is_refused_with_a_hint() -> None:
    assert "+" in PNG_64
    for text in (PNG_64, quote(PNG_64, safe="+")):
        spaced = text.replace("+", " ")
        with pytest.raises(MediaError, match=r"'\+' was decoded as a space.*%2B"):
            read_inline(f"data:image/png;base64,{spaced}", LIMIT)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty string"),
        (" \n", "empty string"),
        ("data:image/png;base64,", "empty after its comma"),
        ("data:image/png;base64,  ", "empty after its comma"),
        ("data:", "no comma"),
        (f"data:image/png;base64;{PNG_64}", "no comma"),
        (f'data:image/png;name="a;base64,{PNG_64}', "no comma"),
        (f"data:base64,{PNG_64}", "must end in ';base64'"),
        (f"data:image/png,{PNG_64}", "must end in ';base64'"),
        (f"data:image/png;base64;charset=utf-8,{PNG_64}", "must end in ';base64'"),
        (f"data:image/png;utf8,{PNG_64}", "must end in ';base64'"),
        (f"data:image/png;base64,data:image/png;base64,{PNG_64}", "prefix twice"),
        (f"data:image/png;base64,DATA%3Aimage/png;base64,{PNG_64}", "prefix twice"),
        (f"data:image/png;base64,{b64encode(PNG_64.encode()).decode()}", "encoded twice"),
        (b64encode(PNG_64.encode()).decode(), "encoded twice"),
        (f"data:image/png;base64,b'{PNG_64}'", "bytes object"),
        (f'b"{PNG_64}"', "bytes object"),
        (f"b'{PNG_64}'", "bytes object"),
        (f"'{PNG_64}'", "quotes around"),
        (f'"data:image/png;base64,{PNG_64}"', "quotes around"),
        (PNG.hex(), "hexadecimal"),
        ("0x" + PNG.hex(), "hexadecimal"),
        (PNG.hex().upper(), "hexadecimal"),
        (PNG.hex(" "), "hexadecimal"),
        (PNG.hex("\n", 16), "hexadecimal"),
        (f"data:image/png;base64,{PNG.hex()}", "no known image format"),
        (f"data:image/png;base64,{PNG_64}@@@@", "character"),
        (f"data:image/png;base64,{PNG_64}\n--boundary", "character '='"),
        (f"data:image/png;base64,{PNG_64.rstrip('=')}...", "character '.'"),
        (f"data:image/png;base64,{PNG_64[:40]}\\n{PNG_64[40:]}", r"character '\\\\'"),
        (f"data:image/png;base64,{PNG_64[:40]}é{PNG_64[40:]}", "character 'é'"),
        (f"data:image/png;base64,{PNG_64[:40]}%zz{PNG_64[40:]}", "starts no escape"),
        (f"data:image/png;base64,{PNG_64[:41]}", "is cut"),
        ("data:image/png,%8", "starts no escape"),
        ("data:image/png,\ud800", "character"),
        ("data:image/png;base64,\ud800", "character"),
        (f"data:image/png;base64,{PNG_64[:40]}", "truncated|cannot be decoded"),
        (f"data:image/svg+xml;utf8,{SVG}", "SVG is not supported: send JPEG"),
        (f"data:image/svg+xml,{quote(SVG)}", "SVG is not supported: send JPEG"),
        (f"data:image/svg+xml;base64,{b64encode(SVG.encode()).decode()}", "SVG is not supported"),
        (b64encode(SVG.encode()).decode(), "SVG is not supported"),
        (SVG, "SVG is not supported"),
        ("<html><body>404", "HTML is not supported"),
        ("data:text/html,<h1>Not found</h1>", "HTML is not supported"),
        ("data:text/plain,hello", "text is not supported"),
        ('{"url": "https://example.com/a.png"}', "JSON is not supported"),
        ("<PIL.Image.Image image mode=RGB size=4x4 at 0x7F>", "not supported"),
        ("photo", "neither a data URL nor the base64"),
        ("null", "neither a data URL nor the base64"),
        ("image", "neither a data URL nor the base64|cut"),
    ],
)
def test_mistakes_are_named(text: str, says: str) -> None:
    assert classify(text) == "inline"
    with pytest.raises(MediaError, match=says) as caught:
        _read(text)
    assert caught.value.status == 400
    assert len(caught.value.message) < 300


LOCAL = [
    "/etc/passwd", "/etc/no/such", "/9j/photo.png", "file:///etc/passwd", "FILE:///etc/passwd",
    "file://host/x", "file:x.png", "photo.png", "./photo", "../x", "~/x.png", "C:\\x\\y.png",
    "C:/x/y.png", "\\\\host\\share\\x.png", "/tmp/a\0b.png", "{cases}/a.png", "dir/x.png", "/",
]  # fmt: skip


@pytest.mark.parametrize("text", LOCAL)
def test_local_paths_share_one_refusal(text: str) -> None:
    assert classify(text) == "local"
    with pytest.raises(MediaError) as caught:
        read_inline(text, LIMIT)
    assert caught.value.message == refusal("local", "/").message


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("https://example.com/a.png", "https URLs"),
        ("HTTP://user:secret@example.com/a.png", "http URLs"),
        ("  https://example.com/a.png", "https URLs"),
        ("ftp://example.com/a.png", "ftp references"),
        ("gopher://127.0.0.1:70/x.png", "gopher references"),
        ("s3://bucket/key?secret", "s3 references"),
        ("javascript:alert(1)", "javascript references"),
        ("blob:https://example.com/uuid", "blob references"),
        ("about:blank", "about references"),
        ("//example.com/a.png", "scheme-relative references"),
    ],
)
def test_remote_references(text: str, name: str) -> None:
    assert classify(text) == "remote"
    with pytest.raises(MediaError, match=f"^{name}") as caught:
        read_inline(text, LIMIT)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        f"data:image/png;base64,{PNG_64}",
        f"data:image/png;base64,{FOLDED}",
        f"data:image/png,{quote(PNG)}",
        PNG_64,
    ],
)
def test_size_limit_is_exact(text: str) -> None:
    assert read_inline(text, len(PNG)) == PNG
    with pytest.raises(
        MediaTooLargeError, match=rf"has {len(PNG)} bytes; at most .*media\.max_bytes"
    ):
        read_inline(text, len(PNG) - 1)


@pytest.mark.parametrize(
    "text",
    [
        "data:" + '\\"' * 500_000,
        'data:"' + '\\"' * 500_000,
        "data:" + ";base64 " * 100_000,
        "data:image/png;base64,A" + " " * 1_000_000 + "A",
        "data:image/png;base64,A" + " \t" * 500_000 + "A",
        "data:image/png;base64," + "\n" * 1_000_000 + "A",
        "data:image/png;base64," + "%" * 1_000_000,
        "0" * 1_000_001,
        "<" * 1_000_000,
        " " * 1_000_000,
        "=" * 1_000_000,
    ],
)
def test_time_is_linear(text: str) -> None:
    started = time.process_time()
    with pytest.raises(MediaError):
        _read(text)
    assert time.process_time() - started < 2


@given(st.text(max_size=200))
def test_any_text_ends_in_bytes_or_a_media_error(text: str) -> None:
    for prefix in ("", "data:", "data:image/png;base64,", "data:image/png,", "/9j/"):
        classify(prefix + text)
        with contextlib.suppress(MediaError):
            read_inline(prefix + text, LIMIT)


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_survive_every_encoding(data: bytes) -> None:
    plain = b64encode(data).decode()
    for body in (plain, plain.rstrip("="), urlsafe_b64encode(data).decode(), quote(plain, "")):
        assert read_inline(f"data:;base64,{body}", LIMIT) == data
    assert read_inline("data:;base64," + "\n".join(plain), LIMIT) == data


def _outcome(read: Callable[[], bytes]) -> bytes | str:
    try:
        return read()
    except MediaError as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("size", [0, 1, 2, 3, 60, 61, 62, 63, 64, 100])
@pytest.mark.parametrize(
    "header", ["data:image/png;base64,", "data:;base64,", "data:a;b=c;base64,"]
)
def test_bytes_are_read_as_their_text_is(header: str, size: int) -> None:
    plain = b64encode(bytes(range(size))).decode()
    bodies = [plain, plain.rstrip("="), plain + "=", plain[:-1], plain + "\n", f" {plain}", "=",
              plain[:9] + "==" + plain[9:], plain.replace("B", "-"), plain + "%3D", plain + "ü",
              f"{header}{plain}", plain + plain]  # fmt: skip
    for body in bodies:
        for limit in (size - 1, size, LIMIT):
            text = header + body
            expected = _outcome(lambda text=text, limit=limit: read_inline(text, limit))
            found = _outcome(lambda text=text, limit=limit: read_reference(text.encode(), limit))
            assert found == expected, (body, limit)


def test_plain_base64_is_not_copied() -> None:
    content = b"data:image/png;base64," + b64encode(bytes(6_000_000))
    tracemalloc.start()
    try:
        assert len(read_reference(content, 10**7)) == 6_000_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6_100_000


def test_long_hexadecimal_text_needs_little_memory() -> None:
    """It is a known mistake of clients, as long as any image."""
    text = "ab" * 500_000
    tracemalloc.start()
    with pytest.raises(MediaError, match="hexadecimal"):
        read_inline(text, 2**20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * len(text)
