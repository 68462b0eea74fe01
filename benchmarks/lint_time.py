"""How long `kimi-serve lint` takes on profiles of 100 lines, against three imports.

    python benchmarks/lint_time.py [RUNS]

The yardstick is `python -c "import pydantic_settings, click, yaml"`. Two profiles are linted: one
of real settings and engine options without a mistake, and one with nearly a hundred misspelt
names, each of which is looked for in the engine's tables. The three alternate; the medians are
compared. All run from compiled files, as they are after an installation, whatever the environment
says about writing them.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# Highest ratio to the yardstick that is accepted.
BARS = {"clean": 1.5, "mistakes": 1.6}
YARDSTICK = [sys.executable, "-c", "import pydantic_settings, click, yaml"]
CLEAN = """\
# The vision model of the search team: two GPUs, images decoded and preprocessed on the CPU.
model:
  path: moonshotai/Kimi-K2.5
  revision: 4d01dfe0332d63057c186e0b262165819efb6611
  served_name: kimi-vision
  trust_remote_code: true
tokenizer:
  worker_num: 4
  skip_init: false
image:
  force_cpu_preprocessing: true
  policy: display
  background: white
  dtype: float32
  max_pixels: 50000000
  max_per_request: 16
  formats:
    - jpeg
    - png
    - webp
media:
  allowed_domains:
    - img.example.org
    - cdn.example.org
    - uploads.example.org
  allowed_local_dirs:
    - /srv/pictures
  max_bytes: 67108864
  timeout_s: 10.0
  max_redirects: 3
server:
  host: 127.0.0.1
  port: 30000
  max_body_bytes: 268435456
  max_queued_bytes: 2147483648
  max_response_bytes: 1073741824
  start_timeout_s: 60
  request_timeout_s: 60
  drain_timeout_s: 30
# What only the engine knows.
engine:
  kind: sglang
  version: 0.5.23
  args:
    - --tp-size
    - "2"
    - --context-length
    - "131072"
    - --max-running-requests
    - "64"
    - --chunked-prefill-size
    - "8192"
    - --max-prefill-tokens
    - "16384"
    - --schedule-policy
    - lpm
    - --attention-backend
    - flashinfer
    - --kv-cache-dtype
    - auto
    - --page-size
    - "64"
    - --cuda-graph-max-bs-decode
    - "64"
    - --watchdog-timeout
    - "600"
    - --tool-call-parser
    - kimi_k2
    - --reasoning-parser
    - kimi_k2
    - --enable-metrics
    - --random-seed
    - "7"
    - --log-level-http
    - warning
    - --decode-log-interval
    - "50"
    - --stream-interval
    - "2"
    - --download-dir
    - /models
    - --dist-timeout
    - "1800"
  env:
    SGLANG_VLM_CACHE_SIZE_MB: "512"
    SGLANG_IMAGE_MAX_PIXELS: "50000000"
    SGLANG_REQ_WAITING_TIMEOUT: "120"
    NCCL_DEBUG: WARN
    NCCL_P2P_LEVEL: NVL
    OMP_NUM_THREADS: "8"
    HF_HUB_OFFLINE: "1"
    TOKENIZERS_PARALLELISM: "false"
  startup_timeout_s: 1800.0
gpu:
  ids: ["0", "1"]
  total_mib: 143360
  mem_fraction_static: 0.85
  worker_context_mib: 800
log:
  level: info
  format: json
"""


def misspelt(word: str) -> str:
    """Swap two letters in the middle."""
    middle = len(word) // 2
    return word[:middle] + word[middle + 1] + word[middle] + word[middle + 2 :]


def with_mistakes() -> str:
    """Give a profile in which nearly every name is misspelt."""
    from kimi_serve.schemas.engine_facts import engine_table
    from kimi_serve.schemas.fields import keys_of

    table = engine_table("sglang")
    assert table is not None
    flags = sorted({flag.flag for flag in table.by_spelling.values() if len(flag.flag) > 10})
    variables = sorted(name for name in table.environment if name.startswith("SGLANG_"))
    lines = ["model:", "  path: org/vision-model"]
    for section in ("tokenizer", "image", "media", "server"):
        lines += [f"{section}:", *(f"  {misspelt(key)}: 3" for key in keys_of(section))]
    lines += ["engine:", "  kind: sglang", "  version: 0.5.23", "  args:"]
    lines += [f"    - {misspelt(flag)}" for flag in flags[:: len(flags) // 40]]
    lines += ["  env:"]
    lines += [f'    {misspelt(name)}: "1"' for name in variables[:: len(variables) // 30]]
    return "\n".join(lines) + "\n"


def seconds(command: list[str], env: dict[str, str]) -> float:
    """Time one run."""
    start = time.perf_counter()
    subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, env=env
    )
    return time.perf_counter() - start


def main() -> int:
    """Print the medians and their ratios; 1 when one is above its bar."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    program = str(Path(sys.executable).with_name("kimi-serve"))
    with tempfile.TemporaryDirectory() as folder:
        commands = {"yardstick": YARDSTICK}
        for name, text in {"clean": CLEAN, "mistakes": with_mistakes()}.items():
            profile = Path(folder) / f"{name}.yaml"
            profile.write_text(text, encoding="utf-8")
            commands[name] = [program, "lint", str(profile)]
        env = {**os.environ, "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for command in commands.values():
            seconds(command, env)
        times: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(runs):
            for name, command in commands.items():
                times[name].append(seconds(command, env))
    medians = {name: statistics.median(column) for name, column in times.items()}
    print(f"yardstick {medians['yardstick'] * 1000:7.1f} ms")
    ratios = {name: medians[name] / medians["yardstick"] for name in BARS}
    for name, ratio in ratios.items():
        print(f"{name:9} {medians[name] * 1000:7.1f} ms, ratio {ratio:.2f} (bar {BARS[name]})")
    return int(any(ratios[name] > bar for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
