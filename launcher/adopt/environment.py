"""Turns the variables of a command into settings and engine.env."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from kimi_serve.schemas.engine_facts import EngineTable, read_boolean
from kimi_serve.schemas.engine_names import OLD_SWITCH, SWITCH, VISIBLE
from kimi_serve.schemas.errors import ConfigError
from kimi_serve.schemas.fields import ENV_PREFIX
from kimi_serve.schemas.gpu_ids import visible_ids

from ..lint.env_file import read_env_file
from ..resolver.situation import FLAG
from ..sources.characters import printable, shown
from ..sources.files import reason_of
from ..sources.yaml_tree import MAX_BYTES
from .arguments import Adopted
from .hiding import Secrets
from .profile_text import Entry
from .words import EnvFile, Told, Variable, Word, literal, reference, references_in

GPUS = "gpu.ids"
# Read by what an engine is made of, also where a whole file of variables is shared.
_WELL_KNOWN = re.compile(
    r"(HF|HUGGING_?FACE|HUGGINGFACEHUB|TRANSFORMERS|TOKENIZERS|NCCL|RCCL|GLOO|UCX|NVSHMEM|MC|MOONCAKE"
    r"|CUDA|CUDNN|CUBLAS|NVIDIA|HIP|ROCM|ROCR|HSA|ASCEND|HCCL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON"
    r"|FLASHINFER|OMP|MKL|OPENBLAS|NUMBA|NUMEXPR|VLLM|SGLANG|SGL|RAY|LMCACHE|PROMETHEUS|OTEL|LD"
    r"|MALLOC|MODELSCOPE|SAFETENSORS|TIKTOKEN|XDG|AWS|S3|PYTHON)_.*"
    r"|PYTHON[A-Z]+|PATH|HOME|TMPDIR|LANG|LC_ALL|TZ|(HTTPS?|NO|ALL)_PROXY|(https?|no|all)_proxy"
)


def read_env_files(
    files: Sequence[EnvFile], told: Told, *, is_required: bool = False
) -> Iterator[Variable]:
    """Read files of KEY=VALUE lines; one that docker would read may be elsewhere."""
    for file in files:
        text = file.name.text
        name = printable(text)
        try:
            with Path(text).open("rb") as opened:
                data = opened.read(MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            if is_required:
                raise ConfigError(f"{name} cannot be read: {reason_of(error)}") from None
            optional = ", and need not be there" if file.is_optional else ""
            told.note(
                f"{name} cannot be read here{optional}: give it as --env-file to adopt its "
                "variables"
            )
            continue
        told.files.append(text)
        read = read_env_file(data, text)
        for key, value in read.values.items():
            place = f"{name}:{read.places[key].line}"
            yield Variable(key, Word(literal(value), place), place, is_explicit=False)


class Environment:
    """Takes the variables of a command."""

    def __init__(self, table: EngineTable, adopted: Adopted, secrets: Secrets, told: Told) -> None:
        self._table = table
        self._adopted = adopted
        self._secrets = secrets
        self._told = told

    def take(self, variables: Sequence[Variable]) -> None:
        """Adopt every variable; of several of one name the last counts."""
        last = {variable.name: variable for variable in variables}
        for variable in variables:
            if variable is not last[variable.name]:
                place = last[variable.name].place
                self._told.note(
                    f"left out ({variable.place}): {printable(variable.name)}: it is set again in "
                    f"{place}"
                )
        if self._table.engine == "sglang":
            # In the engine the name of older releases overwrites the one of today.
            for name in (SWITCH, OLD_SWITCH):
                if name in last and last[name].value is not None:
                    self._switch(last.pop(name))
        for variable in last.values():
            self._one(variable)

    def _switch(self, variable: Variable) -> None:
        """Read the engine's own switch as the engine does."""
        text = variable.value.text if variable.value else ""
        name = variable.name
        if references_in(text):
            self._one(variable)
            return
        read = read_boolean("env-bool", text)
        if isinstance(read, bool):
            self._adopted.settings[FLAG] = Entry(read, f"{variable.place}: {name}={text}")
            return
        if FLAG in self._adopted.settings:
            self._adopted.settings.pop(FLAG)
        self._told.note(f"left out ({variable.place}): {name}={printable(text)}: no boolean")
        self._told.find(
            "KS107", "error",
            f"{name}={shown(text)} is no boolean to the engine: it warned and used its default "
            "False, which is GPU preprocessing; so does the profile",
            variable.place,
            f"if the CPU was meant, set {FLAG}: true",
            FLAG,
        )  # fmt: skip

    def _one(self, variable: Variable) -> None:
        name = variable.name
        if name.upper().startswith(ENV_PREFIX):
            self._told.note(
                f"left out ({variable.place}): {printable(name)}: a variable of kimi-serve itself"
            )
        elif not variable.is_explicit and not self._is_known(name):
            self._told.note(
                f"left out ({variable.place}): {printable(name)}: nothing of the engine is known "
                "to read it; put it into engine.env if a plugin does"
            )
        elif variable.value is None:
            comment = f"{variable.place}: passed on by its name: it must be set at the start"
            self._adopted.env[name] = Entry(reference(name), comment)
        else:
            self._keep(variable, variable.value)

    def _is_known(self, name: str) -> bool:
        table = self._table
        return table.owns(name) or table.env(name) is not None or bool(_WELL_KNOWN.fullmatch(name))

    def _keep(self, variable: Variable, value: Word) -> None:
        name = variable.name
        comment = variable.place
        if value.unsure:
            self._told.note(f"{value.place}: {printable(name)}: {value.unsure}")
            comment += f": {value.unsure}"
        if self._secrets.value_of_variable(name, value.text):
            exported = self._secrets.variable_for(name, value.text)
            self._told.note(f"export {exported} before the start: its value is not written here")
            text = reference(exported)
            comment += f": export {exported} before the start"
        else:
            text = value.text
        self._adopted.env[name] = Entry(text, comment)
        if name == VISIBLE and not references_in(text) and not value.unsure:
            ids = visible_ids(text)
            self._adopted.settings.setdefault(GPUS, Entry(ids, f"{value.place}: {name}={text}"))
