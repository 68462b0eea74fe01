"""One peer beside us, bytes in to patches out, in one process with one thread.

    PYTHON benchmarks/peer.py {none,transformers,vllm,sglang} [--rounds N] [--only WORD]

PYTHON is one that has the peer; `.typing` in PYTHONPATH gives it this package. The peer's own code
is called, not a copy. Prints JSON: CPU milliseconds by picture and candidate.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from io import BytesIO
from typing import Any

import numpy as np
import simplejpeg  # type: ignore[import-untyped]
from common import (
    HALF,
    KIMI,
    PICTURES,
    ROOT,
    RULES,
    Call,
    checkpoint_order,
    on_one_thread,
    picture,
    race,
)
from PIL import Image

from kimi_serve.preprocess.images.image_processor import ImageProcessor

Peer = Callable[[bytes], Any]
_LIMITS = {
    "patch_size": 14, "merge_kernel_size": 2, "in_patch_limit": 16384,
    "patch_limit_on_one_side": 512, "fixed_output_tokens": None,
}  # fmt: skip


def opened(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data)).convert("RGB")


def transformers_peer() -> Peer:
    """Give the checkpoint's native processor in transformers."""
    _one_torch_thread()
    directory = ROOT / "preprocess" / "demo_checkpoint"
    transformers = importlib.import_module("transformers")
    processor = transformers.AutoImageProcessor.from_pretrained(directory)
    return lambda data: processor(opened(data), return_tensors="pt")["pixel_values"]


def vllm_peer() -> Peer:
    """Give vLLM's fused CPU processor."""
    _one_torch_thread()
    name = "vllm.transformers_utils.processors.kimi_k25_vision_fused"
    config = _LIMITS | {
        "temporal_merge_kernel_size": 4, "in_patch_limit_each_frame": None,
        "in_patch_limit_video": None, "image_mean": HALF, "image_std": HALF,
    }  # fmt: skip
    processor = importlib.import_module(name).KimiK25FusedVisionProcessor(config)
    return lambda data: processor.preprocess(
        [{"type": "image", "image": data}], return_tensors="pt"
    )["pixel_values"]


def sglang_peer() -> Peer:
    """Give SGLang's functions with its hook for other inputs, on tensors of the CPU."""
    torch = _one_torch_thread()
    kimi = importlib.import_module("sglang.srt.multimodal.processors.kimi_k25")
    scale = torch.tensor([1 / (255 * 0.5)] * 3).view(1, 3, 1, 1)
    bias = torch.tensor([-1.0] * 3).view(1, 3, 1, 1)

    def to_chw(image: Image.Image) -> Any:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def process(data: bytes) -> Any:
        image = opened(data)
        plan = kimi.navit_resize_config(*image.size, *_LIMITS.values())
        return kimi._gpu_preprocess_images([image], [plan], scale, bias, 14, to_chw)[0]

    return process


PEERS: dict[str, Callable[[], Peer]] = {
    "transformers": transformers_peer,
    "vllm": vllm_peer,
    "sglang": sglang_peer,
}


def _one_torch_thread() -> Any:
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    return torch


def measure(peer: Peer | None, name: str, only: str, rounds: int) -> dict[str, dict[str, float]]:
    """Race the peer, or the checkpoint's order and the decoder, against our paths."""
    rows: dict[str, dict[str, float]] = {}
    for title, width, height, kind, options in PICTURES:
        if only in title:
            data = picture(width, height, kind, **options)
            if peer is None:
                calls = own_calls(data, kind, 3 * width * height)
            else:
                calls = peer_calls(data, name, peer)
            few = max(2, rounds // (4 if width > 5000 else 2)) if width > 3000 else rounds
            rows[title] = race(calls, few)
    return rows


def own_calls(data: bytes, kind: str, decoded_bytes: int) -> dict[str, Call]:
    native, pure = (ImageProcessor(KIMI, RULES, which) for which in ("native", "pure"))
    expected = native.process_array(data)[1]
    assert checkpoint_order(data).tobytes() == expected.tobytes()
    out = np.ones(expected.nbytes, np.uint8).data
    return {
        "native": lambda: native.process(data, out),
        "decode": decoder(data, kind, decoded_bytes),
        "pure": lambda: pure.process(data, out),
        "checkpoint order": lambda: checkpoint_order(data),
    }


def peer_calls(data: bytes, name: str, peer: Peer) -> dict[str, Call]:
    native = ImageProcessor(KIMI, RULES, "native")
    expected, theirs = native.process_array(data)[1], np.asarray(peer(data))
    assert theirs.shape == expected.shape, (theirs.shape, expected.shape)
    out = np.ones(expected.nbytes, np.uint8).data
    return {"native": lambda: native.process(data, out), name: lambda: peer(data)}


def decoder(data: bytes, kind: str, nbytes: int) -> Call:
    """Give the bare decode of a file: libjpeg-turbo into a buffer, or Pillow."""
    if kind == "JPEG":
        buffer = np.ones(nbytes, np.uint8)
        return lambda: simplejpeg.decode_jpeg(data, "RGB", buffer=buffer, strict=True)
    return lambda: opened(data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=("none", *PEERS))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    on_one_thread()
    answers, sys.stdout = sys.stdout, sys.stderr
    name: str = given.peer
    rows = measure(PEERS[name]() if name != "none" else None, name, given.only, given.rounds)
    libraries = ("numpy", "pillow", "simplejpeg") if name == "none" else (name, "torch", "pillow")
    versions = {library: version(library) for library in libraries}
    versions["python"] = sys.version.split()[0]
    json.dump({"versions": versions, "milliseconds": rows}, answers)


if __name__ == "__main__":
    main()
