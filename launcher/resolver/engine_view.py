"""What an engine would be told beside the settings: its flags and its variables, with origins.

Pure. `OWNED` says which settings a flag of `engine.args` would say once more.

A finding about an argument or a variable points at what is wrong. That is the value where another
value would be right: a number too large, an unknown word, a secret, an address. It is the flag or
the name where no value would be: unknown, old, without effect, not to be had in this company.
Settings are placed likewise by their readers. `Given.origin` is the name's place, `at_value` the
same thing at its value; `--flag=value` is one word and has one place, and so has a bare switch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from kimi_serve.schemas.engine_facts import EngineTable
from kimi_serve.schemas.plan import LoadedSettings
from kimi_serve.schemas.provenance import Origin

from ..engine_command import EngineArgument, keyed_text, last_keyed, parse_arguments

ARGS = "engine.args"
ENV = "engine.env"
REFERENCE = "${"

# The flag of each engine that a setting becomes.
OWNED: Mapping[str, Mapping[str, str]] = {
    "sglang": {
        "model.path": "--model-path",
        "model.revision": "--revision",
        "model.tokenizer_path": "--tokenizer-path",
        "model.served_name": "--served-model-name",
        "model.trust_remote_code": "--trust-remote-code",
        "tokenizer.worker_num": "--tokenizer-worker-num",
        "tokenizer.skip_init": "--skip-tokenizer-init",
        "media.allowed_domains": "--allowed-media-domains",
        "server.host": "--host",
        "server.port": "--port",
        "server.api_key": "--api-key",
        "gpu.mem_fraction_static": "--mem-fraction-static",
        "log.level": "--log-level",
        "engine.nodes.count": "--nnodes",
        "engine.nodes.rank": "--node-rank",
        "engine.nodes.address": "--dist-init-addr",
    },
    "vllm": {
        "model.path": "--model",
        "model.revision": "--revision",
        "model.tokenizer_path": "--tokenizer",
        "model.served_name": "--served-model-name",
        "model.trust_remote_code": "--trust-remote-code",
        "tokenizer.worker_num": "--api-server-count",
        "tokenizer.skip_init": "--skip-tokenizer-init",
        "media.allowed_domains": "--allowed-media-domains",
        "server.host": "--host",
        "server.port": "--port",
        "server.api_key": "--api-key",
        "server.drain_timeout_s": "--shutdown-timeout",
        "gpu.mem_fraction_static": "--gpu-memory-utilization",
        "log.level": "--uvicorn-log-level",
        "engine.nodes.count": "--nnodes",
        "engine.nodes.rank": "--node-rank",
    },
    "none": {},
}


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the engine is told, and who tells it.

    `name` is the setting, flag or variable as it is written; `path` the setting it stands in, ""
    for a variable that is only inherited. `text` may be a secret: look at `name` in messages.
    `value` is where the value stands, None where that is the same place.
    """

    name: str
    text: str
    origin: Origin
    path: str
    value: Origin | None = None

    @property
    def at_value(self) -> Given:
        """The same, for a finding about the value."""
        return self if self.value is None else replace(self, origin=self.value)

    @property
    def is_open(self) -> bool:
        """Whether the value is a reference that nobody looked up: lint reads no variables."""
        return REFERENCE in self.text


def read_arguments(loaded: LoadedSettings, table: EngineTable | None) -> tuple[EngineArgument, ...]:
    """Read engine.args as the engine would; nothing when there is no table."""
    if table is None:
        return ()
    # A model that no setting names may stand in the arguments as a word of its own.
    words = 1 if loaded.settings.model.path is None else 0
    return parse_arguments(loaded.settings.engine.args, table, words=words)


def given_flag(
    loaded: LoadedSettings, arguments: tuple[EngineArgument, ...], flag: str
) -> Given | None:
    """Give what counts of this flag, by its name today: argparse keeps the last argument.

    vLLM puts `--flag.key` together and appends the whole, so that it beats every plain `--flag`.
    """
    found = [each for each in arguments if each.flag is not None and each.flag.flag == flag]
    last = next((each for each in reversed(found) if not each.key), None)
    keyed = last_keyed(found)
    if keyed:
        return _given(loaded, keyed[-1], keyed_text(keyed))
    return None if last is None else _given(loaded, last, text_of(last))


def _given(loaded: LoadedSettings, argument: EngineArgument, text: str) -> Given:
    value = value_origin_of(loaded, argument)
    return Given(argument.spelling, text, origin_of(loaded, argument), ARGS, value)


def origin_of(loaded: LoadedSettings, argument: EngineArgument) -> Origin:
    """Say where the flag of an argument stands."""
    return loaded.item(ARGS, argument.position)


def value_origin_of(loaded: LoadedSettings, argument: EngineArgument, index: int = 0) -> Origin:
    """Say where a value of an argument stands."""
    behind = 0 if argument.inline or not argument.values or not argument.spelling else 1
    return loaded.item(ARGS, argument.position + behind + index)


def text_of(argument: EngineArgument) -> str:
    """Give what an argument says: "true" or "false" for a bare switch."""
    if argument.values:
        return " ".join(argument.values)
    return "false" if argument.negated else "true"


def given_variables(loaded: LoadedSettings, env: Mapping[str, str] | None) -> Iterator[Given]:
    """Give what the engine would find: engine.env, then what it inherits besides."""
    own = loaded.settings.engine.env
    for name, text in own.items():
        entry = loaded.entry(ENV, name)
        yield Given(name, text, entry.name, ENV, entry.value)
    for name, text in (env or {}).items():
        if name not in own:
            yield Given(name, text, Origin("env", name), "")
