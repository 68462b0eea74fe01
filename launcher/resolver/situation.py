"""What the decisions and the rules look at: settings, checkpoint, machine, tables, arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

from kimi_serve.schemas.engine_facts import EngineTable, engine_table, read_boolean
from kimi_serve.schemas.engine_names import OLD_SWITCH, SWITCH
from kimi_serve.schemas.plan import LoadedSettings
from kimi_serve.schemas.provenance import Origin
from kimi_serve.schemas.settings import Settings
from kimi_serve.schemas.support import SupportRow, SupportTable
from kimi_serve.schemas.vocabulary import FORCE_CPU, EngineKind

from ..engine_command import EngineArgument
from .engine_view import OWNED, Given, given_flag, given_variables, read_arguments
from .gpu_presence import GpuPresence, find_gpu

if TYPE_CHECKING:
    from kimi_serve.schemas.checkpoint import CheckpointFacts
    from kimi_serve.schemas.engine_launch import EngineInstall
    from kimi_serve.schemas.hardware import Hardware

FLAG = FORCE_CPU  # the flag of the support table, of the rules and of the pages
WORKER_NUM = "tokenizer.worker_num"

# With these a balancer outside of vLLM spreads the requests.
_ONE_SERVER = (
    "--data-parallel-external-lb",
    "--data-parallel-multi-port-external-lb",
    "--data-parallel-rank",
)
_VISION_NAME = re.compile(r"ForConditionalGeneration$|VL|Vision|OCR")


@dataclass(frozen=True, slots=True)
class Situation:
    """The inputs of the resolver and of the rules, with what was looked up for them.

    `checkpoint` is None where it could not be read, `hardware` where nobody looked, `env` where
    it is not known what an engine inherits. `version` is the engine's version that the tables
    were asked for, "" for the built-in workers; `row` is None where the support table does not
    know the architecture at that version, `table` where no release as old was read, `install`
    where nobody asked the engine's interpreter.
    """

    loaded: LoadedSettings
    checkpoint: CheckpointFacts | None
    hardware: Hardware | None
    support: SupportTable
    gpu: GpuPresence
    version: str
    row: SupportRow | None
    table: EngineTable | None = None
    arguments: tuple[EngineArgument, ...] = ()
    env: Mapping[str, str] | None = None
    install: EngineInstall | None = None

    @property
    def settings(self) -> Settings:
        return self.loaded.settings

    @property
    def kind(self) -> EngineKind:
        return self.settings.engine.kind

    @property
    def has_gpu_extra(self) -> bool:
        """Whether the built-in workers can use a GPU; False where nobody looked."""
        return self.hardware is not None and self.hardware.has_gpu_extra

    @property
    def engine_name(self) -> str:
        return "the built-in workers" if self.kind == "none" else f"{self.kind} {self.version}"

    @property
    def known_checkpoint(self) -> CheckpointFacts:
        """The checkpoint of a launch, which cannot do without."""
        assert self.checkpoint is not None, "a launch has read its checkpoint"
        return self.checkpoint

    @property
    def architectures(self) -> tuple[str, ...]:
        """What config.json names; nothing when it could not be read."""
        return () if self.checkpoint is None else self.checkpoint.architectures

    @property
    def architecture(self) -> str:
        """The architecture that decided, or all that config.json names."""
        names = self.architectures
        if self.row is not None:
            names = tuple(name for name in names if name in self.row.architectures)[:1]
        return ", ".join(names) or "a checkpoint that names no architecture"

    def is_one_of(self, architectures: Iterable[str]) -> bool:
        """Say whether the checkpoint is known to have one of these architectures."""
        return not set(architectures).isdisjoint(self.architectures)

    @property
    def has_images(self) -> bool:
        """Whether the model may take images; False only for what is known as text-only.

        A bare config.json says little, so an architecture that any engine processes images for,
        or whose name says so, counts as well.
        """
        if self.checkpoint is None or self.checkpoint.has_vision:
            return True
        rows = self.support.rows
        tabled = {name for row in rows for name in row.architectures}
        return any(name in tabled or _VISION_NAME.search(name) for name in self.architectures)

    @property
    def is_version_known(self) -> bool:
        """Whether any row covers this version of the engine."""
        return self.support.is_known(self.kind, self.version)

    def origin(self, path: str) -> Origin:
        """Say who set the leaf at `path`."""
        return self.loaded.origin(path)

    def is_set(self, path: str) -> bool:
        """Say whether anybody set the leaf at `path`."""
        return self.origin(path).kind != "default"

    def flag(self, flag: str) -> Given | None:
        """Give what engine.args say with this flag, by its name today."""
        return given_flag(self.loaded, self.arguments, flag)

    def variables(self) -> tuple[Given, ...]:
        """Give all variables that the engine would find, engine.env before what it inherits."""
        return tuple(given_variables(self.loaded, self.env))

    def variable(self, name: str) -> Given | None:
        """Give one of the variables that the engine would find, as it stands."""
        return next((given for given in self.variables() if given.name == name), None)

    def given(self, path: str) -> Given | None:
        """Give what the engine is told of a setting: the setting, else its flag in engine.args.

        None when neither is there and the default of the setting, or the engine's, holds.
        """
        if self.is_set(path):
            value = attrgetter(path)(self.settings)
            text = str(value).lower() if isinstance(value, bool) else str(value)
            return None if value is None else Given(path, text, self.origin(path), path)
        flag = OWNED[self.kind].get(path)
        return self.flag(flag) if flag else None

    def whole(self, given: Given | None) -> int | None:
        """Read a given value as a whole number, None for what is none."""
        try:
            return None if given is None else int(given.text)
        except ValueError:
            return None

    def whole_flag(self, flag: str, default: int) -> int:
        """Give the whole number that engine.args say with this flag, else `default`."""
        number = self.whole(self.flag(flag))
        return default if number is None else number

    @property
    def forced(self) -> Given | None:
        """Who forces image work to the CPU: the setting, or the engine's own variable.

        A setting that somebody made counts alone: the launch says it to the engine.
        """
        if self.settings.image.force_cpu_preprocessing:
            return Given(FLAG, "true", self.origin(FLAG), FLAG)
        if self.kind != "sglang" or self.is_set(FLAG):
            return None
        # In the engine the name of older releases overwrites the one of today.
        given = self.variable(OLD_SWITCH) or self.variable(SWITCH)
        if given is not None and read_boolean("env-bool", given.text) is True:
            return given
        return None

    @property
    def is_forced(self) -> bool:
        return self.forced is not None

    @property
    def num_workers(self) -> int:
        """How many workers there will be, also where engine.args alone say it."""
        number = self.whole(self.given(WORKER_NUM))
        if number is None and self.kind == "vllm":
            number = self._replicas()
        return self.settings.tokenizer.worker_num if number is None else max(1, number)

    def _replicas(self) -> int | None:
        """Give how many API servers vLLM starts where nobody says it: one a replica."""
        if any(self.flag(flag) for flag in _ONE_SERVER):
            return 1
        if self.flag("--data-parallel-hybrid-lb") or self.flag("--data-parallel-start-rank"):
            return self.whole_flag("--data-parallel-size-local", 1)
        return self.whole(self.flag("--data-parallel-size"))

    @property
    def workers_origin(self) -> Origin:
        """Who says how many workers there are."""
        given = self.given(WORKER_NUM)
        return self.origin(WORKER_NUM) if given is None else given.origin


def look_up(
    loaded: LoadedSettings,
    checkpoint: CheckpointFacts | None,
    hardware: Hardware | None,
    support: SupportTable,
    env: Mapping[str, str] | None = None,
    install: EngineInstall | None = None,
) -> Situation:
    """Find GPU, engine version, table rows and arguments for the inputs."""
    engine = loaded.settings.engine
    installed = install.version if install is not None else None
    newest = "" if engine.kind == "none" else support.newest[engine.kind]
    version = "" if engine.kind == "none" else engine.version or installed or newest
    table = None if engine.kind == "none" else engine_table(engine.kind, version)
    architectures = () if checkpoint is None else checkpoint.architectures
    return Situation(
        loaded=loaded,
        checkpoint=checkpoint,
        hardware=hardware,
        support=support,
        gpu=find_gpu(loaded, hardware),
        version=version,
        row=support.find(engine.kind, version, architectures),
        table=table,
        arguments=read_arguments(loaded, table),
        env=env,
        install=install,
    )
