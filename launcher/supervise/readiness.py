"""When an engine is ready, what was seen until then, and whether it stays ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from kimi_serve.schemas.engine_launch import EngineLaunch, Readiness

from ..machine.sockets import command_of, listening_inodes, listening_ports, owners, unix_inodes
from .asking import Answer, NoAnswer, ask, is_accepted
from .state import EngineState

logger = logging.getLogger(__name__)

# SGLang's /health generates a token and may take 20 s for it.
_PROBE_TIMEOUT_S = 30.0
_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 1.0
_PAUSE_IN_A_ROW_S = 0.05

LIVENESS_PAUSE_S = 10.0
_LIVENESS_TIMEOUT_S = 10.0
_FAILURES = 3  # in a row


@dataclass(frozen=True, slots=True)
class Seen:
    """What asking the engine gave, in a sentence's end.

    `is_ok` is a 200; `is_there` is less: it listens, and nothing else can be asked of it.
    `is_refused` tells that nobody listens at all.
    """

    text: str
    is_ok: bool = False
    is_there: bool = False
    is_refused: bool = False


class LineCount:
    """Counts the lines that say ready, in the thread that reads them."""

    def __init__(self, readiness: Readiness) -> None:
        self._line = readiness.log_line
        self._missing = readiness.log_count if readiness.log_line else 0
        self.is_complete = False

    def see(self, line: str) -> None:
        """Look at one line."""
        if self._missing and self._line in line:
            self._missing -= 1
            self.is_complete = not self._missing


class Watch:
    """Asks an engine until it is ready, and remembers what it saw."""

    def __init__(
        self, launch: EngineLaunch, lines: LineCount, engine_pids: Callable[[], list[int]]
    ) -> None:
        self._launch = launch
        self._lines = lines
        self._engine_pids = engine_pids
        self._seen = Seen("it was not asked yet")
        self._in_a_row = 0
        self._most_in_a_row = 0
        self._stranger = ""

    async def become_ready(self) -> None:
        """Return when the engine answers as its readiness asks for."""
        if not self._launch.readiness.url:
            return
        pause_s = _FIRST_PAUSE_S
        while True:
            # Counted before the probe: a line between the two says nothing about this answer.
            is_enough = self._lines.is_complete
            self._seen = await probe(
                self._launch.readiness, timeout_s=lambda _: _PROBE_TIMEOUT_S, note=self._note
            )
            if self._counts(is_enough) and not self._is_stranger():
                return
            if not self._in_a_row:
                pause_s = min(pause_s * 1.2, _LONGEST_PAUSE_S)
            await asyncio.sleep(_PAUSE_IN_A_ROW_S if self._in_a_row else pause_s)

    def _note(self, seen: Seen) -> None:
        self._seen = seen

    def _counts(self, is_enough: bool) -> bool:
        """Take what was seen last; tell whether that makes enough of it."""
        readiness = self._launch.readiness
        is_shown = is_enough or not readiness.log_line
        is_ok = self._seen.is_ok or (self._seen.is_there and is_shown)
        self._in_a_row = self._in_a_row + 1 if is_ok else 0
        self._most_in_a_row = max(self._most_in_a_row, self._in_a_row)
        return is_ok and (is_enough or self._in_a_row >= readiness.consecutive)

    def _is_stranger(self) -> bool:
        stranger = _stranger(self._launch.readiness.url, self._engine_pids())
        if stranger and stranger != self._stranger:
            place = self._launch.readiness.url
            logger.warning("%s is answered by %s, not by the engine", place, stranger)
        self._stranger = stranger
        if stranger:
            self._in_a_row = self._most_in_a_row = 0
        return bool(stranger)

    def explain(self) -> tuple[str, str]:
        """Say why the engine is not ready, and what to do; asked while it still runs."""
        readiness = self._launch.readiness
        if self._stranger:
            found = f"{readiness.url} is answered by {self._stranger}, not by the engine"
            return found, "stop that program, or choose another server.port"
        others = self._other_ports()
        if others and self._seen.is_refused:
            ports = ", ".join(map(str, others))
            found = f"{self._seen.text}; the engine listens on port {ports}"
            return found, "let server.port say the port; engine.args or a file of theirs differ"
        if self._most_in_a_row and self._most_in_a_row < readiness.consecutive:
            found = (
                f"{readiness.url} answered {self._most_in_a_row} times in a row, and "
                f"{readiness.consecutive} are asked for; last, {self._seen.text}"
            )
            return found, "some of its workers are not ready: see its lines"
        if self._seen.is_there and readiness.log_line:
            found = f"{self._seen.text}, and the line {readiness.log_line!r} did not come"
            return found, "raise engine.startup_timeout_s if it was still loading"
        return self._seen.text, "raise engine.startup_timeout_s if it was still loading"

    def _other_ports(self) -> Sequence[int]:
        return [
            port for port in listening_ports(self._engine_pids()) if port not in self._launch.ports
        ]


async def probe(
    readiness: Readiness,
    *,
    timeout_s: Callable[[str], float],
    note: Callable[[Seen], None] = lambda _: None,
) -> Seen:
    """Ask once; `timeout_s` gives the patience for a path, `note` hears of what goes on."""
    url = readiness.url
    if url.startswith("tcp:"):
        failed = await is_accepted(url, timeout_s=timeout_s(""))
        if failed is None:
            return Seen(f"{url} accepts connections", is_there=True)
        return Seen(f"{url}: {failed.reason}", is_refused=failed.is_refused)
    answer: Answer | NoAnswer = NoAnswer("was not asked")
    for path in readiness.paths:
        waits = Seen(f"{url}{path} accepts connections and answers nothing")
        heard = partial(note, waits)
        answer = await ask(url, path, timeout_s=timeout_s(path), on_connected=heard)
        if not isinstance(answer, Answer) or answer.status != 404:
            return _seen(f"{url}{path}", answer)
    return _seen(f"{url}{' and '.join(readiness.paths)}", answer)


def _seen(place: str, answer: Answer | NoAnswer) -> Seen:
    if isinstance(answer, Answer):
        return Seen(f"{place} answered {answer.status}", is_ok=answer.status == 200)
    text = f"{place}: {answer.reason}"
    return Seen(text, is_there=answer.wants_certificate, is_refused=answer.is_refused)


def _stranger(url: str, engine_pids: list[int]) -> str:
    """Name who listens there when it is surely none of the engine's processes."""
    if url.startswith("unix:"):
        inodes = unix_inodes(url.removeprefix("unix://"))
    else:
        inodes = listening_inodes(urlsplit(url).port or 0)
    if not inodes or owners(inodes, engine_pids):
        return ""
    others = owners(inodes)
    if not others:  # not ours to see
        return ""
    pid = min(others)
    return f"pid {pid} ({command_of(pid)})"


async def stay_ready(
    launch: EngineLaunch, state: EngineState, *, pause_s: float = LIVENESS_PAUSE_S
) -> None:
    """Ask a ready engine now and then, and say in `state` when it does not answer any more.

    Nothing is stopped for it: a load balancer looks elsewhere, a person looks why.
    """
    failures = answers = 0
    while True:
        await asyncio.sleep(pause_s)
        seen = await probe(launch.readiness, timeout_s=lambda path: _patience_s(launch, path))
        is_ok = seen.is_ok or seen.is_there
        failures, answers = (0, answers + 1) if is_ok else (failures + 1, 0)
        if state.state == "ready" and failures >= _FAILURES:
            logger.error(
                "%s does not answer any more: %s, %d times in a row; /ready says so, and it goes "
                "on running",
                launch.engine,
                seen.text,
                failures,
            )
            state.become("unready")
        elif state.state == "unready" and answers >= launch.readiness.consecutive:
            logger.info("%s answers again", launch.engine)
            state.become("ready")


def _patience_s(launch: EngineLaunch, path: str) -> float:
    generates = launch.engine == "sglang" and path == "/health"
    return _PROBE_TIMEOUT_S if generates else _LIVENESS_TIMEOUT_S
