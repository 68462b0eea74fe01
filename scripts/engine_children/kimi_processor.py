"""SGLang's own Kimi processor, looked at from inside: where it decodes and preprocesses.

Run by an interpreter that has SGLang, with exactly the environment of a plan. Standard input:
{"words": [...], "images": {NAME: BASE64}, "sizes": [[WIDTH, HEIGHT], ...]}, `words` as in
ask_sglang.py. Standard output: a list with one report.

`torchvision.io.decode_jpeg` and `_gpu_call`, the two ways to the GPU, are noted when they are
reached, and then run. Where there is no GPU they end there instead, and one more thing is stubbed,
after everything is imported: what says whether there is one (`torch.cuda.is_available`, SGLang's
`is_cuda` and its platform). The Hugging Face processor of the checkpoint, remote code, is a
stand-in everywhere: it notes what it is given, and its pixels are zeros. The tokenizer is that of
the checkpoint.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import importlib
import types
from collections.abc import Generator, Sequence
from typing import Any
from unittest import mock

from exchange import exchange

_LIMITS = {
    "patch_size": 14,
    "merge_kernel_size": 2,
    "in_patch_limit": 16384,
    "patch_limit_on_one_side": 512,
}
_CONFIG = _LIMITS | {
    "fixed_output_tokens": None,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
_DEVICE = ("--device", "cuda")
_PLACEHOLDER = "<|media_pad|>"


class Reached(Exception):
    """The GPU would be used now."""


def main() -> None:
    with exchange() as (request, answers):
        kimi: Any = importlib.import_module("sglang.srt.multimodal.processors.kimi_k25")
        server_args = importlib.import_module("sglang.srt.server_args")
        context = importlib.import_module("sglang.srt.runtime_context")
        record = server_args.prepare_server_args([*_DEVICE, *request["words"]])
        context.publish(record, role="tokenizer")
        answers.append(asyncio.run(report(kimi, record, request)))


async def report(kimi: Any, record: Any, request: Any) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    has_gpu: bool = torch.cuda.is_available()
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(noted(kimi, notes, has_gpu=has_gpu))
        if not has_gpu:
            stack.enter_context(pretended_gpu())
        processor = build(kimi, record, notes)
        images = {
            name: await look_at(processor, base64.b64decode(data), notes)
            for name, data in request["images"].items()
        }
        fingerprint = processor._processor.preprocess_fingerprint_payload()
    return {
        "has_gpu": has_gpu,
        "flag": kimi._FORCE_CPU_IMAGE_PREPROCESSING,
        "gpu_image_decode": kimi.KimiK2_5VLImageProcessor.gpu_image_decode,
        "mm_processor_worker_num": processor.mm_processor_worker_num,
        "mm_io_worker_num": processor.mm_io_worker_num,
        "mm_feature_transport": processor.mm_feature_transport,
        "cuda_available": fingerprint["cuda_available"],
        "images": images,
        "sizes": [resized(kimi, width, height) for width, height in request["sizes"]],
    }


@contextlib.contextmanager
def noted(kimi: Any, notes: list[str], *, has_gpu: bool) -> Generator[None]:
    """Note where SGLang goes to the GPU, and let it go no further where there is none."""
    vision = importlib.import_module("torchvision.io")
    wrapper = kimi.KimiGPUProcessorWrapper
    decode_jpeg, preprocess = vision.decode_jpeg, wrapper._gpu_call

    def decode(*args: Any, device: str = "cpu", **options: Any) -> Any:
        notes.append(f"decode on {device}")
        if has_gpu:
            return decode_jpeg(*args, device=device, **options)
        raise Reached

    def gpu_call(*args: Any) -> Any:
        notes.append("preprocess on cuda")
        if has_gpu:
            return preprocess(*args)
        raise Reached

    with (
        mock.patch.object(vision, "decode_jpeg", decode),
        mock.patch.object(wrapper, "_gpu_call", gpu_call),
    ):
        yield


@contextlib.contextmanager
def pretended_gpu() -> Generator[None]:
    """Have SGLang believe in a GPU."""
    torch = importlib.import_module("torch")
    common = importlib.import_module("sglang.srt.utils.common")
    platforms = importlib.import_module("sglang.srt.platforms")
    platform = types.SimpleNamespace(is_cuda_alike=lambda: True, device_type="cuda")
    with (
        mock.patch.object(torch.cuda, "is_available", return_value=True),
        mock.patch.object(common, "is_cuda", return_value=True),
        mock.patch.object(platforms, "current_platform", platform, create=True),
    ):
        yield


def build(kimi: Any, record: Any, notes: list[str]) -> Any:
    """Make the processor as a tokenizer worker does, on a stand-in for the remote code."""
    transformers = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(record.model_path)
    config = transformers.AutoConfig.from_pretrained(record.model_path)
    remote_code = stand_in(kimi, tokenizer, notes)
    return kimi.KimiK2_5VLImageProcessor(config, record, remote_code, "default")


def stand_in(kimi: Any, tokenizer: Any, notes: list[str]) -> Any:
    """Make a processor with the face of the checkpoint's: medias in, patches and ids out."""
    torch = importlib.import_module("torch")
    base = importlib.import_module("transformers").BaseImageProcessor

    def count_tokens(media: Any) -> Any:
        return sized(kimi, media["image"])["num_tokens"]

    class RemoteCode:
        image_processor = base()
        media_processor = types.SimpleNamespace(
            media_proc_cfg=_CONFIG,
            media_tokens_calculator=count_tokens,
        )

        def __init__(self) -> None:
            self.tokenizer = tokenizer

        def __deepcopy__(self, memo: Any) -> Any:
            return self

        def __call__(self, text: Sequence[str], medias: Sequence[Any], **_: Any) -> dict[str, Any]:
            kind = type(medias[0]["image"]).__module__.partition(".")[0]
            notes.append(f"preprocess of a {kind} image by the checkpoint's code")
            sizes = [sized(kimi, media["image"])["padded"] for media in medias]
            grids: list[list[int]] = [[1, height // 14, width // 14] for width, height in sizes]
            count = sum(rows * columns for _, rows, columns in grids)
            return {
                "input_ids": tokenizer(text, return_tensors="pt")["input_ids"],
                "pixel_values": torch.zeros(count, 3, 14, 14),
                "grid_thws": torch.tensor(grids),
            }

    return RemoteCode()


def sized(kimi: Any, image: Any) -> dict[str, Any]:
    width, height = image.size
    plan = resized(kimi, width, height)
    return plan | {
        "padded": [
            plan["new_width"] + plan["pad_width"],
            plan["new_height"] + plan["pad_height"],
        ]
    }


def resized(kimi: Any, width: int, height: int) -> dict[str, Any]:
    """Give SGLang's own arithmetic for one size."""
    plan: dict[str, Any] = kimi.navit_resize_config(width, height, *_LIMITS.values())
    return plan


async def look_at(processor: Any, data: bytes, notes: list[str]) -> dict[str, Any]:
    """Send one image through the processor, as a request does."""
    start = len(notes)
    url = f"data:image/any;base64,{base64.b64encode(data).decode()}"
    ids: list[int] = processor._tokenizer.encode(f"a{_PLACEHOLDER}b")
    request = types.SimpleNamespace(rid="one")
    tokens = 0
    with contextlib.suppress(Reached):
        output = await processor.process_mm_data_async([url], ids, request)
        tokens = len(output.input_ids) - len(ids) + 1
    return {"notes": notes[start:], "tokens": tokens}


if __name__ == "__main__":
    main()
