"""What is loaded once, in the process that workers are forked from."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from demo import PAD
from plan_factories import make_plan
from test_tokenizer import HELLO_WORLD, TOY_PAD, write_toy

from kimi_serve.preprocess.checkpoint_files.locate import BUNDLED
from kimi_serve.preprocess.workers import worker
from kimi_serve.preprocess.workers.processor import build_processor, library_versions, text_tools
from kimi_serve.schemas.errors import PlanError
from kimi_serve.schemas.messages import TextJob
from kimi_serve.schemas.vocabulary import TOKENIZER_KINDS, TokenizerKind
from kimi_serve.schemas.worker import TokenizerSpec, WorkerSpec


@pytest.fixture(autouse=True)
def nothing_loaded() -> Iterator[None]:
    text_tools.cache_clear()
    yield
    text_tools.cache_clear()


def make_files(directory: Path, kind: TokenizerKind) -> WorkerSpec:
    shutil.copytree(BUNDLED, directory, dirs_exist_ok=True)
    placeholder = PAD
    if kind == "tiktoken.model":
        (directory / "tokenizer.json").unlink()
        write_toy(directory)
        placeholder = TOY_PAD
    return replace(
        make_plan().workers[0], tokenizer=TokenizerSpec(str(directory), kind, placeholder)
    )


def ids_of(spec: WorkerSpec, text: bytes) -> list[int]:
    _, ids = build_processor(spec).text(TextJob(1), text)
    return list(memoryview(ids).cast("i"))


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_worker_needs_no_file_that_was_loaded_before_it_was_forked(
    kind: TokenizerKind, tmp_path: Path
) -> None:
    spec = make_files(tmp_path, kind)
    assert worker.prepare(spec)
    assert not worker.prepare(spec)
    shutil.rmtree(tmp_path)
    ids = ids_of(spec, b"hello world")
    assert ids
    assert kind == "tokenizer.json" or ids == HELLO_WORLD


def test_what_cannot_be_loaded_is_told_by_the_worker_and_loaded_once_it_can(
    tmp_path: Path,
) -> None:
    spec = make_files(tmp_path, "tokenizer.json")
    content = (tmp_path / "tokenizer.json").read_bytes()
    (tmp_path / "tokenizer.json").write_bytes(content[:100])
    for _ in range(2):
        assert not worker.prepare(spec)
        with pytest.raises(PlanError, match=r"tokenizer\.json"):
            build_processor(spec)
    (tmp_path / "tokenizer.json").write_bytes(content)
    assert worker.prepare(spec)
    assert ids_of(spec, b"x")


def test_nothing_is_loaded_for_workers_that_need_no_tokenizer_or_are_spawned(
    tmp_path: Path,
) -> None:
    spec = make_files(tmp_path, "tokenizer.json")
    assert not worker.prepare(replace(spec, tokenizer=None))
    assert not worker.prepare(replace(spec, preprocess_device="cuda"))
    assert text_tools.cache_info().misses == 0


THREADS = """
import sys
from kimi_serve.preprocess.workers import process, worker
from test_worker_prepare import make_files
from pathlib import Path
spec = make_files(Path(sys.argv[2]), sys.argv[1])
worker.preload()
assert worker.prepare(spec)
assert process.count_threads() == 1, process.count_threads()
assert not {"torch", "transformers", "fastapi", "uvicorn"} & set(sys.modules)
"""


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_loading_starts_no_thread(kind: TokenizerKind, tmp_path: Path) -> None:
    (variables,) = {spec.env for spec in make_plan().workers}
    here = Path(__file__).parent
    places = {"PYTHONPATH": os.pathsep.join((str(here), str(here.parent)))}
    subprocess.run(
        [sys.executable, "-c", THREADS, kind, str(tmp_path)],
        env=os.environ | dict(variables) | places,
        check=True,
    )


def test_versions_are_looked_up_before_the_fork() -> None:
    library_versions.cache_clear()
    worker.preload()
    assert library_versions.cache_info().misses == 1
    assert library_versions()["kimi-serve"]
    assert library_versions.cache_info().misses == 1
