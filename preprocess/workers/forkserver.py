"""The process that workers are forked from: it imports what they need, once, and nothing else.

Run as `python -P -m kimi_serve.preprocess.workers.forkserver FD PARENT` with the workers'
environment, so that variables such as CUDA_VISIBLE_DEVICES are set before any import.
`multiprocessing` has a fork server too; it takes over the parent's environment, re-imports the
parent's main module in every child and adds a resource tracker, none of which fits here.

Each request is one packet: a pickled `WorkerSpec` with the descriptors of the worker's socket,
arena and log. Each answer is a JSON packet: {"index", "pid"}, {"index", "error"} when the fork
failed, {"pid", "status"} when a worker ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import selectors
import signal
import socket
import sys
from collections.abc import Sequence

from kimi_serve.schemas.worker import WorkerSpec

from . import process, spawned, worker

MAX_PACKET_BYTES = 1 << 16
FDS_PER_WORKER = 3


def send_spawn(control: socket.socket, spec: WorkerSpec, fds: Sequence[int]) -> None:
    """Ask for a worker; `fds` are socket, arena and log."""
    socket.send_fds(control, [pickle.dumps(spec)], list(fds))


def main(control_fd: int, launcher_pid: int) -> None:
    """Serve until the launcher's end of the control socket closes; then take all workers along."""
    control = socket.socket(fileno=control_fd)
    process.set_name("kimi-forkserver")
    process.die_with_parent(launcher_pid)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker.preload()
    _settle()
    _ForkServer(control).run()


def _settle() -> None:
    """Make what was loaded one for all: no worker looks through it, nor has what loading left."""
    gc.collect()
    gc.freeze()
    process.release_memory()
    if process.count_threads() != 1:
        raise SystemExit("what was loaded started threads; forking would not be safe")


class _ForkServer:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: set[int] = set()
        self._wakeup, wakeup = socket.socketpair()
        for end in (self._wakeup, wakeup):
            end.setblocking(False)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._wakeup_write = wakeup

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ, self._serve)
            selector.register(self._wakeup, selectors.EVENT_READ, self._reap)
            while True:
                for key, _ in selector.select():
                    if not key.data():
                        self._kill_all()
                        return

    def _serve(self) -> bool:
        try:
            data, fds, flags, _ = socket.recv_fds(self._control, MAX_PACKET_BYTES, FDS_PER_WORKER)
        except OSError:  # the launcher ended with packets on their way
            return False
        if not data:
            return False
        spec: WorkerSpec = pickle.loads(data)
        if flags & socket.MSG_CTRUNC:  # this process may have no more descriptors
            _close_all(fds)
            return self._answer({"index": spec.index, "error": "no descriptors are left for it"})
        if worker.prepare(spec):
            _settle()
        parent = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # no memory, or the limit of processes
            return self._answer({"index": spec.index, "error": str(error.strerror)})
        finally:
            if os.getpid() == parent:
                _close_all(fds)
        if pid == 0:
            self._become_worker(spec, fds, parent)
        self._children.add(pid)
        return self._answer({"index": spec.index, "pid": pid})

    def _become_worker(self, spec: WorkerSpec, fds: list[int], parent: int) -> None:
        code = 1
        try:
            process.die_with_parent(parent)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for owned in (self._control, self._wakeup, self._wakeup_write):
                owned.close()
            if spec.preprocess_device == "cuda":
                spawned.become(spec, fds)
            code = worker.run(spec, *fds)
        finally:
            # Never return into the fork server's loop, whatever happened.
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._wakeup.recv(4096)
        while self._children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            self._children.discard(pid)
            if not self._answer({"pid": pid, "status": status}):
                return False
        return True

    def _answer(self, message: dict[str, int | str]) -> bool:
        try:
            self._control.send(json.dumps(message).encode())
        except OSError:
            return False
        return True

    def _kill_all(self) -> None:
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
