"""Both kinds of tokenizer file: exact ids, the wall around special tokens, damaged files."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import regex
import tokenizers
from demo import PAD, demo_tokenizer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED
from kimi_serve.preprocess.text.load import load_tokenizer
from kimi_serve.preprocess.text.rank_tokenizer import (
    KIMI_BASE,
    KIMI_NAMES,
    LONGEST_RUN,
    LONGEST_TEXT,
    PATTERN,
    cut,
)
from kimi_serve.preprocess.text.tokenizer import Tokenizer
from kimi_serve.schemas.errors import PlanError, RequestError
from kimi_serve.schemas.worker import TokenizerSpec

WHOLE = tokenizers.Tokenizer.from_file(str(BUNDLED / "tokenizer.json"))
DOCUMENT = json.loads((BUNDLED / "tokenizer.json").read_text(encoding="utf-8"))

TRUNCATION = {"max_length": 3, "stride": 0, "strategy": "LongestFirst", "direction": "Right"}
PADDING = {
    "strategy": {"Fixed": 50},
    "direction": "Right",
    "pad_token": "[PAD]",
    "pad_id": 163839,
    "pad_to_multiple_of": None,
    "pad_type_id": 0,
}

# Ranks after the 256 bytes, in this order; a word is made from the parts of lowest rank first.
MERGES = [
    *(
        b"he",
        b"ll",
        b"hell",
        b"hello",
        b" w",
        b"or",
        b" wor",
        b"ld",
        b" world",
        b"12",
        b"'s",
        b"\n\n",
    ),
    *(text.encode()[:size] for text in ("\u4f60", "\u597d") for size in (2, 3)),
    "\u4f60\u597d".encode(),
]
RANKS = {bytes([byte]): byte for byte in range(256)} | {t: 256 + n for n, t in enumerate(MERGES)}
HELLO_WORLD = [RANKS[b"hello"], RANKS[b" world"]]
TOY_PAD = len(RANKS) + 21


def load_json(directory: Path, document: object, placeholder: int | None = PAD) -> Tokenizer:
    (directory / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return load_tokenizer(TokenizerSpec(str(directory), "tokenizer.json", placeholder))


def rank_file(ranks: dict[bytes, int]) -> bytes:
    lines = (base64.b64encode(token) + b" %d\n" % rank for token, rank in ranks.items())
    return b"".join(lines)


def load_ranks(directory: Path, placeholder: int | None) -> Tokenizer:
    return load_tokenizer(TokenizerSpec(str(directory), "tiktoken.model", placeholder))


def write_toy(directory: Path, added: object = None, *, data: bytes | None = None) -> Path:
    names = {TOY_PAD: "<|media_pad|>", TOY_PAD + 1: "<think>", len(RANKS): "[BOS]"}
    table = {str(id): {"content": text, "special": id != TOY_PAD + 1} for id, text in names.items()}
    config = {"added_tokens_decoder": table if added is None else added}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "tiktoken.model").write_bytes(rank_file(RANKS) if data is None else data)
    return directory


@cache
def toy_tokenizer() -> Tokenizer:
    with TemporaryDirectory() as directory:
        return load_ranks(write_toy(Path(directory)), TOY_PAD)


@pytest.fixture
def toy() -> Tokenizer:
    return toy_tokenizer()


@pytest.fixture(scope="module")
def kimi(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """As many ranks as Kimi has, and no tokenizer_config.json."""
    directory = tmp_path_factory.mktemp("kimi")
    filler = {b"\xff%d" % n: n for n in range(len(RANKS), KIMI_BASE)}
    (directory / "tiktoken.model").write_bytes(rank_file(RANKS | filler))
    return load_ranks(directory, PAD)


def reference(text: str) -> list[int]:
    """Byte-pair encoding written out: join the neighbours of lowest rank until none is left."""
    words = regex.findall(PATTERN, text, flags=regex.V1)
    return [id for word in words for id in join(word)]


@cache
def join(word: str) -> list[int]:
    parts = [bytes([byte]) for byte in word.encode()]
    while len(parts) > 1:
        ranks = [RANKS.get(a + b, 1 << 30) for a, b in pairwise(parts)]
        best = min(ranks)
        if best == 1 << 30:
            break
        at = ranks.index(best)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return [RANKS[part] for part in parts]


# tokenizer.json


def test_demo_special_ids() -> None:
    special_ids = demo_tokenizer().special_ids
    assert special_ids["<|media_pad|>"] == demo_tokenizer().placeholder_id == PAD
    assert special_ids["<think>"] == 163606
    assert special_ids == {entry["content"]: entry["id"] for entry in DOCUMENT["added_tokens"]}


@pytest.mark.parametrize("text", [entry["content"] for entry in DOCUMENT["added_tokens"]])
def test_json_typed_special_is_text(text: str) -> None:
    ids = demo_tokenizer().encode_text(f"a {text}b{text}")
    assert not set(ids) & set(demo_tokenizer().special_ids.values())
    whole = tokenizers.Tokenizer.from_file(str(BUNDLED / "tokenizer.json"))
    assert whole.decode(ids) == f"a {text}b{text}"


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@settings(deadline=None, database=None, max_examples=200)
def test_json_text_gets_the_ids_of_the_library(text: str) -> None:
    assume(not demo_tokenizer().special_pattern.search(text))
    assert demo_tokenizer().encode_text(text) == WHOLE.encode(text, add_special_tokens=False).ids


def test_json_options_for_other_uses_have_no_effect(tmp_path: Path) -> None:
    whole = tokenizers.Tokenizer.from_file(str(BUNDLED / "tokenizer.json"))
    whole.post_processor = tokenizers.processors.TemplateProcessing(
        single="[BOS] $A", special_tokens=[("[BOS]", 163584)]
    )
    document = json.loads(whole.to_str()) | {"truncation": TRUNCATION, "padding": PADDING}
    tokenizer = load_json(tmp_path, document)
    assert tokenizer.encode_text("hello world") == demo_tokenizer().encode_text("hello world")


def test_json_special_that_merges_would_make_stays_text(tmp_path: Path) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    model = document["model"]
    # With these the ordinary vocabulary itself spells <think>.
    pairs = [("t", "h"), ("th", "i"), ("thi", "n"), ("thin", "k"), ("think", ">"), ("<", "think>")]
    rules = [list(pair) for pair in [*pairs, ("<think>", ">")]]
    for number, rule in enumerate(rules, start=500):
        model["vocab"].setdefault("".join(rule), number)
    model["merges"] = rules + [rule for rule in model["merges"] if rule not in rules]
    model["ignore_merges"] = True
    document["pre_tokenizer"]["use_regex"] = False
    ids = load_json(tmp_path, document).encode_text("<think> <think>>")
    assert 163606 not in ids
    assert model["vocab"]["think>"] in ids


def test_json_unknown_token_is_kept(tmp_path: Path) -> None:
    vocab = {"[UNK]": 0, "<|media_pad|>": 1, "hello": 2}
    document = json.loads(tokenizers.Tokenizer(word_level(vocab)).to_str())
    document["pre_tokenizer"] = {"type": "WhitespaceSplit"}
    document["added_tokens"] = [added(0, "[UNK]"), added(1, "<|media_pad|>")]
    tokenizer = load_json(tmp_path, document, 1)
    assert tokenizer.encode_text("hello <|media_pad|> there") == [2, 0, 0]


def test_json_special_out_of_ordinary_text_is_a_400(tmp_path: Path) -> None:
    # A vocabulary by position cannot be thinned out; the check on the ids is the last wall.
    model: Any = tokenizers.models.Unigram([("a", -1.0), ("<|media_pad|>", -1.0)], unk_id=0)
    document = json.loads(tokenizers.Tokenizer(model).to_str())
    document["added_tokens"] = [added(1, "<|media_pad|>")]
    tokenizer = load_json(tmp_path, document, 1)
    assert tokenizer.encode_text("a") == [0]
    with pytest.raises(RequestError, match="special token"):
        tokenizer.encode_text("<|media_pad|>")


def word_level(vocab: dict[str, int]) -> Any:
    return tokenizers.models.WordLevel(vocab, unk_token="[UNK]")


def added(id: int, content: str, **options: object) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": id, "content": content, "special": True, **flags, **options}


def with_gap(document: Any) -> None:
    for entry in document["added_tokens"]:
        del document["model"]["vocab"][entry["content"]]


def change(**options: object) -> Callable[[Any], None]:
    return lambda document: document["added_tokens"][3].update(options)


def drop_placeholder(document: Any) -> None:
    document["added_tokens"] = [
        entry for entry in document["added_tokens"] if entry["content"] != "<|media_pad|>"
    ]


DAMAGES: list[tuple[Callable[[Any], object], list[str]]] = [
    (with_gap, ["declares <|media_pad|> as id 163605", "gives 426", "without gaps"]),
    (change(lstrip=True), ["lstrip", "<|im_user|>"]),
    (change(rstrip=True), ["rstrip"]),
    (change(single_word=True), ["single_word"]),
    (change(content=""), ["content"]),
    (change(content=None), ["content"]),
    (change(id=-1), ["id"]),
    (change(id=True), ["id"]),
    (change(id="7"), ["id"]),
    (change(content="[BOS]"), ["[BOS]", "two ids"]),
    (lambda document: document.pop("model"), ["not a usable tokenizer"]),
    (lambda document: document["model"].update(type="Magic"), ["not a usable tokenizer"]),
    (lambda document: document["model"]["vocab"].clear(), ["not a usable tokenizer"]),
    (drop_placeholder, ["no added token <|media_pad|>", "163605"]),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_json_damaged(tmp_path: Path, damage: Callable[[Any], object], words: list[str]) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    damage(document)
    with pytest.raises(PlanError) as caught:
        load_json(tmp_path, document)
    assert all(word in caught.value.message for word in [*words, str(tmp_path / "tokenizer.json")])


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"a": 1,}'])
def test_json_that_is_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(data)
    with pytest.raises(PlanError, match=r"tokenizer\.json"):
        load_tokenizer(TokenizerSpec(str(tmp_path), "tokenizer.json", PAD))


# The placeholder, whichever the kind


def test_placeholder_differs_from_config() -> None:
    with pytest.raises(PlanError) as caught:
        load_tokenizer(TokenizerSpec(str(BUNDLED), "tokenizer.json", 163602))
    assert "163605" in caught.value.message
    assert "163602, which the tokenizer calls <|media_begin|>" in caught.value.message
    assert str(BUNDLED / "tokenizer.json") in caught.value.message


def test_config_without_placeholder_takes_the_tokenizers() -> None:
    tokenizer = load_tokenizer(TokenizerSpec(str(BUNDLED), "tokenizer.json", None))
    assert tokenizer.placeholder_id == PAD


def test_placeholder_is_the_models_unknown_token(tmp_path: Path) -> None:
    model: Any = tokenizers.models.WordLevel(
        {"<|media_pad|>": 7, "a": 1}, unk_token="<|media_pad|>"
    )
    document = json.loads(tokenizers.Tokenizer(model).to_str())
    document["added_tokens"] = [added(7, "<|media_pad|>")]
    with pytest.raises(PlanError, match=r"the id 7 of the unknown token; config\.json says 7"):
        load_json(tmp_path, document, 7)


def test_placeholder_of_config_is_unknown_token(tmp_path: Path) -> None:
    table = {str(len(RANKS)): {"content": "[UNK]"}}
    with pytest.raises(PlanError, match=r"no added token <\|media_pad\|>.*calls \[UNK\]"):
        load_ranks(write_toy(tmp_path, table), len(RANKS))


def test_compacted_ids_are_seen(tmp_path: Path) -> None:
    """A conversion closes the gaps: the id of the placeholder moves, config.json does not."""
    document = json.loads(json.dumps(DOCUMENT))
    for number, entry in enumerate(document["added_tokens"], start=408):
        entry["id"] = number
        document["model"]["vocab"][entry["content"]] = number
    with pytest.raises(PlanError, match=r"the id 426; config\.json says 163605"):
        load_json(tmp_path, document)
    assert load_json(tmp_path, document, 426).placeholder_id == 426


# tiktoken.model


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("hello world", ["hello", " world"]),
        ("hello  world", ["hello", " ", " world"]),
        ("he's", ["he", "'s"]),
        ("hell\n\nhello", ["hell", "\n\n", "hello"]),
        ("12345", ["12", "3", "4", "5"]),
        ("\u4f60\u597d\u4f60", ["\u4f60\u597d", "\u4f60"]),
        ("a\x00b", ["a", "\x00", "b"]),
    ],
)
def test_ranks_exact_ids(toy: Tokenizer, text: str, tokens: list[str]) -> None:
    assert toy.encode_text(text) == [RANKS[token.encode()] for token in tokens]


TEXTS = st.text(
    st.sampled_from("hello world'sS 12\n\t\u4f60\u597d\u00e9\u0301.,<|>[]")
    | st.characters(exclude_categories=["Cs"]),
    max_size=40,
)


@given(TEXTS)
@settings(deadline=None, database=None, max_examples=300)
def test_ranks_equal_byte_pair_encoding_written_out(text: str) -> None:
    assert toy_tokenizer().encode_text(text) == reference(text)


def test_ranks_special_table(toy: Tokenizer) -> None:
    base = len(RANKS)
    assert toy.special_ids["[BOS]"] == base
    assert toy.special_ids["<think>"] == TOY_PAD + 1
    assert toy.special_ids[f"<|reserved_token_{base + 1}|>"] == base + 1
    assert toy.special_ids[f"<|reserved_token_{base + 257}|>"] == base + 257
    assert sorted(toy.special_ids.values()) == list(range(base, base + 258))
    assert toy.placeholder_id == TOY_PAD


def test_kimi_special_table(kimi: Tokenizer) -> None:
    assert {kimi.special_ids[name]: name for name in KIMI_NAMES.values()} == KIMI_NAMES
    assert kimi.special_ids["<|media_pad|>"] == kimi.placeholder_id == PAD
    assert kimi.special_ids["<|reserved_token_163589|>"] == 163589
    assert kimi.special_ids["<|reserved_token_163841|>"] == 163841
    assert "<|reserved_token_163605|>" not in kimi.special_ids
    assert len(kimi.special_ids) == 258
    assert kimi.encode_text("hello world") == HELLO_WORLD


def test_ranks_typed_specials_are_text(kimi: Tokenizer) -> None:
    for text in kimi.special_ids:
        ids = kimi.encode_text(text)
        assert ids == reference(text)
        assert max(ids) < KIMI_BASE


@pytest.mark.parametrize("unit", [" ", "x", "\u4f60", "\n"])
@pytest.mark.parametrize("length", [LONGEST_RUN, LONGEST_RUN + 1, 3 * LONGEST_RUN + 7])
def test_long_runs_are_cut(unit: str, length: int) -> None:
    other = "x" if unit.isspace() else " "
    pieces = list(cut(other + unit * length + other))
    assert "".join(pieces) == other + unit * length + other
    runs = [len(run) for piece in pieces for run in regex.findall(r"\s+|\S+", piece)]
    assert max(runs) <= LONGEST_RUN
    assert [len(piece) for piece in pieces[:-1]] == [
        LONGEST_RUN + (1 if n == 0 else 0) for n in range((length - 1) // LONGEST_RUN)
    ]


def test_long_texts_are_cut() -> None:
    text = "hello " * (LONGEST_TEXT // 6 + 10)
    assert [len(piece) for piece in cut(text)] == [LONGEST_TEXT, len(text) - LONGEST_TEXT]


def test_ranks_long_text(toy: Tokenizer) -> None:
    text = "hello world\n\n" * 40_000
    assert toy.encode_text(text) == [id for piece in cut(text) for id in reference(piece)]
    for unit, id in (("x", 120), (" ", 32), ("\u4f60", RANKS["\u4f60".encode()])):
        assert toy.encode_text(unit * 60_000) == [id] * 60_000


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "hello \ud83d"])
def test_lone_surrogate_is_a_400(toy: Tokenizer, text: str) -> None:
    for tokenizer in (toy, demo_tokenizer()):
        with pytest.raises(RequestError, match=r"lone surrogate U\+D"):
            tokenizer.encode_text(text)


GOOD = rank_file(RANKS)
DAMAGED = [
    (b"", "0 tokens"),
    (GOOD + b"aGVsbG8h\n", "274: expected"),
    (GOOD + b"aGVsbG8h 273 1\n", "274: expected"),
    (GOOD + b"a*Vs 273\n", "274: expected"),
    (GOOD + b"aGVsb 273\n", "274: expected"),
    (GOOD + b"aGVsbG8h -3\n", "274: expected"),
    (GOOD + b"aGVsbG8h 2.5\n", "274: expected"),
    (GOOD + b"aGVsbG8h " + b"9" * 5000 + b"\n", "274: expected"),
    (GOOD + b"\xff\xfe 273\n", "274: expected"),
    (GOOD + b"aGVsbG8h 3\n", "274: token or rank stands twice"),
    (GOOD + b"aGVsbG8= 270\n", "274: token or rank stands twice"),
    (GOOD + b"aGVsbG8h 999\n", "274 tokens, but the ranks go up to 999"),
    (GOOD.split(b"\n", 1)[1], "272 tokens"),
    (b"version https://git-lfs.github.com/spec/v1\n", "1: expected"),
    (b"<html>\n", "1: expected"),
]


@pytest.mark.parametrize(("data", "words"), DAMAGED, ids=range(len(DAMAGED)))
def test_ranks_damaged(tmp_path: Path, data: bytes, words: str) -> None:
    write_toy(tmp_path, data=data)
    with pytest.raises(PlanError) as caught:
        load_ranks(tmp_path, TOY_PAD)
    assert words in caught.value.message
    assert str(tmp_path / "tiktoken.model") in caught.value.message
    assert len(caught.value.message) < 400


def test_ranks_need_every_byte(tmp_path: Path) -> None:
    ranks = {token: rank for rank, token in enumerate(t for t in RANKS if t != b"\x07")}
    write_toy(tmp_path, data=rank_file(ranks))
    with pytest.raises(PlanError, match="single byte 0x07"):
        load_ranks(tmp_path, TOY_PAD)


@pytest.mark.parametrize("data", [GOOD.replace(b"\n", b"\r\n"), GOOD + b"\n\n", GOOD.rstrip()])
def test_ranks_line_ends_do_not_matter(tmp_path: Path, data: bytes) -> None:
    write_toy(tmp_path, data=data)
    assert load_ranks(tmp_path, TOY_PAD).encode_text("hello world") == HELLO_WORLD


def test_changed_rank_file_is_seen(tmp_path: Path) -> None:
    write_toy(tmp_path)
    assert load_ranks(tmp_path, TOY_PAD).encode_text("he") == [256]
    swapped = RANKS | {b"he": 257, b"ll": 256}
    write_toy(tmp_path, data=rank_file(swapped))
    assert load_ranks(tmp_path, TOY_PAD).encode_text("he") == [257]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"x": {"content": "a"}}, "needs an id and a content"),
        ({"-1": {"content": "a"}}, "needs an id and a content"),
        ({"9" * 5000: {"content": "a"}}, "needs an id and a content"),
        ({"300": {"content": 3}}, "needs an id and a content"),
        ({"300": {}}, "needs an id and a content"),
        ({"300": None}, "needs an id and a content"),
        ({"7": {"content": "a"}}, "one of the 273 ordinary tokens"),
        ({"300": {"content": "a"}, "301": {"content": "a"}}, "a has two ids, 300 and 301"),
        ({"300": {"content": "<|reserved_token_301|>"}}, "two ids"),
        ([], "must be an object"),
        ({}, r"no added token <\|media_pad\|>"),
    ],
)
def test_special_table_damaged(tmp_path: Path, table: object, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        load_ranks(write_toy(tmp_path, table), TOY_PAD)


@pytest.mark.parametrize("config", [None, "{}", '{"added_tokens_decoder": null}'])
def test_unknown_base_needs_a_table(tmp_path: Path, config: str | None) -> None:
    write_toy(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    if config:
        (tmp_path / "tokenizer_config.json").write_text(config)
    with pytest.raises(PlanError, match="273 ranks are not the 163584"):
        load_ranks(tmp_path, TOY_PAD)


@pytest.mark.parametrize("kind", ["tokenizer.json", "tiktoken.model"])
def test_missing_file(tmp_path: Path, kind: Any) -> None:
    with pytest.raises(PlanError, match="cannot read"):
        load_tokenizer(TokenizerSpec(str(tmp_path), kind, PAD))
