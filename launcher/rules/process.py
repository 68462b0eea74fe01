"""What reaches the engine's process otherwise than it is written: KS601, KS602."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from kimi_serve.schemas.engine_facts import read_boolean
from kimi_serve.schemas.engine_names import OLD_SWITCH, SWITCH
from kimi_serve.schemas.findings import Finding, Fix

from ..engine_command import EngineArgument
from ..resolver.engine_view import ARGS, ENV
from ..resolver.situation import FLAG, Situation
from ..sources.characters import printable
from ..sources.shell_words import is_several, replace_fix, split_words
from ..sources.yaml_text import quoted
from .given import Word, value_origin, words

_ASSIGNMENT = re.compile(r"[A-Z][A-Z0-9_]*=.*", re.DOTALL)
# Texts to the parser, JSON to what reads them.
_JSON_TEXTS = (
    "--additional-config",
    "--hf-overrides",
    "--json-model-override-args",
    "--model-loader-extra-config",
)
# Numbers with a unit, which vLLM reads inside JSON too.
_UNIT = r"\b[0-9]+(\.[0-9]+)?[kKmMgGtT]\b(?=\s*[,}\]])"
_BARE_KEY = re.compile(r"(?<=[{,])\s*([A-Za-z_][\w-]*)\s*(?=:)")
_BARE_VALUE = re.compile(r"(?<=:)\s*([A-Za-z_][\w./-]*)\s*(?=[,}])")


def switch_in_two_places(situation: Situation) -> Iterator[Finding]:
    """Find the engine's own switch against our setting (KS601): one of them comes too late."""
    if situation.kind != "sglang" or not situation.is_set(FLAG):
        return
    ours = situation.settings.image.force_cpu_preprocessing
    for name in (OLD_SWITCH, SWITCH):
        text = situation.settings.engine.env.get(name)
        if text is not None and read_boolean("env-bool", text) is (not ours):
            word = "true" if ours else "false"
            yield Finding(
                "KS601",
                "error",
                f"{FLAG} is {word} and {ENV} sets {name} to {text}: the engine reads the variable "
                "once, when its module is imported, so only one of the two can count",
                situation.loaded.entry(ENV, name).value,
                ENV,
                help=f"remove {name} from {ENV}: {FLAG} sets it before the engine starts",
                related=(situation.origin(FLAG),),
            )


def variable_among_arguments(situation: Situation) -> Iterator[Finding]:
    """Find NAME=value among the arguments (KS601): no shell is there to make it a variable."""
    for argument in situation.arguments:
        text = argument.values[0] if argument.values else ""
        if argument.problem == "loose word" and _ASSIGNMENT.fullmatch(text):
            name = text.partition("=")[0]
            yield Finding(
                "KS601",
                "error",
                f"{name}=... stands among the arguments: the engine gets it as a word, and the "
                "variable is never set",
                value_origin(situation, argument),
                ARGS,
                help=f"write it under {ENV}: {{{name}: ...}}",
            )


def joined_arguments(situation: Situation) -> Iterator[Finding]:
    """Find items that a shell was to take apart, or that nobody wrote (KS602)."""
    for argument in situation.arguments:
        if argument.problem != "loose word":
            continue
        text = argument.values[0]
        if not text.strip():
            yield _blank(situation, argument)
        elif is_several(text):
            yield _several(situation, argument, text)


def is_shell_text(argument: EngineArgument) -> bool:
    """Tell whether a loose word is spoken of by KS601 or KS602, so that others need not."""
    text = argument.values[0] if argument.values else ""
    is_text = not text.strip() or is_several(text) or bool(_ASSIGNMENT.fullmatch(text))
    return argument.problem == "loose word" and is_text


def _blank(situation: Situation, argument: EngineArgument) -> Finding:
    return Finding(
        "KS602",
        "error",
        "an argument that is empty or one blank: what a backslash with a blank behind it leaves "
        "of a shell line; the rest of that line was lost",
        value_origin(situation, argument),
        ARGS,
        help="remove it, and see what stood on the next line of the command",
    )


def _several(situation: Situation, argument: EngineArgument, text: str) -> Finding:
    origin = value_origin(situation, argument)
    parts = split_words(text)
    name = parts[0].partition("=")[0]
    return Finding(
        "KS602",
        "error",
        f"the item that starts with {printable(name)} holds {len(parts)} arguments: no shell takes "
        "it apart, and the engine does not know it",
        origin,
        ARGS,
        help="write one item for each",
        fix=replace_fix(origin, text, _items(situation, parts), "safe"),
    )


def _items(situation: Situation, parts: list[str]) -> str:
    """Write items as the list has them: side by side, or each on a line with its dash."""
    whole = situation.origin(ARGS)
    column, end = whole.column or 1, whole.end_column or 1
    # A block list is marked by its first dash alone.
    between = ", " if end - column > 1 else f"\n{' ' * (column - 1)}- "
    return between.join(map(quoted, parts))


def lost_quotes(situation: Situation) -> Iterator[Finding]:
    """Find JSON that lost its quotes on the way through a shell (KS602)."""
    for word in words(situation):
        flag = word.argument.flag
        if flag is None or word.argument.key:
            continue
        if flag.type == "json" or flag.flag in _JSON_TEXTS:
            yield from _json_finding(word)


def _json_finding(word: Word) -> Iterator[Finding]:
    if _is_json(word.text) or not re.match(r"\s*[{\[]|[A-Za-z_]\w*=", word.text):
        return
    if _is_json(re.sub(_UNIT, "0", word.text)):
        return
    mended = _requoted(word.text)
    fix: Fix | None = None
    if mended:
        fix = replace_fix(word.origin, word.text, "'" + mended.replace("'", "''") + "'", "safe")
    yield Finding(
        "KS602",
        "error",
        f"{word.flag} takes JSON, and what stands here is none: a shell dropped its quotes, or it "
        "was written as name=value",
        word.origin,
        ARGS,
        help=f"write '{mended}'"
        if mended and len(mended) <= 80
        else "write JSON, in single quotes",
        fix=fix,
    )


def _requoted(text: str) -> str:
    """Put back the quotes of names and words; "" when that does not make it JSON."""
    if "=" in text and not text.lstrip().startswith(("{", "[")):
        text = "{" + ",".join(part.replace("=", ":", 1) for part in text.split(",")) + "}"
    mended = _BARE_KEY.sub(r'"\1"', text)
    mended = _BARE_VALUE.sub(_quoted_word, mended)
    return mended if _is_json(mended) else ""


def _quoted_word(match: re.Match[str]) -> str:
    word = match[1]
    return word if word in ("true", "false", "null") else f'"{word}"'


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


RULES: tuple[Callable[[Situation], Iterator[Finding]], ...] = (
    switch_in_two_places,
    variable_among_arguments,
    joined_arguments,
    lost_quotes,
)
