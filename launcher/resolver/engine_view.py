"""What an engine would be told beside the settings: its flags and its variables, with origins.

Pure. `OWNED` says which settings a flag of `engine.args` would say once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kimi_serve.schemas.engine_facts import EngineTable
from kimi_serve.schemas.plan import LoadedSettings
from kimi_serve.schemas.provenance import Origin

from ..engine_command import EngineArgument, parse_arguments

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
        "gpu.mem_fraction_static": "--gpu-memory-utilization",
        "log.level": "--uvicorn-log-level",
    },
    "none": {},
}


@dataclass(frozen=True, slots=True)
class Given:
    """A value that the engine is told, and who tells it.

    `name` is the setting, flag or variable as it is written; `path` the setting it stands in, ""
    for a variable that is only inherited. `text` may be a secret: look at `name` in messages.
    """

    name: str
    text: str
    origin: Origin
    path: str

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
    """Give the last argument that is this flag, by its name today: argparse keeps the last."""
    for argument in reversed(arguments):
        if argument.flag is not None and argument.flag.flag == flag and not argument.key:
            return Given(argument.spelling, text_of(argument), origin_of(loaded, argument), ARGS)
    return None


def origin_of(loaded: LoadedSettings, argument: EngineArgument) -> Origin:
    """Say where the flag of an argument stands."""
    return loaded.item(ARGS, argument.position)


def text_of(argument: EngineArgument) -> str:
    """Give what an argument says: "true" or "false" for a bare switch."""
    if argument.values:
        return " ".join(argument.values)
    return "false" if argument.negated else "true"


def given_variables(loaded: LoadedSettings, env: Mapping[str, str] | None) -> Iterator[Given]:
    """Give what the engine would find: engine.env, then what it inherits besides."""
    own = loaded.settings.engine.env
    for name, text in own.items():
        yield Given(name, text, loaded.entry(ENV, name).name, ENV)
    for name, text in (env or {}).items():
        if name not in own:
            yield Given(name, text, Origin("env", name), "")
