"""The bars, and the comparison with committed ratios."""

from __future__ import annotations

from dataclasses import dataclass

Ratios = dict[str, float]

# A ratio may be this much worse than the committed one: machines and neighbours differ.
TOLERANCE = 1.35
# What lasts microseconds and is bound by memory is at the mercy of neighbours.
MEMCPY_TOLERANCE = 2.0


@dataclass(frozen=True)
class Bar:
    """A ratio that must be at least, or at most, so much, and why it may not be."""

    name: str
    limit: float
    is_most: bool = False
    reason: str = ""

    def fits(self, ratio: float) -> bool:
        return ratio <= self.limit if self.is_most else ratio >= self.limit

    @property
    def words(self) -> str:
        return f"at {'most' if self.is_most else 'least'} {self.limit:g}"


_SENDING = (
    "Sending is the cost. A server that decodes and sends ready bytes, and does nothing else, is "
    "the row decode + send: no server on these sockets is above it. Ours adds the patches, and "
    "HTTP, JSON, base64, SHA-256 and four process switches; with uint8, a quarter of the bytes, "
    "that shows. sendfile is not used: 25 MB from a memfd took 7 to 8 ms in place of 9, for the "
    "pages are passed on one by one, and the socket would still read the slot when it holds the "
    "next image. At 12 MP, pages of decode buffers that go cold between images of sixteen workers "
    "come on top."
)
_CACHES = (
    "The smaller of two times, and caches that neighbours empty, decide: it was between 1.19 and "
    "1.43 in a dozen runs on this shared machine, 1.23 to 1.27 in the quiet ones."
)
_NEIGHBOURS = (
    "Neighbours on this shared machine use the same memory and the same cores: in a dozen runs it "
    "was between 4.5 and 6.8."
)
_BANDWIDTH = (
    "How fast memory is at the moment decides: it was between 0.84 and 1.21 in a dozen runs."
)
BARS = (
    Bar("1080p JPEG: checkpoint order / native", 5),
    Bar("1080p JPEG: transformers / native", 2.3),
    Bar("1080p JPEG: vllm / native", 14),
    Bar("12 MP JPEG: checkpoint order / native", 4.2),
    Bar("12 MP JPEG: transformers, malloc tuned / native", 2),
    Bar("resize 12 MP: pillow / avx512vnni", 9),
    Bar("resize 12 MP: pillow / avx2", 5, reason=_NEIGHBOURS),
    Bar("patches 1080p float32: native / memcpy", 1.2, is_most=True, reason=_BANDWIDTH),
    Bar("1080p JPEG: native / decode", 1.3, is_most=True, reason=_CACHES),
    Bar("12 MP JPEG: native / decode", 1.3, is_most=True, reason=_CACHES),
    Bar("hand-over 25 MB: pickled pipe / slot", 15),
    Bar("HTTP 1080p JPEG, safetensors float32: bare decode / server", 0.6, reason=_SENDING),
    Bar("HTTP 12 MP JPEG, safetensors float32: bare decode / server", 0.6, reason=_SENDING),
    Bar("1080p JPEG: checkpoint order / pure", 2.4),
)
_MOST = {bar.name for bar in BARS if bar.is_most}


def is_smaller_better(name: str) -> bool:
    """Tell a ratio of our time to a limit from one of another's time to ours."""
    return name in _MOST or name.endswith(("/ decode", "/ memcpy"))


def regressions(ratios: Ratios, committed: Ratios) -> dict[str, str]:
    """Give every ratio that is worse than the committed one by more than the tolerance, in words.

    Ours against ours is left out: one of them may only have become better.
    """
    found: dict[str, str] = {}
    for name, ratio in ratios.items():
        before = committed.get(name)
        if before is None or name.endswith("pure / native"):
            continue
        worse = ratio / before if is_smaller_better(name) else before / ratio
        if worse > (MEMCPY_TOLERANCE if name.endswith("/ memcpy") else TOLERANCE):
            found[name] = f"{ratio:.2f}, committed {before:.2f}"
    return found


def missed(ratios: Ratios) -> list[Bar]:
    """Give the bars that a measured ratio does not reach."""
    return [bar for bar in BARS if bar.name in ratios and not bar.fits(ratios[bar.name])]
