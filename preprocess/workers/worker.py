"""The worker process: builds its processor, says what it found, answers jobs until told to stop.

Images and long texts are processed in a thread of their own, all other texts where the socket is
read, so that a text never waits for those. All release the interpreter lock in their native code.
"""

from __future__ import annotations

import faulthandler
import importlib
import logging
import os
import queue
import socket
import threading
import time
import traceback

from kimi_serve.schemas import messages
from kimi_serve.schemas.engine_names import VISIBLE
from kimi_serve.schemas.errors import (
    BodyTooLargeError,
    KimiServeError,
    MediaTooLargeError,
    RequestError,
)
from kimi_serve.schemas.worker import WorkerSpec

from .. import logs
from ..native.choice import choose_kernel
from . import process
from .arena import Arena
from .frames import FrameSocket
from .processor import KimiProcessor, build_processor, library_versions, text_tools

logger = logging.getLogger(__name__)


def preload() -> None:
    """Import what every worker needs and nothing that starts threads or touches a GPU."""
    for name in ("tiktoken", "tokenizers", "jinja2.sandbox", "simplejpeg", "pybase64"):
        importlib.import_module(name)
    from PIL import Image

    Image.init()
    library_versions()


def prepare(spec: WorkerSpec) -> bool:
    """Do once, for all workers that are forked, what they would each do; True if it loaded files.

    What fails here fails in the worker again, which can tell of it.
    """
    if spec.image_kernel != "pure":
        choose_kernel()
    # A spawned worker shares no memory.
    if spec.tokenizer is None or spec.preprocess_device == "cuda":
        return False
    num_hits = text_tools.cache_info().hits
    try:
        text_tools(spec.tokenizer)
    except Exception:  # noqa: BLE001 - of any kind, like what the worker tells
        return False
    return text_tools.cache_info().hits == num_hits


def run(spec: WorkerSpec, socket_fd: int, arena_fd: int, log_fd: int) -> int:
    """Be worker `spec.index`; gives the exit code."""
    os.dup2(log_fd, 1)
    os.dup2(log_fd, 2)
    os.environ.update(spec.env)
    name = f"worker-{spec.index}"
    process.set_name(f"kimi-{name}")
    logs.configure(spec.log_level, spec.log_format, process=name)
    faulthandler.enable()
    frames = FrameSocket(socket.socket(fileno=socket_fd))
    try:
        started = time.monotonic()
        processor = build_processor(spec)
        build_ms = (time.monotonic() - started) * 1000
        arena = Arena(arena_fd, spec.slots, spec.slot_bytes, is_writable=True)
    except Exception as error:  # noqa: BLE001 - process border: the parent must be told
        frames.send(_failure(spec, error))
        return 1
    if spec.index == 0 or processor.image_kernel.faults:
        processor.image_kernel.log()
    loop = _Loop(frames, processor, arena)
    # Last: what there is by now is not the images' fault.
    if spec.memory_bytes:
        process.limit_memory(spec.memory_bytes)
    frames.send(_report(spec, processor, build_ms, loop.image_thread))
    return loop.run()


TextualJob = messages.PromptJob | messages.TextJob
HeavyJob = messages.ImageJob | TextualJob
Answered = tuple[messages.Answer, bytes]


class _Loop:
    def __init__(self, frames: FrameSocket, processor: KimiProcessor, arena: Arena) -> None:
        self._frames = frames
        self._processor = processor
        self._arena = arena
        self._heavy: queue.SimpleQueue[tuple[HeavyJob, bytes] | None] = queue.SimpleQueue()
        # Written by the thread of the heavy jobs alone.
        self._is_heavy_running = False
        self._thread = threading.Thread(target=self._process_heavy, name="images", daemon=True)
        self._thread.start()

    @property
    def image_thread(self) -> int:
        """The kernel's number of the thread that images are processed in."""
        return self._thread.native_id or 0

    def run(self) -> int:
        while (frame := self._frames.receive()) is not None:
            job, payload = frame
            match job:
                case messages.ImageJob() if payload is None:
                    self._frames.send(_job_failed(job.id, MemoryError(), MediaTooLargeError))
                case messages.PromptJob() | messages.TextJob() if payload is None:
                    self._frames.send(_job_failed(job.id, MemoryError()))
                case messages.ImageJob():
                    self._heavy.put((job, payload or b""))
                case messages.PromptJob() | messages.TextJob() if messages.is_long_text(
                    payload or b""
                ):
                    self._heavy.put((job, payload or b""))
                case messages.PromptJob() | messages.TextJob():
                    self._frames.send(*self._answer_short_text(job, payload or b""))
                case messages.Tidy():
                    self._arena.release_pages()
                    self._processor.release_memory()
                    process.release_memory()
                case messages.Stop():
                    self._heavy.put(None)
                    self._thread.join()
                    return 0
                case _:
                    logger.error("unexpected message %s", type(job).__name__)
                    return 1
        return 0  # the parent is gone

    def _process_heavy(self) -> None:
        try:
            while (item := self._heavy.get()) is not None:
                job, payload = item
                # Not kept while this waits for the next.
                del item
                self._is_heavy_running = True
                answer = self._answer_heavy(job, payload)
                self._is_heavy_running = False
                self._frames.send(*answer)
                del payload, answer
        except BaseException:
            # A worker whose image thread is gone must not look ready.
            logger.exception("the image thread ended")
            os._exit(1)

    def _answer_heavy(self, job: HeavyJob, payload: bytes) -> Answered:
        is_image = isinstance(job, messages.ImageJob)
        try:
            if isinstance(job, messages.ImageJob):
                return self._processor.image(job, payload, self._arena.slot(job.slot)), b""
            return self._tokenise(job, payload)
        except Exception as error:  # noqa: BLE001 - process border: one job, one answer
            too_large = MediaTooLargeError if is_image else BodyTooLargeError
            return _job_failed(job.id, error, too_large), b""

    def _answer_short_text(self, job: TextualJob, payload: bytes) -> Answered:
        try:
            return self._tokenise(job, payload)
        except Exception as error:  # noqa: BLE001 - process border: one job, one answer
            if isinstance(error, MemoryError) and self._is_heavy_running:
                # Taken by the heavy job, perhaps: another worker shall say.
                logger.error("no memory for a text beside an image or a long text")
                os._exit(1)
            return _job_failed(job.id, error), b""

    def _tokenise(self, job: TextualJob, payload: bytes) -> Answered:
        if isinstance(job, messages.PromptJob):
            result, ids = self._processor.prompt(job, payload)
        else:
            result, ids = self._processor.text(job, payload)
        if len(ids) > messages.MAX_ANSWER_BYTES:
            most = messages.MAX_ANSWER_BYTES // messages.ID_BYTES
            raise BodyTooLargeError(
                f"it becomes {len(ids) // messages.ID_BYTES} tokens; at most {most} are given"
            )
        return result, ids


def _job_failed(
    job_id: int, error: Exception, too_large: type[RequestError] = BodyTooLargeError
) -> messages.JobFailed:
    if isinstance(error, MemoryError):
        words = "it needs more memory than one worker may take (tokenizer.worker_memory_mib)"
        return messages.JobFailed(job_id, too_large.__name__, words, hint=None, param=None)
    if isinstance(error, RequestError):
        name = type(error).__name__
        return messages.JobFailed(job_id, name, error.message, error.hint, error.param)
    logger.error("job %d failed", job_id, exc_info=error)
    words = f"internal error ({type(error).__name__})"
    return messages.JobFailed(job_id, "KimiServeError", words, hint=None, param=None)


def _failure(spec: WorkerSpec, error: Exception) -> messages.WorkerFailed:
    name = type(error).__name__
    if isinstance(error, KimiServeError):
        return messages.WorkerFailed(spec.index, name, error.message, error.hint, traceback="")
    trace = "".join(traceback.format_exception(error))
    return messages.WorkerFailed(spec.index, name, str(error), None, trace)


def _report(
    spec: WorkerSpec, processor: KimiProcessor, build_ms: float, image_thread: int
) -> messages.WorkerReport:
    return messages.WorkerReport(
        index=spec.index,
        pid=os.getpid(),
        decode_device=processor.decode_device,
        preprocess_device=processor.preprocess_device,
        cuda_visible_devices=os.environ.get(VISIBLE),
        cuda_libraries=process.mapped_cuda_libraries(),
        torch_imported=process.is_torch_imported(),
        threads=process.count_threads(),
        image_thread=image_thread,
        versions=processor.versions(),
        build_ms=round(build_ms, 1),
    )
