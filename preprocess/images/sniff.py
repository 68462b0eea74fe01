"""Tells what bytes are by their content; names, declared types and extensions play no part."""

from __future__ import annotations

import re
from dataclasses import dataclass

FORMAT_NAMES = {
    "jpeg": "JPEG", "png": "PNG", "webp": "WebP", "gif": "GIF",
    "bmp": "BMP", "tiff": "TIFF", "avif": "AVIF",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sniffed:
    """What bytes are: one of our formats, another image format, or something else by name.

    `is_raster` marks image formats that are well known and never accepted.
    """

    format: str | None
    name: str
    is_raster: bool = False


# Image formats that no setting can list; the vector formats among them are refused alike.
_OTHER_IMAGES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\0\0\1\0", "ICO"),
    # TGA without a colour map, plain or run-length; a CUR counts its pictures in these zeros.
    (0, b"\0\0\2\0\0\0\0\0", "TGA"),
    (0, b"\0\0\x0a\0\0\0\0\0", "TGA"),
    (0, b"\0\0\2\0", "CUR"),
    (0, b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    (0, b"\xff\x4f\xff\x51", "JPEG 2000"),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "JPEG XL"),
    (0, b"\xff\x0a", "JPEG XL"),
    (0, b"II\xbc", "JPEG XR"),
    (0, b"%!PS", "EPS"),
    (0, b"\xc5\xd0\xd3\xc6", "EPS"),
    (0, b"\xd7\xcd\xc6\x9a", "WMF"),
    (40, b" EMF", "EMF"),
    (0, b"8BPS", "Photoshop"),
    (0, b"icns", "ICNS"),
    (0, b"qoif", "QOI"),
    (0, b"DDS ", "DDS"),
    (0, b"\x76\x2f\x31\x01", "OpenEXR"),
    (0, b"#?RADIANCE", "Radiance HDR"),
    (0, b"gimp xcf", "XCF"),
    (0, b"SIMPLE  =", "FITS"),
    (0, b"AT&TFORM", "DjVu"),
    (0, b"BPG\xfb", "BPG"),
    (0, b"\x8aMNG\r\n\x1a\n", "MNG"),
    (0, b"\x8bJNG\r\n\x1a\n", "JNG"),
    (0, b"\x0a\x05\x01", "PCX"),
    (0, b"\x01\xda\x00", "SGI"),
    (0, b"\x01\xda\x01", "SGI"),
    (0, b"IIRO", "Olympus raw"),
    (0, b"IIU\0", "Panasonic raw"),
    (0, b"FUJIFILMCCD-RAW", "Fujifilm raw"),
    (128, b"DICM", "DICOM"),
)

_NO_IMAGES: tuple[tuple[int, bytes, str], ...] = (
    (0, b"%PDF-", "PDF"),
    (0, b"\x7fELF", "an ELF program"),
    (0, b"MZ", "a Windows program"),
    (0, b"\xca\xfe\xba\xbe", "a Java class or macOS program"),
    (0, b"\xcf\xfa\xed\xfe", "a macOS program"),
    (0, b"\0asm", "WebAssembly"),
    (0, b"PK\x03\x04", "a ZIP archive"),
    (0, b"PK\x05\x06", "a ZIP archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"BZh", "bzip2 data"),
    (0, b"\xfd7zXZ\0", "xz data"),
    (0, b"\x28\xb5\x2f\xfd", "zstandard data"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a RAR archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x1a\x45\xdf\xa3", "Matroska or WebM"),
    (0, b"OggS", "Ogg"),
    (0, b"fLaC", "FLAC"),
    (0, b"ID3", "MP3"),
    (0, b"FLV\x01", "FLV"),
    (0, b"\0\0\1\xba", "MPEG video"),
    (0, b"\x93NUMPY", "a NumPy file"),
    (0, b"\x80\x04\x95", "a Python pickle"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"wOFF", "a font"),
    (0, b"wOF2", "a font"),
)

# Sizes of the information header by which real BMP files differ from text that begins with BM.
_BMP_HEADERS = {12, 16, 40, 52, 56, 64, 108, 124}
_AVIF_BRANDS = {b"avif", b"avis"}
_HEIC_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"}
_HTML = re.compile(r"<(?:!doctype\s+html|html|head|body|title|h1|p|div|script|meta)\b", re.I)
_SVG = re.compile(r"<svg[\s>/]", re.I)
_HEX = re.compile(r"(?:0x)?[0-9a-fA-F\s]+")
_TEXTS = (
    (re.compile(r"\Z"), "white space only"),
    (re.compile(r"[{\[]"), "JSON"),
    (re.compile(r"data:", re.I), "a data URL (prefix sent twice?)"),
    (re.compile(r"b['\"]"), "the Python text of a bytes object"),
    (re.compile(r"version https://git-lfs"), "a Git LFS pointer"),
    (re.compile(r"(?:[A-Za-z0-9+/_-]\r?\n?){16,}={0,2}\s*\Z"), "base64 text (encoded twice?)"),
)


def sniff(data: bytes) -> Sniffed:
    """Name what the bytes are from their first kilobytes."""
    if not data:
        return Sniffed(None, "empty")
    accepted = _listable_format(data)
    if accepted is not None:
        return Sniffed(accepted, FORMAT_NAMES[accepted])
    for offset, magic, name in _OTHER_IMAGES:
        if data.startswith(magic, offset):
            return Sniffed(None, name, is_raster=True)
    for offset, magic, name in _NO_IMAGES:
        if data.startswith(magic, offset):
            return Sniffed(None, name)
    if data[4:8] == b"ftyp":
        return _media_box(data)
    return _damaged_start(data) or Sniffed(None, _text_name(data) or "unknown bytes")


def _listable_format(data: bytes) -> str | None:
    if data.startswith(b"\xff\xd8") and data[2:3] in (b"\xff", b""):
        return "jpeg"
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if data.startswith((b"GIF87a", b"GIF89a")):
        return "gif"
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return "webp"
    if data.startswith(b"BM") and int.from_bytes(data[14:18], "little") in _BMP_HEADERS:
        return "bmp"
    if data.startswith((b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")) and data[8:10] != b"CR":
        return "tiff"
    if data[4:8] == b"ftyp" and _brands(data) & _AVIF_BRANDS:
        return "avif"
    return None


def _brands(data: bytes) -> set[bytes]:
    end = min(int.from_bytes(data[:4], "big"), len(data), 1024)
    return {data[8:12]} | {data[at : at + 4] for at in range(16, end - 3, 4)}


def _media_box(data: bytes) -> Sniffed:
    brands = _brands(data)
    if brands & _HEIC_BRANDS:
        return Sniffed(None, "HEIC", is_raster=True)
    if brands & {b"mif1", b"msf1"}:
        return Sniffed(None, "HEIF", is_raster=True)
    if b"crx " in brands:
        return Sniffed(None, "Canon raw", is_raster=True)
    return Sniffed(None, "QuickTime video" if data[8:12] == b"qt  " else "MP4")


def _damaged_start(data: bytes) -> Sniffed | None:
    """Name files whose first bytes show a known accident."""
    if data.startswith(b"II*\0"):
        return Sniffed(None, "Canon raw", is_raster=True)
    if data.startswith(b"\x89PNG") or data[1:4] == b"PNG":
        return Sniffed(None, "PNG with a damaged signature (transferred as text?)")
    # U+FFFD in UTF-8, which stands where a byte was no text.
    if data.startswith((b"\xef\xbf\xbdPNG", 2 * b"\xef\xbf\xbd")):
        return Sniffed(None, "binary data that was decoded as text")
    inner = _listable_format(data[:4096].lstrip(b" \t\r\n\xef\xbb\xbf"))
    if inner is not None:
        return Sniffed(None, f"{FORMAT_NAMES[inner]} with stray bytes in front")
    if data.startswith(b"RIFF"):
        return Sniffed(None, {b"AVI ": "AVI", b"WAVE": "WAV"}.get(data[8:12], "a RIFF file"))
    return None


def _text_name(data: bytes) -> str | None:
    text = _as_text(data[:4096])
    if text is None:
        return None
    text = text.strip()
    if text.startswith("<"):
        return "SVG" if _SVG.search(text) else "HTML" if _HTML.search(text) else "XML"
    if len(text) >= 16 and is_hexadecimal(text):
        return "hexadecimal text"
    for pattern, name in _TEXTS:
        if pattern.match(text):
            return name
    return "text"


def is_hexadecimal(text: str) -> bool:
    """Tell whether a text is bytes in hexadecimal, with white space or none between digits.

    The pattern counts no pairs: `re` keeps 90 bytes for each until the text ends.
    """
    return _HEX.fullmatch(text) is not None and len("".join(text.split())) % 2 == 0


def _as_text(head: bytes) -> str | None:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return head.decode("utf-16", "ignore")
    if re.search(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]", head):
        return None
    try:
        # The cut at 4096 bytes may split a character: up to three bytes may be left over.
        return head.decode("utf-8-sig", "strict" if len(head) < 4096 else "ignore")
    except UnicodeDecodeError:
        return None
