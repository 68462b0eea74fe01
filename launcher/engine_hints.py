"""What to write instead of a flag or a variable that an engine does not know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kimi_serve.schemas.engine_facts import EngineTable, RemovedFacts, engine_table, engines

from .engine_command import EngineArgument
from .sources.near import Names, closest
from .sources.opposites import means_opposite

Kind = Literal["flags", "variables"]
Reason = Literal["removed", "spelling", "ambiguous", "other engine", "near", "value", "none"]

_DASHES = str.maketrans({"\N{EN DASH}": "-", "\N{EM DASH}": "--", "\N{MINUS SIGN}": "-"})
# Flags of vLLM and the flags of SGLang that ask for the same, or nearly.
COUNTERPARTS = {
    "--api-server-count": "--tokenizer-worker-num",
    "--block-size": "--page-size",
    "--enable-expert-parallel": "--ep-size",
    "--gpu-memory-utilization": "--mem-fraction-static",
    "--hf-overrides": "--json-model-override-args",
    "--limit-mm-per-prompt": "--limit-mm-data-per-request",
    "--master-addr": "--dist-init-addr",
    "--max-model-len": "--context-length",
    "--max-num-batched-tokens": "--chunked-prefill-size",
    "--max-num-queued-reqs": "--max-queued-requests",
    "--max-num-seqs": "--max-running-requests",
    "--mm-encoder-tp-mode": "--mm-enable-dp-encoder",
    "--mm-processor-cache-gb": "--mm-preprocess-cache-size-mb",
    "--root-path": "--fastapi-root-path",
    "--seed": "--random-seed",
    "--speculative-config": "--speculative-algorithm",
    "--tokenizer": "--tokenizer-path",
    "--uvicorn-log-level": "--log-level-http",
}
_LONGEST = 80
# By identity, as tables have no hash; each is kept with its names, so that no other takes its id.
_bare: dict[tuple[int, Kind], tuple[EngineTable, dict[str, str], Names]] = {}
_FALSE = ("0", "false", "no", "off", "n", "f")


@dataclass(frozen=True, slots=True)
class Hint:
    """`instead` is what to write, "" for nothing known; `text` is a clause for people."""

    reason: Reason
    instead: str = ""
    text: str = ""


def hint_for(argument: EngineArgument, table: EngineTable) -> Hint:
    """Say what to do about the problem of an argument."""
    match argument.problem:
        case "ambiguous":
            words = " or ".join(argument.candidates)
            return Hint("ambiguous", text=f"it could mean {words}")
        case "unknown":
            return hint_for_flag(argument.spelling, table)
        case "unwanted value":
            return _switch_hint(argument)
        case _:
            return Hint("none")


def hint_for_flag(name: str, table: EngineTable) -> Hint:
    """Find what an unknown flag was meant to be."""
    gone = table.removed(name)
    if gone is not None:
        return _removed_hint(gone, table)
    respelt = _respelt(name, table)
    if respelt:
        return Hint("spelling", respelt, f"write {respelt}")
    for other in _others(table):
        if other.spelt(name) in other.by_spelling or other.removed(name) is not None:
            return _other_hint(name, other, table)
    return _near_hint(name, _nearest(name, table, "flags", 0.75))


def hint_for_variable(name: str, table: EngineTable) -> Hint:
    """Find what an unknown variable with the engine's prefix was meant to be."""
    gone = table.removed(name)
    if gone is not None:
        return _removed_hint(gone, table)
    # Names are long and share their ends: only a slip of the hand is near enough.
    return _near_hint(name, _nearest(name, table, "variables", 0.88))


def _near_hint(name: str, near: str) -> Hint:
    """Offer the nearest name; one that means the opposite is named alone."""
    if near and means_opposite(name, near):
        return Hint("none", text=f"the nearest is {near}, which means the opposite")
    return Hint("near", near, f"did you mean {near}?") if near else Hint("none")


def _removed_hint(gone: RemovedFacts, table: EngineTable) -> Hint:
    when = f"since {gone.since}" if gone.since else "any more"
    instead = "" if gone.instead.startswith("nothing") else gone.instead
    do = f"write {instead}" if instead else "leave it out"
    return Hint("removed", instead, f"{table.engine} {table.version} does not have it {when}: {do}")


def _respelt(name: str, table: EngineTable) -> str:
    """Mend dashes, underscores and case; a single dash where two are meant."""
    word = name.translate(_DASHES).lstrip("-").replace("_", "-").casefold()
    for plain in (f"--{word}", f"-{word}"):
        found = table.matches(plain) if plain != name else ()
        if len(found) == 1:
            return found[0]
    return ""


def _nearest(name: str, table: EngineTable, kind: Kind, cutoff: float) -> str:
    """Compare without dashes and case: what all names share must not make them near."""
    word = name.lstrip("-").replace("_", "-" if name.startswith("-") else "_").casefold()
    if len(word) > _LONGEST:
        return ""
    bare, names = _bare_names(table, kind)
    found = closest(word, names, cutoff)
    return bare[found] if found else ""


def _bare_names(table: EngineTable, kind: Kind) -> tuple[dict[str, str], Names]:
    """Give the names of a table by what is compared of them, made once."""
    if (id(table), kind) not in _bare:
        known = table.by_spelling if kind == "flags" else table.environment
        bare = {each.lstrip("-").casefold(): each for each in known}
        _bare[id(table), kind] = (table, bare, Names(bare))
    return _bare[id(table), kind][1:]


def _others(table: EngineTable) -> Iterable[EngineTable]:
    for engine in engines():
        other = engine_table(engine) if engine != table.engine else None
        if other is not None:
            yield other


def _other_hint(name: str, other: EngineTable, table: EngineTable) -> Hint:
    text = f"that is a flag of {other.engine}"
    gone = other.removed(name)
    known = other.flag(name)
    theirs = gone.instead if gone is not None else known.flag if known is not None else ""
    back = {sglang: vllm for vllm, sglang in COUNTERPARTS.items()}
    for ours in (theirs, COUNTERPARTS.get(theirs, ""), back.get(theirs, "")):
        if ours in table.by_spelling:
            return Hint("other engine", ours, f"{text}; {table.engine} has {ours}")
    return Hint("other engine", text=text)


def _switch_hint(argument: EngineArgument) -> Hint:
    flag = argument.flag
    off = argument.values[0].strip().casefold() in _FALSE
    if flag is None or (off and not flag.negatives):
        return Hint("value", text=f"{argument.spelling} takes no value: leave it out")
    on = flag.negatives[0] if argument.negated else flag.flag
    turned = flag.flag if argument.negated else (*flag.negatives, flag.flag)[0]
    instead = turned if off else on
    return Hint("value", instead, f"{argument.spelling} takes no value: write {instead}")
