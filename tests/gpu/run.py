"""Everything that only a GPU can show, in at most six minutes; builds nothing.

    python tests/gpu/run.py [--out DIR] [--workers 1,2,4,8] [--seconds 4]

Needs the gpu extra. Runs `kimi-serve verify` (parity, memory against the plan, throughput by
worker count, no forced-CPU worker on the GPU), then what verify cannot do: the same images under a
budget that they do not fit, and an allocation that really fails. Leaves report.json, report.html
and gpu.json in DIR; exits 0 when all holds, 1 when something is broken, 77 without a GPU.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

VERIFY_LIMIT_S = 270
NO_GPU = 77


def missing() -> str:
    """Say why nothing can be run here; "" where it can."""
    for name in ("torch", "torchvision", "pynvml"):
        if importlib.util.find_spec(name) is None:
            return f"the gpu extra ({name}) is not installed"
    torch = _torch()
    return "" if torch.cuda.is_available() else "torch sees no CUDA device"


def main(arguments: list[str]) -> int:
    """Run it all; gives the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("gpu-report"))
    parser.add_argument("--workers", default="1,2,4,8")
    parser.add_argument("--seconds", default="4")
    given = parser.parse_args(arguments)
    why = missing()
    if why:
        say(f"skipped: {why}")
        return NO_GPU
    given.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = {"verify": run_verify(given)}
    for name, check in (
        ("budget", check_budget),
        ("real_out_of_memory", check_real_out_of_memory),
        ("peak_memory", check_peak_memory),
        ("decoders", check_decoders),
    ):
        started = time.monotonic()
        try:
            found[name] = check()
        except Exception as error:  # noqa: BLE001 - the other checks still run
            found[name] = {"holds": False, "error": f"{type(error).__name__}: {error}"}
        found[name]["seconds"] = round(time.monotonic() - started, 1)
    found["holds"] = all(part["holds"] for part in found.values())
    (given.out / "gpu.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    say(json.dumps(found, indent=1))
    return 0 if found["holds"] else 1


def _torch() -> Any:
    return importlib.import_module("torch")


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def run_verify(given: argparse.Namespace) -> dict[str, Any]:
    """Run the command as a user would."""
    command = [sys.executable, "-P", "-m", "kimi_serve.launcher", "verify",
               "--out", str(given.out), "--workers", given.workers, "--seconds", given.seconds,
               "--server-start-timeout-s", "120"]  # fmt: skip
    started = time.monotonic()
    try:
        ran = subprocess.run(command, timeout=VERIFY_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return {"holds": False, "error": f"not finished within {VERIFY_LIMIT_S} s"}
    return {"holds": ran.returncode == 0, "seconds": round(time.monotonic() - started, 1)}


def _processor(budget_bytes: int | None) -> Any:
    from kimi_serve.preprocess.cuda.image_processor import open_image_processor
    from kimi_serve.schemas.worker import ImageRules, ResizeConfig

    half = (0.5, 0.5, 0.5)
    rules = ImageRules(
        "display", (255, 255, 255), "float32", 50_000_000, 2**26, ("jpeg", "png", "webp", "gif")
    )
    return open_image_processor(ResizeConfig(16384, 512, 14, 2, half, half), rules, budget_bytes)


def _big() -> bytes:
    from kimi_serve.launcher.verify.images import generated

    return generated(("png",), lambda name: name == "noise_3000x2400.png")[0].data


def _equal(processor: Any, data: bytes) -> tuple[bool, str | None]:
    """Compare with the CPU path in every bit; gives the fallback too."""
    import numpy as np

    from kimi_serve.preprocess.images.image_processor import ImageProcessor

    _, wanted = ImageProcessor(processor.resize, processor.rules).process_array(data)
    _, found = processor.process_array(data)
    same = np.array_equal(wanted.view(np.uint8), found.view(np.uint8))
    return same, processor.fallback


def check_budget() -> dict[str, Any]:
    """An image beyond gpu.worker_budget_mib goes to the CPU and is right."""
    same, fallback = _equal(_processor(64 * 2**20), _big())
    return {"holds": same and fallback == "over-budget", "equal": same, "fallback": fallback}


def check_real_out_of_memory() -> dict[str, Any]:
    """torch's allocator really fails: the image is redone, and the next one is on the GPU again."""
    torch = _torch()
    processor, data = _processor(None), _big()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(16 * 2**20 / total, 0)
    same, fallback = _equal(processor, data)
    torch.cuda.set_per_process_memory_fraction(1.0, 0)
    again, none = _equal(processor, data)
    holds = same and again and fallback == "out-of-memory" and none is None
    return {"holds": holds, "equal": [same, again], "fallbacks": [fallback, none]}


def check_peak_memory() -> dict[str, Any]:
    """The peak is that of one image, as planned, however many there are."""
    from kimi_serve.preprocess.cuda.memory import plan_strips
    from kimi_serve.preprocess.images.kimi import plan_resize

    torch = _torch()
    processor, data = _processor(None), _big()
    plan = plan_resize(3000, 2400, processor.resize)
    resized = (plan.new_width, plan.new_height)
    planned = plan_strips((3000, 2400), resized, processor.resize, "float32").peak_bytes
    peaks: list[int] = []
    for count in (1, 8):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        for _ in range(count):
            processor.process_array(data)
        peaks.append(int(torch.cuda.max_memory_reserved()))
    holds = peaks[1] <= peaks[0] * 1.05 and max(peaks) <= planned * 1.25
    return {"holds": holds, "planned_bytes": planned, "reserved_bytes": peaks}


def check_decoders() -> dict[str, Any]:
    """JPEG on the GPU beside libjpeg, by subsampling; also the nearest chroma that is not used."""
    import numpy as np

    from kimi_serve.launcher.verify.images import generated
    from kimi_serve.preprocess.images.decode import decode_image

    torch = _torch()
    images: Any = importlib.import_module("torchvision.io")
    processor = _processor(None)
    found: dict[str, Any] = {"decoders": [decoder.name for decoder in processor.decoders]}
    holds = True
    for sample in generated(("jpeg",), lambda name: "cmyk" not in name and "orient" not in name):
        encoded = torch.frombuffer(bytearray(sample.data), dtype=torch.uint8)
        planes = images.decode_jpeg(encoded, mode=images.ImageReadMode.RGB, device="cuda")
        ours = decode_image(sample.data, processor.rules).pixels.astype(np.int16)
        apart = np.abs(planes.permute(1, 2, 0).cpu().numpy().astype(np.int16) - ours)
        is_used = "444" in sample.name or "grey" in sample.name
        row = {"max": int(apart.max()), "mean": float(apart.mean()), "used": is_used}
        found[sample.name] = row
        holds = holds and (not is_used or (row["max"] <= 5 and row["mean"] <= 0.2))
    return found | {"holds": holds}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
