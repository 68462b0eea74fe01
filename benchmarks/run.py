"""All benchmarks, their ratios, the bars, and docs/benchmarks.md.

    python benchmarks/run.py [--quick] [--check] [--save]
        [--transformers-python P] [--vllm-python P] [--sglang-python P]

Each peer runs in the interpreter that has it, beside us in the same process. Downloads nothing.
--quick takes few rounds and leaves out the fleets; --check measures what needs no peer and no
server, and fails when a ratio is worse than benchmarks/ratios.json allows, twice, or is missing;
--save writes both. A part that cannot be measured, or whose bytes differ, ends all.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bars import Ratios, missed, regressions
from common import ONE_THREAD, ROOT, TUNED_MALLOC
from page import Results, page

from kimi_serve.preprocess.native.kernel import supported_levels

HERE = ROOT / "benchmarks"
RATIOS = HERE / "ratios.json"
PAGE = ROOT / "docs" / "benchmarks.md"


def child(script: str, *words: str, python: str = sys.executable, env: dict[str, str]) -> Any:
    """Run a script of this folder; gives the JSON that it prints."""
    print(f"{time.strftime('%H:%M:%S')} {script} {' '.join(words)}", file=sys.stderr)
    paths = {"PYTHONPATH": str(ROOT / ".typing")}
    done = subprocess.run(
        [python, str(HERE / script), *words],
        env=os.environ | ONE_THREAD | paths | env,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)


def kernel_ratios(rounds: int) -> Ratios:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.json"
        command = [sys.executable, str(HERE / "kernel.py"), "--rounds", str(rounds)]
        subprocess.run([*command, "--json", str(file)], stdout=subprocess.DEVNULL, check=False)
        found: Ratios = json.loads(file.read_text(encoding="utf-8"))
        return found


def peer_results(given: argparse.Namespace, results: Results) -> None:
    rounds = str(3 if given.quick else 9)
    only = ["--only", "1080p JPEG"] if given.quick else []
    pythons = {
        "none": sys.executable,
        "transformers": given.transformers_python,
        "vllm": given.vllm_python,
        "sglang": given.sglang_python,
    }
    for name, python in pythons.items():
        if python is None or (given.check and name != "none"):
            continue
        for suffix, env in (("", {}), (", malloc tuned", TUNED_MALLOC)):
            fewer = str(max(2, int(rounds) // 2)) if suffix else rounds
            found = child("peer.py", name, "--rounds", fewer, *only, python=python, env=env)
            results.add_race(name, suffix, found)
            if given.check:
                break


def http_ratios(load: dict[str, Any]) -> Ratios:
    """Compare by CPU time of all server processes: the client's share is excluded."""
    ratios: Ratios = {}
    for picture, rows in load.items():
        if "bare decode" in rows:
            decode = rows["bare decode"]["server_ms"]
            for way, row in rows.items():
                if way != "bare decode":
                    name = f"HTTP {picture}, {way}: bare decode / server"
                    ratios[name] = round(decode / row["server_ms"], 3)
    return ratios


def measure_own(given: argparse.Namespace) -> Results:
    """Measure what needs no server, and the peers unless it is a check."""
    results = Results()
    results.ratios |= kernel_ratios(5 if given.quick or given.check else 11)
    peer_results(given, results)
    handed = child("handover.py", "--json", env={})
    results.ratios |= handed["ratios"]
    results.handover = handed["times"]
    return results


def measure_servers(given: argparse.Namespace, results: Results) -> None:
    quick = ["--quick", "--rounds", "1", "--seconds", "2"] if given.quick else []
    vllm = ["--vllm-python", given.vllm_python] * bool(given.vllm_python)
    results.http = child("http_load.py", *quick, *vllm, env={})
    results.ratios |= http_ratios(results.http)
    results.texts = child("texts.py", "--seconds", "4" if given.quick else "10", env={})
    if not given.quick:
        peer = ["--peer-python", given.transformers_python] * bool(given.transformers_python)
        results.fleet = child("fleet.py", "--json", *(peer or ["--no-peer"]), env={})


def check(given: argparse.Namespace) -> int:
    """Compare with the committed ratios; what is worse is measured again, for neighbours pass."""
    committed: Ratios = json.loads(RATIOS.read_text(encoding="utf-8"))
    ratios = measure_own(given).ratios
    missing = {name for name in committed if is_own(name)} - ratios.keys()
    worse = regressions(ratios, committed)
    if worse:
        again = regressions(measure_own(given).ratios, committed)
        worse = {name: f"{words}; again {again[name]}" for name, words in worse.items()
                 if name in again}  # fmt: skip
    lines = [f"{name}: {words}" for name, words in worse.items()]
    lines += [f"{name}: not measured" for name in sorted(missing)]
    print("\n".join(lines) or "no ratio is worse than the committed ones", file=sys.stderr)
    return 1 if lines else 0


def is_own(name: str) -> bool:
    """Tell what `--check` measures: no peer, no server, no second malloc, no other processor."""
    others = ("HTTP", "malloc tuned", "transformers", "vllm", "sglang")
    levels = (level for level in ("avx512vnni", "avx2", "neon") if level not in supported_levels())
    return not any(word in name for word in (*others, *levels))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for flag in ("--quick", "--check", "--save"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--transformers-python")
    parser.add_argument("--vllm-python")
    parser.add_argument("--sglang-python")
    given = parser.parse_args()
    if given.check:
        return check(given)
    results = measure_own(given)
    measure_servers(given, results)
    text = page(results)
    print(text)
    if given.save:
        PAGE.write_text(text, encoding="utf-8")
        rounded = {name: round(ratio, 3) for name, ratio in sorted(results.ratios.items())}
        RATIOS.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
    return 1 if missed(results.ratios) else 0


if __name__ == "__main__":
    sys.exit(main())
