"""One worker process as its parent sees it: socket, arena, log, state, what it is working on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Literal, get_args

from kimi_serve.schemas import messages
from kimi_serve.schemas.worker import WorkerSpec

from .arena import Arena
from .fork_client import ForkClient
from .jobs import Job
from .log_pipe import LogPipe

logger = logging.getLogger(__name__)

WorkerState = Literal["starting", "ready", "busy", "stopping", "stopped", "failed"]
WORKER_STATES: tuple[WorkerState, ...] = get_args(WorkerState)

EOF_GRACE_S = 0.5

OnFrame = Callable[["WorkerLink", messages.Message, bytes], None]


class WorkerLink:
    """One incarnation of worker `spec.index`; a replacement is a new link."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.report: messages.WorkerReport | None = None
        self.ready_at: float | None = None
        self.failure: messages.WorkerFailed | None = None
        self.image_job: Job | None = None
        self.text_job: Job | None = None
        self.num_answers = 0
        self.log = LogPipe()
        # Ends it when it is not ready in time.
        self.deadline: asyncio.TimerHandle | None = None
        self.is_stopping = False
        # Whether it is ending: nothing may be given to it any more.
        self.is_gone = False
        self.is_being_buried = False
        # Whether it was killed because it was not ready in time.
        self.is_late = False
        self.end: Literal["stopped", "failed"] | None = None
        self.arena = Arena.create(spec.slots, spec.slot_bytes)
        self._free_slots = list(range(spec.slots))
        self._pidfd = -1
        # Whether there is no more than a bare pid to kill it by.
        self._has_only_pid = False
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        return f"worker {self.spec.index}"

    @property
    def state(self) -> WorkerState:
        if self.end is not None:
            return self.end
        if self.is_stopping:
            return "stopping"
        if self.is_gone:
            return "failed"
        if self.report is None:
            return "starting"
        return "busy" if self.has_work else "ready"

    @property
    def is_usable(self) -> bool:
        """Whether it can be given work."""
        return self.state in ("ready", "busy")

    @property
    def has_work(self) -> bool:
        return self.image_job is not None or self.text_job is not None

    @property
    def has_suspect(self) -> bool:
        """Whether it has a job that may be what ends its workers."""
        return any(job is not None and job.is_suspect for job in (self.image_job, self.text_job))

    @property
    def has_long_text(self) -> bool:
        return self.image_job is not None and self.image_job.is_long_text

    def can_take(self, *, image: bool) -> bool:
        """Whether an image, or a text, would be started at once."""
        if image:
            return self.is_usable and self.image_job is None and bool(self._free_slots)
        return self.is_usable and self.text_job is None

    async def open(self, client: ForkClient, on_frame: OnFrame) -> None:
        """Ask the fork server for the process and start to listen to it."""
        ours, theirs = socket.socketpair()
        try:
            log_read, log_write = os.pipe()
        except OSError:
            ours.close()
            theirs.close()
            raise
        try:
            self.log.follow(log_read)
            await client.spawn(self.spec, [theirs.fileno(), self.arena.fileno(), log_write])
            ours.setblocking(False)
            reader, writer = await asyncio.open_unix_connection(sock=ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(log_write)
        if self._is_closed:  # it ended in the meantime
            writer.close()
            return
        self._writer = writer
        self._reading = asyncio.get_running_loop().create_task(self._read(reader, on_frame))

    def know_pid(self, pid: int, on_gone: Callable[[WorkerLink], None]) -> None:
        """Learn which process it is, and hold on to that: a bare pid may be another's later.

        `on_gone` is called when it ended, a little after whoever knows how could have said so.
        """
        self.pid = pid
        try:
            self._pidfd = os.pidfd_open(pid)
            asyncio.get_running_loop().add_reader(self._pidfd, self._on_process_end, on_gone)
        except ProcessLookupError:  # it ended already, and the fork server says how
            pass
        except OSError as error:  # no descriptor is left, or a sandbox forbids the call
            self._has_only_pid = self._pidfd < 0
            logger.warning("%s: nothing but its pid %d is known: %s", self.name, pid, error)
        if self.is_gone:  # given up before the fork server got to it
            self.kill()

    def _on_process_end(self, on_gone: Callable[[WorkerLink], None]) -> None:
        self.is_gone = True
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._pidfd)
        loop.call_later(EOF_GRACE_S, on_gone, self)

    def send(self, job: Job) -> None:
        """Give the worker a job; its answer comes through `on_frame`."""
        if job.is_image:
            # The lowest slot first: its pages are warm.
            job.slot = self._free_slots.pop(0)
        if job.is_heavy:
            self.image_job = job
        else:
            self.text_job = job
        # Should the worker be gone, its end sends the job elsewhere.
        self._write(messages.pack(job.make(job.slot), len(job.payload)), job.payload)

    def job(self, job_id: int) -> Job | None:
        """Give the job of this number, None when it has no such job."""
        jobs = (self.image_job, self.text_job)
        return next((job for job in jobs if job is not None and job.id == job_id), None)

    def take(self, job: Job) -> None:
        """Let go of a job that was just answered."""
        self._forget(job)
        self.num_answers += 1

    def take_all(self) -> list[Job]:
        """Give back all unanswered jobs of a worker that ended."""
        jobs = [job for job in (self.image_job, self.text_job) if job is not None]
        for job in jobs:
            self._forget(job)
            if job.is_image:
                self.release(job.slot)
        return jobs

    def release(self, slot: int) -> None:
        """Make a slot writable again."""
        self._free_slots.append(slot)
        self._free_slots.sort()
        self._drop_arena()

    @property
    def is_full(self) -> bool:
        """Whether every slot is written or read."""
        return not self._free_slots

    @property
    def is_quiet(self) -> bool:
        """Whether it has nothing to do and nobody reads its slots."""
        return self.state == "ready" and len(self._free_slots) == self.spec.slots

    def tidy(self) -> None:
        """Have the worker give back the memory that its work has left."""
        self._write(messages.pack(messages.Tidy()))

    def stop(self) -> None:
        """Ask the worker to finish and exit."""
        self.is_stopping = True
        self._write(messages.pack(messages.Stop()))

    def kill(self) -> None:
        """Kill the process, whatever it does."""
        self.is_gone = True
        with contextlib.suppress(ProcessLookupError):
            if self._pidfd >= 0:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            # Once its end is known the pid may be another's.
            elif self._has_only_pid and self.pid is not None and not self.is_being_buried:
                os.kill(self.pid, signal.SIGKILL)

    async def drain(self) -> None:
        """Hear what an ended worker said last; its end of the socket is closed already."""
        if self._reading is not None:
            await asyncio.wait({self._reading}, timeout=EOF_GRACE_S)

    async def close(self) -> None:
        """Let go of everything but the slots that are still being read; twice is once."""
        self._is_closed = True
        self.stop_deadline()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._writer is not None:
            # Not waited for: a waiter that is cancelled would cancel those after it.
            self._writer.close()
            self._writer = None
        self.log.close()
        self.arena.close_descriptor()
        self._drop_arena()
        if self._pidfd >= 0:
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def give_up(self) -> None:
        """Count as ended and buried: it could not be opened, and whoever tried replaces it."""
        self.is_gone = self.is_being_buried = True
        self.end = "failed"

    def stop_deadline(self) -> None:
        """Have it be as slow as it likes from now on."""
        if self.deadline is not None:
            self.deadline.cancel()
            self.deadline = None

    def _drop_arena(self) -> None:
        """Give the memory back with the last slot that is read, whoever still holds the link."""
        if self._is_closed and len(self._free_slots) == self.spec.slots:
            self.arena.close()

    def _forget(self, job: Job) -> None:
        if job is self.image_job:
            self.image_job = None
        else:
            self.text_job = None

    def _write(self, *pieces: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.writelines(pieces)

    async def _read(self, reader: asyncio.StreamReader, on_frame: OnFrame) -> None:
        try:
            while True:
                header = await reader.readexactly(messages.HEADER_BYTES)
                json_bytes, payload_bytes = messages.unpack_header(header)
                _check_size(json_bytes, payload_bytes)
                text = await reader.readexactly(json_bytes)
                payload = await reader.readexactly(payload_bytes)
                on_frame(self, messages.unpack(text), payload)
        except (asyncio.IncompleteReadError, OSError):
            # The process is ending and the fork server will say how; one that only closed its
            # socket is of no use either.
            self.is_gone = True
            asyncio.get_running_loop().call_later(EOF_GRACE_S, self.kill)
        except Exception:
            logger.exception("%s sent what cannot be read; killing it", self.name)
            self.kill()


def _check_size(json_bytes: int, payload_bytes: int) -> None:
    if json_bytes > messages.MAX_ANSWER_JSON_BYTES or payload_bytes > messages.MAX_ANSWER_BYTES:
        message = f"a frame of {json_bytes} and {payload_bytes} bytes is larger than any answer"
        raise ValueError(message)
