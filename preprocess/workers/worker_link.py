"""One worker process as its parent sees it: socket, arena, log, state, what it is working on."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from typing import Literal

from kimi_serve.schemas import messages
from kimi_serve.schemas.worker import WorkerSpec

from .arena import Arena
from .fork_client import ForkClient, kill
from .jobs import Job

logger = logging.getLogger(__name__)

WorkerState = Literal["starting", "ready", "busy", "stopping", "stopped", "failed"]

EOF_GRACE_S = 0.5
_LOG_LINES_KEPT = 40


class WorkerLink:
    """One incarnation of worker `spec.index`; a replacement is a new link."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.pid: int | None = None
        self.report: messages.WorkerReport | None = None
        self.failure: messages.WorkerFailed | None = None
        self.image_job: Job | None = None
        self.text_jobs: dict[int, Job] = {}
        self.log_tail: collections.deque[str] = collections.deque(maxlen=_LOG_LINES_KEPT)
        self.is_stopping = False
        self.is_gone = False
        self.num_jobs = 0
        self.end: Literal["stopped", "failed"] | None = None
        self.arena = Arena.create(spec.slots, spec.slot_bytes)
        self.free_slots = list(range(spec.slots))
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None
        self._log_fd = -1
        self._is_closed = False

    @property
    def name(self) -> str:
        return f"worker {self.spec.index}"

    @property
    def state(self) -> WorkerState:
        if self.end is not None:
            return self.end
        if self.is_gone:
            return "failed"
        if self.is_stopping:
            return "stopping"
        if self.report is None:
            return "starting"
        return "busy" if self.image_job or self.text_jobs else "ready"

    @property
    def is_usable(self) -> bool:
        """Whether it can be given work."""
        return self.state in ("ready", "busy")

    @property
    def can_take_image(self) -> bool:
        return self.is_usable and self.image_job is None and bool(self.free_slots)

    async def open(
        self,
        client: ForkClient,
        on_frame: Callable[[WorkerLink, messages.Message, bytes], None],
    ) -> None:
        """Ask the fork server for the process and start to listen to it."""
        ours, theirs = socket.socketpair()
        log_read, log_write = os.pipe()
        try:
            await client.spawn(self.spec, [theirs.fileno(), self.arena.fileno(), log_write])
        finally:
            theirs.close()
            os.close(log_write)
        self._follow_log(log_read)
        ours.setblocking(False)
        reader, self._writer = await asyncio.open_unix_connection(sock=ours)
        self._reading = asyncio.get_running_loop().create_task(self._read(reader, on_frame))

    def send(self, job: Job) -> None:
        """Give the worker a job; its answer comes through `on_frame`."""
        self.num_jobs += 1
        if job.is_image:
            job.slot = self.free_slots.pop(0)
            self.image_job = job
        else:
            self.text_jobs[job.id] = job
        # Should the worker be gone, its end sends the job elsewhere.
        self._write(messages.pack(job.make(job.slot), len(job.payload)), job.payload)

    def take(self, job_id: int) -> Job | None:
        """Give back the job that was just answered."""
        if self.image_job is not None and self.image_job.id == job_id:
            job, self.image_job = self.image_job, None
            return job
        return self.text_jobs.pop(job_id, None)

    def take_all(self) -> list[Job]:
        """Give back all unanswered jobs of a worker that ended."""
        jobs = [*([self.image_job] if self.image_job else []), *self.text_jobs.values()]
        self.image_job = None
        self.text_jobs.clear()
        return jobs

    def release(self, slot: int) -> None:
        """Make a slot writable again; the lowest ones are used first, their pages are warm."""
        self.free_slots.append(slot)
        self.free_slots.sort()

    def stop(self) -> None:
        """Ask the worker to finish and exit."""
        self.is_stopping = True
        self._write(messages.pack(messages.Stop()))

    def kill(self) -> None:
        """Kill the process unless its end is known already."""
        if self.pid is not None and self.end is None:
            kill(self.pid)

    async def close(self, end: Literal["stopped", "failed"]) -> None:
        """Let go of everything but the slots that are still being read."""
        self.end = end
        if self._reading is not None:
            # What the worker said last may still be in the socket.
            await asyncio.wait({self._reading}, timeout=EOF_GRACE_S)
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()
        self._read_log()
        self._close_log()
        if not self._is_closed:
            self.arena.close()
            self._is_closed = True

    async def _read(
        self,
        reader: asyncio.StreamReader,
        on_frame: Callable[[WorkerLink, messages.Message, bytes], None],
    ) -> None:
        try:
            while True:
                header = await reader.readexactly(messages.HEADER_BYTES)
                json_bytes, payload_bytes = messages.unpack_header(header)
                text = await reader.readexactly(json_bytes)
                payload = await reader.readexactly(payload_bytes)
                on_frame(self, messages.unpack(text), payload)
        except (asyncio.IncompleteReadError, OSError):
            self.is_gone = True
            # The process is ending and the fork server will say how; one that only closed its
            # socket is of no use either.
            asyncio.get_running_loop().call_later(EOF_GRACE_S, self.kill)
        except (ValueError, KeyError, TypeError) as error:
            logger.error("%s sent a frame that cannot be read (%s)", self.name, error)
            self.kill()

    def _write(self, *pieces: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.writelines(pieces)

    def _follow_log(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._log_fd = fd
        asyncio.get_running_loop().add_reader(fd, self._read_log)

    def _read_log(self) -> None:
        while self._log_fd >= 0:
            try:
                data = os.read(self._log_fd, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                self._close_log()
                return
            text = data.decode(errors="replace")
            sys.stderr.write(text)
            self.log_tail.extend(text.splitlines())

    def _close_log(self) -> None:
        if self._log_fd >= 0:
            asyncio.get_running_loop().remove_reader(self._log_fd)
            os.close(self._log_fd)
            self._log_fd = -1
