"""Values that an engine takes otherwise than they are meant, or not at all.

KS104 invalid-value and KS107 engine-boolean in engine.args and engine.env, KS105 missing-value,
KS108 shadowed-value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from kimi_serve.schemas.engine_facts import BooleanOutcome, EnvFacts, FlagFacts, read_boolean
from kimi_serve.schemas.engine_names import HEALTH_TIMEOUT, IO_WORKERS, OLD_SWITCH, SWITCH
from kimi_serve.schemas.findings import Edit, Finding, Fix, Severity
from kimi_serve.schemas.provenance import Origin

from ..engine_command import EngineArgument
from ..engine_hints import hint_for
from ..engines.sglang import write_sglang
from ..resolver.devices import decide_devices
from ..resolver.engine_view import ARGS, Given, origin_of
from ..resolver.situation import Situation
from ..sources.characters import shown
from .engine_numbers import forms_of, is_human_number
from .given import config_argument
from .image_work import workers_prepare_images
from .wording import at, json_object

_TRUE = frozenset(("1", "true", "yes", "y", "on", "t"))
_FALSE = frozenset(("0", "false", "no", "n", "off", "f"))


def flag_values(situation: Situation) -> Iterator[Finding]:
    """Say which values of engine.args the engine's parser would refuse (KS104)."""
    if situation.table is None:
        return
    for argument in situation.arguments:
        if argument.flag is None or argument.key:
            continue
        if argument.problem == "unwanted value":
            hint = hint_for(argument, situation.table)
            given = Given(argument.spelling, "", origin_of(situation.loaded, argument), ARGS)
            yield at("KS104", given, hint.text, f"write {hint.instead}" if hint.instead else None)
            continue
        for index, text in enumerate(argument.values):
            problem = _problem(argument.flag, text, situation.kind)
            if problem:
                place = argument.position + (0 if argument.inline else index + 1)
                given = Given(argument.spelling, text, situation.loaded.item(ARGS, place), ARGS)
                yield at("KS104", given, f"{argument.spelling} {problem}")


def _problem(flag: FlagFacts, text: str, engine: str) -> str:
    """Say what is wrong with a value, "" when nothing is."""
    if flag.is_switch or "${" in text:
        return ""
    if flag.choices is not None and text not in map(str, flag.choices):
        return f"takes one of {', '.join(map(str, flag.choices))}, not {shown(text)}"
    if flag.type == "int" and not _reads(int, text):
        return f"takes a whole number, not {shown(text)}"
    if flag.type == "human-int" and not is_human_number(engine, flag.flag, text):
        return f"takes a whole number such as {forms_of(engine)}, not {shown(text)}"
    if flag.type == "float" and not _reads(float, text):
        return f"takes a number, not {shown(text)}"
    return ""


def _reads(kind: type[int] | type[float], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def engine_variables(situation: Situation) -> Iterator[Finding]:
    """Say what the engine makes of the values in its environment (KS107, KS104)."""
    table = situation.table
    if table is None:
        return
    for given in situation.variables():
        facts = table.env(given.name)
        if facts is None or "${" in given.text:
            continue
        if not given.path and given.name in (SWITCH, OLD_SWITCH):
            continue  # the sources say this of the inherited switch
        if facts.is_boolean:
            yield from _boolean(situation, given, facts)
        elif given.path:
            yield from _other_kind(given, facts)


def _boolean(situation: Situation, given: Given, facts: EnvFacts) -> Iterator[Finding]:
    meant = _meant(given.text)
    # Each parser once: an engine may read one name in two ways.
    kinds = dict.fromkeys((facts.kind, *facts.also))
    outcomes: list[BooleanOutcome] = [read_boolean(kind, given.text) for kind in kinds]
    if _is_read_as_meant(given.text, meant, facts.kind, outcomes):
        return
    message = f"{given.name}={shown(given.text)}: {situation.engine_name} {_reading(outcomes)}"
    help = "write 1 or 0: every parser reads them alike"
    # What is inherited was not written for this deployment, and most of it does no harm.
    is_harm = bool(given.path) or "crash" in outcomes
    severity: Severity = "error" if is_harm else "warning"
    fix = None if meant is None else _digit_fix(given.at_value.origin, meant)
    yield at("KS107", given.at_value, message, help, severity=severity, fix=fix)


def _meant(text: str) -> bool | None:
    """Say what a person means by a word, None for what is no boolean to anybody."""
    word = text.strip().casefold()
    return True if word in _TRUE else False if word in _FALSE else None


def _is_read_as_meant(
    text: str, meant: bool | None, kind: str, outcomes: Sequence[BooleanOutcome]
) -> bool:
    if meant is not None:
        return all(outcome is meant for outcome in outcomes)
    if not text:
        return False
    if kind == "any-text":
        return True
    # Any whole number is a boolean to this one.
    return kind == "bool-int" and isinstance(outcomes[0], bool) and len(set(outcomes)) == 1


def _digit_fix(value: Origin, meant: bool) -> Fix | None:
    """Write 1 or 0 where the value stands; None where that is in no profile."""
    if value.kind != "profile" or not value.line or not value.column:
        return None
    end = value.end_column or value.column
    return Fix("safe", (Edit(value.name, value.line, value.column, end, f'"{int(meant)}"'),))


def _reading(outcomes: Iterable[BooleanOutcome]) -> str:
    words: dict[BooleanOutcome, str] = {
        True: "reads it as true",
        False: "reads it as false",
        "default": "does not understand it and keeps its default",
        "crash": "dies of it where it is first read",
    }
    different = dict.fromkeys(words[outcome] for outcome in outcomes)
    return " in one place and ".join(different) + (" in another" if len(different) > 1 else "")


def _other_kind(given: Given, facts: EnvFacts) -> Iterator[Finding]:
    if facts.kind == "int" and not _reads(int, given.text):
        wanted = "a whole number"
    elif facts.kind == "float" and not _reads(float, given.text):
        wanted = "a number"
    elif facts.choices is not None and given.text.lower() not in map(str.lower, facts.choices):
        wanted = f"one of {', '.join(facts.choices)}"
    else:
        return
    message = f"{given.name} takes {wanted}, not {shown(given.text)}"
    yield at("KS104", given.at_value, message)


def odd_values(situation: Situation) -> Iterator[Finding]:
    """Say which values the engine's parser takes and should not (KS104)."""
    if situation.kind == "sglang":
        yield from _served_name(situation)
        yield from _health_timeout(situation)
        yield from _io_workers(situation)
        yield from _batch_timeout(situation)
        yield from _process_config(situation)
        device = situation.flag("--disaggregation-ib-device")
        if device is not None and not device.text.strip():
            message = f"{device.name} is empty: the engine looks for a device of that name"
            yield at("KS104", device.at_value, message, "remove the flag to let the engine choose")
    for flag in ("--mem-fraction-static", "--gpu-memory-utilization"):
        given = situation.flag(flag)
        if given is not None and _reads(float, given.text) and not 0 < float(given.text) < 1:
            # vLLM takes exactly 1; SGLang accepts anything and dies when it allocates.
            if situation.kind == "vllm" and float(given.text) == 1:
                continue
            message = f"{given.name} {given.text} is no share of the GPU's memory"
            yield at("KS104", given.at_value, message, "write a number between 0 and 1")
    for flag in ("--port", "--nccl-port", "--grpc-port", "--master-port"):
        given = situation.flag(flag)
        port = situation.whole(given)
        if given is not None and port is not None and not 0 <= port <= 65535:
            message = f"{given.name} {port} is no port; the engine takes it and fails when it binds"
            yield at("KS104", given.at_value, message, "write a number from 1 to 65535")


def _served_name(situation: Situation) -> Iterator[Finding]:
    """Say that a colon in the name stands for an adapter; without a name the model is it."""
    given = situation.given("model.served_name")
    what = "" if given is not None else ", which names the model where model.served_name does not"
    given = given or situation.given("model.path")
    # Object stores are named by themselves.
    if given is None or given.is_open or ":" not in given.text or "://" in given.text:
        return
    message = f"{given.name}: {situation.engine_name} refuses a name with a colon{what}"
    help = "set model.served_name without a colon" if what else "write another character"
    yield at("KS104", given.at_value, message, help)


_USUAL_HEALTH_S = 10


def _health_timeout(situation: Situation) -> Iterator[Finding]:
    given = situation.variable(HEALTH_TIMEOUT)
    number = situation.whole(given)
    if given is None or number is None or situation.num_workers < 2 or number >= _USUAL_HEALTH_S:
        return
    message = (
        f"{given.name}={number} s is less than the {_USUAL_HEALTH_S} s that are usual: a worker "
        "that is busy with images answers later, and is killed"
    )
    help = "remove it: with several workers 60 is set"
    yield at("KS104", given.at_value, message, help, severity="warning")


def _io_workers(situation: Situation) -> Iterator[Finding]:
    """Say that SGLang dies of a number of threads that is none."""
    given = situation.variable(IO_WORKERS)
    if given is None or given.is_open or _is_count(given.text):
        return
    if not situation.has_images or not workers_prepare_images(situation):
        return
    flags = write_sglang(situation, decide_devices(situation)).flags
    own = situation.flag("--mm-io-worker-num")
    is_said = any(flag.name == "--mm-io-worker-num" for flag in flags)
    if is_said or (own is not None and situation.whole(own) != 0):
        return
    message = (
        f"{given.name} takes a whole number of threads, not {shown(given.text)}: every worker of "
        f"{situation.engine_name} dies of it"
    )
    yield at("KS104", given.at_value, message, "write a number, or remove it")


def _is_count(text: str) -> bool:
    try:
        return int(text) > 0
    except ValueError:
        return False


def _batch_timeout(situation: Situation) -> Iterator[Finding]:
    given = situation.flag("--dynamic-batch-tokenizer-batch-timeout")
    if given is None or not _reads(float, given.text) or float(given.text) < 0.5:
        return
    message = (
        f"{given.name} {given.text} is seconds, {float(given.text) / 0.002:.0f} times the default: "
        "a prompt can wait that long for others to join it"
    )
    help = "write 0.002 for two milliseconds"
    yield at("KS104", given.at_value, message, help, severity="warning")


def _process_config(situation: Situation) -> Iterator[Finding]:
    given = situation.flag("--mm-process-config")
    if given is None:
        return
    for key in json_object(given):
        if key not in ("image", "video", "audio"):
            message = f"{given.name}: nobody reads the key {shown(key)}, and nobody says so"
            help = "the keys are image, video and audio"
            yield at("KS104", given.at_value, message, help, severity="warning")


def several_nodes(situation: Situation) -> Iterator[Finding]:
    """Say what is wrong with the nodes of one launch (KS104, KS105)."""
    if situation.kind == "none":
        return
    nodes, rank = situation.given("engine.nodes.count"), situation.given("engine.nodes.rank")
    count, number = situation.whole(nodes) or 1, situation.whole(rank)
    if rank is not None and number is not None and not 0 <= number < max(count, 1):
        message = f"{rank.name} {number} does not exist among {count} nodes: they count from 0"
        related = (nodes.at_value.origin,) if nodes is not None else ()
        help = "the engine takes it and waits for ever"
        yield at("KS104", rank.at_value, message, help, related=related)
    flag = "--dist-init-addr" if situation.kind == "sglang" else "--master-addr"
    is_ray = situation.flag("--use-ray") or situation.flag("--distributed-executor-backend")
    has_flag = any(situation.flag(each) for each in (flag, "--nccl-port"))
    has_address = has_flag or situation.settings.engine.nodes.address is not None
    is_alone = not has_address and not is_ray and config_argument(situation) is None
    if nodes is not None and count > 1 and is_alone:
        wanted = flag if nodes.path == ARGS else "engine.nodes.address"
        message = f"{nodes.name} {count} without {wanted}: the nodes cannot find each other"
        help = f"add {wanted} with the address of node 0"
        # vLLM's own is 127.0.0.1, which is right where both are on one machine.
        severity: Severity = "error" if situation.kind == "sglang" else "warning"
        yield at("KS105", nodes, message, help, severity=severity)


def missing_model(situation: Situation) -> Iterator[Finding]:
    """Say that an engine is told no model (KS105)."""
    if situation.kind == "none" or situation.table is None:
        return
    model = situation.given("model.path")
    is_word = any(_is_word(argument) for argument in situation.arguments)
    # A file of the engine's own may name it.
    if model is None and not is_word and config_argument(situation) is None:
        given = Given("model.path", "", situation.origin("engine.kind"), "engine.kind")
        default = _default_model(situation)
        without = f"would serve {default}" if default else "does not start without one"
        message = f"no model is configured, and {situation.kind} {without}"
        yield at("KS105", given, message, "set model.path (--model-path, KIMI_SERVE_MODEL__PATH)")


def _default_model(situation: Situation) -> str:
    """Give the model that vLLM takes when it is told none."""
    flag = situation.table.by_spelling.get("--model") if situation.table else None
    return str(flag.default) if flag is not None and flag.default else ""


def _is_word(argument: EngineArgument) -> bool:
    return not argument.spelling and not argument.problem


def shadowed_values(situation: Situation) -> Iterator[Finding]:
    """Say which values never apply (KS108)."""
    for value in situation.loaded.values:
        if value.origin.kind not in ("env", "flag"):
            continue
        for origin, _ in value.overrode:
            if origin.kind == "profile":
                given = Given(value.path, "", origin, value.path)
                message = f"`{value.path}` is overridden by {value.origin} and never applies"
                yield at("KS108", given, message, "remove one of the two", related=(value.origin,))
    yield from _repeated_flags(situation)


def _repeated_flags(situation: Situation) -> Iterator[Finding]:
    last: dict[str, EngineArgument] = {}
    keyed = {each.flag.flag: each for each in situation.arguments if each.flag and each.key}
    for argument in situation.arguments:
        flag = argument.flag
        if flag is None or argument.key or argument.problem or flag.action == "append":
            continue
        earlier = last.get(flag.flag)
        last[flag.flag] = argument
        if earlier is not None:
            given = Given(earlier.spelling, "", origin_of(situation.loaded, earlier), ARGS)
            message = f"{earlier.spelling} is given twice, and the engine keeps the last"
            related = (origin_of(situation.loaded, argument),)
            yield at("KS108", given, message, "keep one of the two", related=related)
    for name, argument in last.items():
        if name in keyed:
            given = Given(argument.spelling, "", origin_of(situation.loaded, argument), ARGS)
            key = f"{keyed[name].spelling}.{keyed[name].key}"
            message = f"{argument.spelling} never applies: {key} replaces the whole of it"
            related = (origin_of(situation.loaded, keyed[name]),)
            help = "write all keys in one of the two ways"
            yield at("KS108", given, message, help, severity="warning", related=related)


RULES = (
    flag_values,
    engine_variables,
    odd_values,
    several_nodes,
    missing_model,
    shadowed_values,
)
