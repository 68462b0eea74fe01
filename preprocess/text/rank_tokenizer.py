"""`tiktoken.model` through the tiktoken library, with the special-token table of the checkpoint.

The rank file is parsed here: the library's own reader keeps a copy in a temporary directory under
a name made from the path alone, so that a changed file would go unseen.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import tiktoken

from kimi_serve.schemas.errors import PlanError

from ..checkpoint_files.json_files import (
    JsonObject,
    as_object,
    is_there,
    object_at,
    read_bytes,
    read_json_object,
    show,
)
from .tokenizer import Tokenizer

# How the checkpoint's own tokenizer cuts text into words.
_HAN = r"[\p{Han}]+"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join(
    (
        _HAN,
        f"{_LEAD}{_UPPER}*{_LOWER}+{_SUFFIX}",
        f"{_LEAD}{_UPPER}+{_LOWER}*{_SUFFIX}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    )
)

# The checkpoint's tokenizer cuts long texts here, because the library's matcher recurses.
LONGEST_TEXT = 400_000
LONGEST_RUN = 25_000
ID = re.compile(r"[0-9]{1,9}")
RUN = re.compile(r"\s+|\S+")

SPECIAL_IDS = (
    256 + 2
)  # two more names than the vocabulary has room for, as in the checkpoint's class
KIMI_BASE = 163584
KIMI_NAMES = {
    163584: "[BOS]",
    163585: "[EOS]",
    163586: "<|im_end|>",
    163587: "<|im_user|>",
    163588: "<|im_assistant|>",
    163590: "<|start_header_id|>",
    163591: "<|end_header_id|>",
    163593: "[EOT]",
    163594: "<|im_system|>",
    163595: "<|tool_calls_section_begin|>",
    163596: "<|tool_calls_section_end|>",
    163597: "<|tool_call_begin|>",
    163598: "<|tool_call_argument_begin|>",
    163599: "<|tool_call_end|>",
    163601: "<|im_middle|>",
    163602: "<|media_begin|>",
    163603: "<|media_content|>",
    163604: "<|media_end|>",
    163605: "<|media_pad|>",
    163606: "<think>",
    163607: "</think>",
    163838: "[UNK]",
    163839: "[PAD]",
}


class RankTokenizer(Tokenizer):
    """Encodes by byte-pair ranks; every byte has a token, so nothing is unknown."""

    def __init__(self, encoding: tiktoken.Encoding, special_ids: Mapping[str, int]) -> None:
        super().__init__(special_ids)
        self._encoding = encoding

    def _encode(self, text: str) -> list[int]:
        return [id for piece in cut(text) for id in self._encoding.encode_ordinary(piece)]


def load_rank_tokenizer(path: Path) -> RankTokenizer:
    """Load a tiktoken.model, with its names from the tokenizer_config.json beside it."""
    ranks = parse_ranks(read_bytes(path), path)
    special_ids = special_table(len(ranks), path.with_name("tokenizer_config.json"))
    encoding = tiktoken.Encoding(
        path.name, pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=special_ids
    )
    return RankTokenizer(encoding, special_ids)


def parse_ranks(data: bytes, path: Path) -> dict[bytes, int]:
    """Parse the lines "base64 rank"; ranks must be 0, 1, 2, ... in any order, without a gap."""
    ranks: dict[bytes, int] = {}
    seen: set[int] = set()
    for number, line in enumerate(data.splitlines(), start=1):
        if not line:
            continue
        token, rank = _parse_line(line, f"{path}:{number}")
        if token in ranks or rank in seen:
            message = f"{path}:{number}: token or rank stands twice: {show(line.decode('ascii'))}"
            raise PlanError(message)
        ranks[token] = rank
        seen.add(rank)
    if not ranks or max(seen) != len(ranks) - 1:
        message = f"{path} has {len(ranks)} tokens, but the ranks go up to {max(seen, default=-1)}"
        raise PlanError(message, hint="the file is cut off or damaged; fetch it again")
    lacking = [byte for byte in range(256) if bytes([byte]) not in ranks]
    if lacking:
        message = f"{path} has no token for the single byte 0x{lacking[0]:02x}"
        raise PlanError(message)
    return ranks


def _parse_line(line: bytes, place: str) -> tuple[bytes, int]:
    fields = line.split()
    try:
        if len(fields) != 2 or not fields[1].isdigit():
            raise ValueError
        token, rank = binascii.a2b_base64(fields[0], strict_mode=True), int(fields[1])
    except ValueError as error:
        message = f"{place}: expected a base64 token and its rank, not {show(line)}"
        raise PlanError(message) from error
    if not token:
        message = f"{place}: the token of rank {rank} is empty"
        raise PlanError(message)
    return token, rank


def special_table(base: int, config: Path) -> dict[str, int]:
    """Name the ids after the `base` ranks: from added_tokens_decoder, else Kimi's own table.

    Ids without a name are <|reserved_token_ID|>, as in the checkpoint's tokenizer.
    """
    document = read_json_object(config) if is_there(config) else {}
    added = object_at(document, "added_tokens_decoder", config)
    if added is not None:
        names = dict(_added_names(added, base, config))
    elif base == KIMI_BASE:
        names = KIMI_NAMES
    else:
        message = (
            f"{config} has no added_tokens_decoder, and {base} ranks are not the {KIMI_BASE} of "
            "Kimi-K2.5, whose table is known"
        )
        raise PlanError(message)
    table: dict[str, int] = {}
    for number in sorted({*range(base, base + SPECIAL_IDS), *names}):
        name = names.get(number, f"<|reserved_token_{number}|>")
        if table.setdefault(name, number) != number:
            message = f"{config}: {name} has two ids, {table[name]} and {number}"
            raise PlanError(message)
    return table


def _added_names(added: JsonObject, base: int, config: Path) -> Iterator[tuple[int, str]]:
    for key, entry in added.items():
        fields = as_object(entry)
        content = fields.get("content") if fields is not None else entry
        if not (ID.fullmatch(key) and isinstance(content, str) and content):
            message = (
                f"{config}: added_tokens_decoder: {show({key: entry})} needs an id and a content"
            )
            raise PlanError(message)
        if int(key) < base:
            message = (
                f"{config}: added_tokens_decoder gives {content} the id {key}, which is one of the "
                f"{base} ordinary tokens"
            )
            raise PlanError(message)
        yield int(key), content


def cut(text: str) -> Iterator[str]:
    """Cut a text as the checkpoint's tokenizer does, so that long ones get the same ids."""
    for start in range(0, len(text), LONGEST_TEXT):
        block = text[start : start + LONGEST_TEXT]
        begin = 0
        for run in RUN.finditer(block) if len(block) > LONGEST_RUN else ():
            for end in range(run.start() + LONGEST_RUN, run.end(), LONGEST_RUN):
                yield block[begin:end]
                begin = end
        yield block[begin:]
