"""Every variable that a plan sets or takes away is one that the engine knows, and reads as meant.

The registry is read from the engine's own file, by path, when KIMI_SERVE_TEST_SGLANG or
KIMI_SERVE_TEST_VLLM names a wheel or an installed package directory; nothing of the engine is
imported. Without one the committed table of names stands in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest
from engine_proof.asking import read_registry
from engine_proof.cases import ENGINES, Case, Engine, cases
from engine_proof.commands import commands
from engine_proof.record import read_record, refresh_command
from engine_reading.package import open_package

from kimi_serve.schemas.engine_facts import EngineTable, engine_table, read_boolean

ENGINE_NAMES: tuple[Engine, ...] = get_args(Engine)
REGISTRIES: Mapping[Engine, str] = {"sglang": "sglang/srt/environ.py", "vllm": "vllm/envs.py"}
SWITCH = "SGLANG_FORCE_CPU_IMAGE_PREPROCESSING"
# Read by numba, which vLLM's image code runs on.
FOREIGN = frozenset({"CUDA_VISIBLE_DEVICES", "NUMBA_NUM_THREADS"})
OURS = "KIMI_SERVE_"
TEXTS = ("1", "0", "true", "FALSE", "y", "n", "on", "off", "", " 1", "1 ", "2", "cpu", "\xa01")


def registry(engine: Engine, folder: Path) -> Path:
    """Give the engine's own file with its variables, or skip with the reason."""
    variable = f"KIMI_SERVE_TEST_{engine.upper()}"
    named = os.environ.get(variable)
    if not named:
        pytest.skip(f"{variable} names no wheel: the committed table and the record stand in")
    file = folder / "registry.py"
    file.write_text(open_package(Path(named)).text(REGISTRIES[engine]), encoding="utf-8")
    return file


def is_known(name: str, known: frozenset[str], table: EngineTable) -> bool:
    """Say whether the engine reads a variable, perhaps under the name that it renames it to."""
    names = {name} | {
        new + name.removeprefix(old)
        for old, new in table.renamed_prefixes.items()
        if name.startswith(old)
    }
    return bool(names & known) or name in FOREIGN or name.startswith(OURS)


def undeclared(table: EngineTable) -> frozenset[str]:
    """Give the names that the engine reads past its own registry."""
    return frozenset(each.name for each in table.environment.values() if not each.declared)


def table_of(engine: Engine) -> EngineTable:
    table = engine_table(engine, ENGINES[engine])
    assert table is not None
    return table


def all_variables(engine: Engine) -> set[str]:
    launches = [command.launch for command in commands(engine).values()]
    return {variable.name for launch in launches for variable in launch.variables}


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_the_committed_table_knows_every_variable(engine: Engine) -> None:
    table = table_of(engine)
    known = frozenset(table.environment)
    found = all_variables(engine)
    assert found
    assert {name for name in found if not is_known(name, known, table)} == set()


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_the_engine_s_registry_knows_every_variable(engine: Engine, tmp_path: Path) -> None:
    file = registry(engine, tmp_path)
    table = table_of(engine)
    known = frozenset(read_registry(file, [])["names"]) | undeclared(table)
    assert {name for name in all_variables(engine) if not is_known(name, known, table)} == set()


@pytest.mark.parametrize("engine", ENGINE_NAMES)
def test_the_engine_s_registry_reads_what_is_recorded(engine: Engine, tmp_path: Path) -> None:
    file = registry(engine, tmp_path)
    environments = [command.environment for command in commands(engine).values()]
    read = read_registry(file, environments)["read"]
    record = read_record(engine)
    for name, found in zip(commands(engine), read, strict=True):
        assert found == record[name]["variables"], (name, refresh_command(engine))


@pytest.mark.parametrize("case", cases("sglang"), ids=lambda case: case.name)
def test_the_switch_is_read_as_the_plan_means_it(case: Case) -> None:
    """True exactly where the plan promises the CPU by the switch, also beside the old name."""
    plan = commands("sglang")[case.name].plan
    values: Mapping[str, Any] = read_record("sglang")[case.name]["variables"]["values"]
    forced = plan.settings.image.force_cpu_preprocessing
    assert values[SWITCH] is forced
    devices = {plan.decode_device.value, plan.preprocess_device.value}
    assert devices == ({"cpu"} if forced or not plan.settings.gpu.ids else {"cuda"})


def test_sglang_reads_booleans_as_we_say_it_does(tmp_path: Path) -> None:
    file = registry("sglang", tmp_path)
    read = read_registry(file, [{SWITCH: text} for text in TEXTS])["read"]
    for text, found in zip(TEXTS, read, strict=True):
        outcome = read_boolean("env-bool", text)
        assert found["values"][SWITCH] is (outcome is True), repr(text)
        assert bool(found["warnings"]) is (outcome == "default"), repr(text)


def test_the_old_name_would_win_if_it_were_left(tmp_path: Path) -> None:
    """Why the plan takes it away."""
    file = registry("sglang", tmp_path)
    old = SWITCH.replace("SGLANG_", "SGL_")
    left = {SWITCH: "1", old: "0"}
    assert read_registry(file, [left])["read"][0]["values"][SWITCH] is False
