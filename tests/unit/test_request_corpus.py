"""What the coverage-guided runs kept goes through again, and mutations of it with a fixed seed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fuzz.request_fuzz import TARGETS

CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus"
# The rest of a minute belongs to `make fuzz`; these take some seconds.
MUTATIONS = {"file": 5000, "reference": 12_000, "chat": 10_000}


def inputs(target: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / target).iterdir())]


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus_stays_small(target: str) -> None:
    kept = inputs(target)
    assert 0 < len(kept) <= 400
    assert sum(map(len, kept)) <= 400_000


@pytest.mark.parametrize("target", TARGETS)
def test_the_corpus(target: str) -> None:
    for path in sorted((CORPUS / target).iterdir()):
        try:
            TARGETS[target](path.read_bytes())
        except Exception as error:
            error.add_note(f"input {path}")
            raise


@pytest.mark.parametrize("target", TARGETS)
def test_mutations_of_the_corpus(target: str) -> None:
    source = random.Random(5)
    kept = inputs(target)
    for _ in range(MUTATIONS[target]):
        data = mutated(source, kept)
        try:
            TARGETS[target](data)
        except Exception as error:
            error.add_note(f"input {data!r}")
            raise


def mutated(source: random.Random, kept: list[bytes]) -> bytes:
    """Change one input in a few places: bytes, runs, cuts, pieces of another."""
    data = bytearray(source.choice(kept))
    for _ in range(source.randint(1, 4)):
        at, end = sorted(source.randrange(len(data) + 1) for _ in range(2))
        match source.randrange(6):
            case 0:
                data[at : at + 1] = source.randbytes(1)
            case 1:
                data[at : at + 4] = source.choice([b"\0" * 4, b"\xff" * 4, b"\0\0\xff\xff"])
            case 2:
                del data[at : min(end, at + 64)]
            case 3:
                other = source.choice(kept)
                start = source.randrange(len(other) + 1)
                data[at:at] = other[start : start + 64]
            case 4:
                del data[at:]
            case _:
                data[at:end] = data[at:end] * 2 if end - at < 64 else data[at:end]
    return bytes(data)
