"""How long `kimi-serve lint` takes on a profile of 100 lines, against three imports.

    python benchmarks/lint_time.py [RUNS]

The yardstick is `python -c "import pydantic_settings, click, yaml"`; runs alternate, the medians
are compared, and the ratio should stay below 1.5. Both sides run from compiled files, as they are
after an installation, whatever the environment says about writing them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR = 1.5
YARDSTICK = [sys.executable, "-c", "import pydantic_settings, click, yaml"]
SETTINGS = """\
model: {path: org/vision-model, revision: main}
engine:
  kind: sglang
  version: 0.5.23
  args: [--tp-size, "2", --log-level, info]
  env: {SGLANG_VLM_CACHE_SIZE_MB: "256"}
gpu: {ids: ["0", "1"], total_mib: 143360}
tokenizer: {worker_num: 4}
image: {force_cpu_preprocessing: true, max_pixels: 50000000}
media: {allowed_domains: [img.example.org]}
server: {host: 127.0.0.1, port: 30000, api_key: {env: KIMI_KEY}}
"""


def profile_of(num_lines: int) -> str:
    """Give a profile of real settings, filled up with comments."""
    lines = SETTINGS.splitlines()
    return "\n".join([*lines, *["# a comment"] * (num_lines - len(lines))]) + "\n"


def seconds(command: list[str], env: dict[str, str]) -> float:
    """Time one run."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False, env=env)
    return time.perf_counter() - start


def main() -> int:
    """Print both medians and their ratio; 1 when it is above the bar."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    program = Path(sys.executable).with_name("kimi-serve")
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.yaml"
        profile.write_text(profile_of(100), encoding="utf-8")
        lint = [str(program), "lint", str(profile)]
        env = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds(lint, env)
        seconds(YARDSTICK, env)
        pairs = [(seconds(lint, env), seconds(YARDSTICK, env)) for _ in range(runs)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"lint      {ours * 1000:7.1f} ms")
    print(f"yardstick {theirs * 1000:7.1f} ms")
    print(f"ratio     {ours / theirs:7.2f} (bar {BAR})")
    return int(ours / theirs > BAR)


if __name__ == "__main__":
    sys.exit(main())
