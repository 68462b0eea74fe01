"""Formats by content: each kind has its name, and nothing crashes."""

from __future__ import annotations

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from image_samples import ALL_FORMATS, encoded, picture

from kimi_serve.preprocess.images.sniff import FORMAT_NAMES, Sniffed, sniff

PNG = encoded(picture(), "PNG")


@pytest.mark.parametrize("name", ALL_FORMATS)
def test_formats_that_can_be_listed(name: str) -> None:
    found = sniff(encoded(picture(), name.upper()))
    assert found == Sniffed(name, FORMAT_NAMES[name])


def test_variants_of_listed_formats() -> None:
    assert sniff(encoded(picture(), "MPO", save_all=True)).format == "jpeg"
    assert sniff(encoded(picture().convert("P"), "GIF")).format == "gif"
    assert sniff(encoded(picture(), "TIFF", big_tiff=True)).format == "tiff"
    assert sniff(b"MM\0*\0\0\0\x08").format == "tiff"
    assert sniff(b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf").format == "avif"
    assert sniff(b"\0\0\0\x18ftypavis\0\0\0\0avis").format == "avif"
    assert sniff(b"\xff\xd8").format == "jpeg"


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"\0\0\1\0\1\0", "ICO"),
        (b"\0\0\2\0\1\0", "CUR"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
        (encoded(picture(), "TGA"), "TGA"),
        (encoded(picture(), "TGA", compression="tga_rle"), "TGA"),
        (b"\xff\x4f\xff\x51\0", "JPEG 2000"),
        (b"\xff\x0a\0", "JPEG XL"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIC"),
        (b"\0\0\0\x14ftypmif1\0\0\0\0mif1", "HEIF"),
        (b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "Canon raw"),
        (b"II*\0\x10\0\0\0CR\2\0", "Canon raw"),
        (b"%!PS-Adobe-3.0 EPSF-3.0", "EPS"),
        (b"\xc5\xd0\xd3\xc6\0", "EPS"),
        (b"\xd7\xcd\xc6\x9a", "WMF"),
        (b"8BPS\0\1", "Photoshop"),
        (b"qoif", "QOI"),
        (b"\0" * 128 + b"DICM", "DICOM"),
    ],
)
def test_other_image_formats(data: bytes, name: str) -> None:
    assert sniff(data) == Sniffed(None, name, is_raster=True)


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (b"", "empty"),
        (b" \r\n\t", "white space only"),
        (b"%PDF-1.7", "PDF"),
        (b"\x7fELF\2\1", "an ELF program"),
        (b"MZ\x90\0", "a Windows program"),
        (b"PK\3\4", "a ZIP archive"),
        (b"\x1f\x8b\x08", "gzip data"),
        (b"\0\0\0\x18ftypisom\0\0\0\0isom", "MP4"),
        (b"\0\0\0\x14ftypqt  \0\0\0\0qt  ", "QuickTime video"),
        (b"RIFF\0\0\0\0AVI ", "AVI"),
        (b"RIFF\0\0\0\0WAVE", "WAV"),
        (b"RIFF", "a RIFF file"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
        (b"<?xml version='1.0'?>\n<!-- x --><svg width='1'>", "SVG"),
        (b"\xef\xbb\xbf  <SVG>", "SVG"),
        ("<svg/>".encode("utf-16"), "SVG"),
        (b"<!DOCTYPE html><title>404</title>", "HTML"),
        (b"\n<html>", "HTML"),
        (b"<h1>Not found</h1>", "HTML"),
        (b"<Error><Code>AccessDenied</Code></Error>", "XML"),
        (b'{"error": "no"}', "JSON"),
        (b"[1, 2]", "JSON"),
        (b"data:image/png;base64,iVBOR", "a data URL (prefix sent twice?)"),
        (b"b'\\x89PNG'", "the Python text of a bytes object"),
        (b64encode(PNG), "base64 text (encoded twice?)"),
        (PNG.hex().encode(), "hexadecimal text"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"Not found", "text"),
        ("größe".encode(), "text"),
        (b"BM is how this text begins, and it is no bitmap", "text"),
        (b"\n" + PNG, "PNG with stray bytes in front"),
        (PNG.replace(b"\r\n", b"\n", 1), "PNG with a damaged signature (transferred as text?)"),
        (PNG.decode("utf-8", "replace").encode(), "binary data that was decoded as text"),
        (
            encoded(picture(), "JPEG").decode("utf-8", "replace").encode(),
            "binary data that was decoded as text",
        ),
        (b"\0\1\2\3", "unknown bytes"),
        (b"\xff", "unknown bytes"),
        (b"\x89", "unknown bytes"),
    ],
)
def test_things_that_are_no_image(data: bytes, name: str) -> None:
    found = sniff(data)
    assert (found.format, found.is_raster) == (None, False)
    assert found.name.startswith(name)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_name(data: bytes) -> None:
    assert sniff(data).name


@given(st.text(max_size=300), st.sampled_from(["utf-8", "utf-16", "latin-1"]))
def test_any_text_has_a_name(text: str, encoding: str) -> None:
    assert sniff(text.encode(encoding, "replace")).name
