"""The safetensors format, written without a copy of the tensors.

The safetensors library serialises into one new buffer; a 25 MB answer is better streamed from
where it lies. Its reader checks ours in the tests.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Generic, TypeVar

from kimi_serve.schemas.vocabulary import DTYPES

# Bytes, or what will be bytes when they are sent; only the length is looked at here.
Chunk = TypeVar("Chunk", bound=Sized, covariant=True)


@dataclass(frozen=True, slots=True)
class Tensor(Generic[Chunk]):
    """A named tensor; `chunks` are its bytes, C order, little-endian."""

    name: str
    dtype: str
    shape: Sequence[int]
    chunks: Sequence[Chunk]

    @property
    def nbytes(self) -> int:
        return sum(len(chunk) for chunk in self.chunks)


def safetensors_chunks(
    tensors: Iterable[Tensor[Chunk]], metadata: Mapping[str, str]
) -> list[Chunk | bytes]:
    """Give the pieces of a safetensors file: header, then every tensor's chunks as they are."""
    # Wide types first, so that every tensor starts at a multiple of its item size.
    ordered = sorted(tensors, key=lambda tensor: tensor.dtype != "int64")
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for tensor in ordered:
        header[tensor.name] = {
            "dtype": DTYPES[tensor.dtype].safetensors_name,
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + tensor.nbytes],
        }
        offset += tensor.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    chunks: list[Chunk | bytes] = [struct.pack("<Q", len(text)) + text]
    for tensor in ordered:
        chunks += tensor.chunks
    return chunks
