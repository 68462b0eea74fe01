"""What must stay light, looked at in a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "torchvision")
WEB = ("fastapi", "starlette", "uvicorn", "prometheus_client")
FETCHING = ("h11", "idna", "kimi_serve.preprocess.media.fetch")
PIXELS = ("numpy", "PIL", "simplejpeg", "zlib_ng", "tokenizers", "tiktoken", "jinja2")


def modules_after(code: str, *argv: str) -> set[str]:
    """Run `code` in a fresh interpreter; give the names of all modules that it loaded."""
    script = f"{code}\nimport sys\nprint('\\nMODULES', *sorted(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-P", "-c", script, *argv], capture_output=True, text=True, check=True
    )
    return set(result.stdout.rpartition("MODULES")[2].split())


@pytest.mark.parametrize(
    ("code", "forbidden"),
    [
        ("import kimi_serve.schemas.settings, kimi_serve.schemas.plan", HEAVY + WEB + PIXELS),
        ("import kimi_serve.launcher.cli", HEAVY + WEB + PIXELS),
        ("import kimi_serve.launcher.sources.characters", ("pydantic", "yaml", "json")),
        (
            "from kimi_serve.launcher.cli import run; run(['plan'])",
            HEAVY + WEB + PIXELS,
        ),
        (
            "from kimi_serve.launcher.cli import run; run(['explain', 'server.port'])",
            HEAVY + WEB + PIXELS,
        ),
        (
            "from kimi_serve.launcher.cli import run; run(['lint', '/dev/null'])",
            HEAVY + WEB + PIXELS,
        ),
        (
            "from kimi_serve.launcher.cli import run; run(['adopt', '--', 'vllm', 'serve', '/m'])",
            HEAVY + WEB + PIXELS,
        ),
        (
            "from kimi_serve.launcher.cli import run; run(['rule', 'KS201'])",
            HEAVY + WEB + PIXELS,
        ),
        ("import kimi_serve.preprocess.workers.worker as w; w.preload()", HEAVY + WEB),
        ("import kimi_serve.launcher.serve, kimi_serve.launcher.front.app", HEAVY + FETCHING),
        (
            "from kimi_serve.preprocess.media.sources import MediaSources as Sources\n"
            "from kimi_serve.schemas.settings import MediaSettings as Settings\n"
            "Sources(Settings(allowed_local_dirs=('/srv',)))",
            HEAVY + FETCHING,
        ),
    ],
)
def test_imports_stay_light(code: str, forbidden: tuple[str, ...]) -> None:
    assert not modules_after(code) & set(forbidden)


def test_no_module_is_loaded_under_a_bare_name() -> None:
    loaded = modules_after(
        "import kimi_serve.launcher.front.app, kimi_serve.preprocess.workers.worker"
    )
    assert not loaded & {"launcher", "preprocess", "schemas"}


def test_preloading_a_worker_starts_no_thread() -> None:
    code = (
        "import os; os.environ['OPENBLAS_NUM_THREADS'] = '1'\n"
        "from kimi_serve.preprocess.workers import process as p, worker as w\n"
        "w.preload(); assert p.count_threads() == 1, p.count_threads()"
    )
    modules_after(code)
