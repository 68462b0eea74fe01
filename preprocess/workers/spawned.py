"""A worker in an interpreter of its own: CUDA does not survive a fork.

The fork server forks it all the same and the child executes a new interpreter at once, so that it
is watched, ended and replaced like any other.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence

from kimi_serve.schemas.worker import WorkerSpec


def become(spec: WorkerSpec, fds: Sequence[int]) -> None:
    """Replace this process by a fresh interpreter that is the worker; does not return."""
    spec_fd = os.memfd_create("kimi-serve-spec")
    os.write(spec_fd, pickle.dumps(spec))
    os.lseek(spec_fd, 0, os.SEEK_SET)
    for fd in (*fds, spec_fd):
        os.set_inheritable(fd, True)
    command = [sys.executable, "-P", "-m", "kimi_serve.preprocess.workers.spawned"]
    os.execve(
        sys.executable,
        [*command, *(str(fd) for fd in (*fds, spec_fd))],
        os.environ | dict(spec.env),
    )


def main(fds: Sequence[int], spec_fd: int) -> int:
    """Read the spec and work until told to stop; gives the exit code."""
    with os.fdopen(spec_fd, "rb") as stream:
        spec: WorkerSpec = pickle.load(stream)
    for fd in fds:
        os.set_inheritable(fd, False)
    from . import worker

    return worker.run(spec, *fds)


if __name__ == "__main__":
    *worker_fds, last_fd = (int(word) for word in sys.argv[1:])
    # As the fork server's children end: no destructor of a library has a say.
    os._exit(main(worker_fds, last_fd))
