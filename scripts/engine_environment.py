"""Make an environment in which an engine's parser, checks and processors run without a GPU.

    python scripts/engine_environment.py WHEEL FOLDER [--packages-of PYTHON]

WHEEL is a wheel of SGLang 0.5.23 or vLLM 0.33.0, FOLDER a new virtual environment of the running
Python. What is installed is what the engine imports up to there, by pip as it is configured; the
kernels for GPUs, which make up most of an engine's requirements, are left out. `--packages-of`
takes torch, torchvision and transformers from another interpreter instead, where it has them.
The last line is the variable to set for the tests.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

_TORCH = ("torch==2.14.*", "torchvision==0.29.*")
# Installed with what they require.
_PACKAGES = {
    "sglang": (
        "transformers>=5.19",
        "aiohttp",
        "fastapi",
        "ipython",
        "msgspec",
        "orjson",
        "psutil",
        "pybase64",
        "pyzmq",
        "requests",
        "starlette",
        "uvicorn",
        "uvloop",
    ),
    "vllm": (
        "transformers>=5.16.1,<5.21",
        "aiohttp",
        "anthropic>=0.71",
        "blake3",
        "cachetools",
        "cbor2",
        "cloudpickle",
        "einops",
        "fastapi>=0.133,<0.137",
        "gguf",
        "ijson",
        "jsonschema",
        "lark==1.2.2",
        "llguidance>=1.7,<1.8",
        "lm-format-enforcer==0.11.3",
        "mcp>=2.2,<3",
        "mistral_common[image]>=1.11.6",
        "model-hosting-container-standards>=0.1.14,<1",
        "msgspec",
        "ninja",
        "numba==0.65.0",
        "openai>=2.25",
        "opencv-python-headless>=4.13",
        "opentelemetry-exporter-otlp>=1.27",
        "opentelemetry-sdk>=1.27",
        "opentelemetry-semantic-conventions-ai>=0.4.1",
        "orjson",
        "oss-harmony>=0.0.11",
        "outlines_core==0.2.14",
        "partial-json-parser",
        "prometheus-fastapi-instrumentator",
        "protobuf>=5.29.6",
        "psutil",
        "py-cpuinfo",
        "pybase64",
        "python-json-logger",
        "pyzmq",
        "sentencepiece",
        "setproctitle",
        "six",
        "tiktoken",
        "uvloop",
        "watchfiles",
    ),
}
# Installed alone: what they require is the engine's, or for a GPU.
_ALONE = {
    "sglang": (
        "apache-tvm-ffi==0.1.11",
        "compressed-tensors==0.18.0",
        "dill",
        "distro",
        "einops",
        "gguf",
        "jiter",
        "loguru",
        "openai",
        "partial-json-parser",
        "sentencepiece",
        "sniffio",
    ),
    "vllm": (
        "apache-tvm-ffi==0.1.11",
        "astor",
        "compressed-tensors==0.17.0",
        "depyf==0.20.0",
        "dill",
        "loguru",
        "xgrammar==0.2.8",
    ),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("wheel", type=Path, metavar="WHEEL")
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--packages-of", metavar="PYTHON")
    arguments = parser.parse_args(argv)
    engine = arguments.wheel.name.partition("-")[0]
    if engine not in _PACKAGES:
        parser.error(f"{arguments.wheel.name} is no wheel of {' or '.join(_PACKAGES)}")
    if arguments.folder.exists():
        parser.error(f"{arguments.folder} is there already")
    venv.create(arguments.folder, with_pip=True)
    python = arguments.folder.absolute() / "bin" / "python"
    try:
        if arguments.packages_of is None:
            install(python, _TORCH)
        else:
            share(python, arguments.packages_of)
        install(python, _PACKAGES[engine])
        install(python, (str(arguments.wheel), *_ALONE[engine]), "--no-deps")
    except subprocess.CalledProcessError as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    sys.stdout.write(f"KIMI_SERVE_TEST_{engine.upper()}_PYTHON={python}\n")
    return 0


def install(python: Path, packages: Sequence[str], *options: str) -> None:
    """Have pip install packages; what it says of the engine's other requirements is no matter."""
    subprocess.run([python, "-m", "pip", "install", "-q", *options, *packages], check=True)


def share(python: Path, other: str) -> None:
    """Let an interpreter find the packages of another one behind its own."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs, ours = (
        subprocess.run([each, "-c", code], check=True, capture_output=True, text=True).stdout
        for each in (other, python)
    )
    Path(ours.strip(), "shared.pth").write_text(theirs, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
