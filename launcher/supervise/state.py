"""What the launcher knows of its engine at this moment, for /ready and /server_info."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

State = Literal["starting", "ready", "unready", "draining", "restarting", "failed"]


@dataclass
class EngineState:
    """Written by the supervision, read by the status server; both live in one event loop."""

    state: State = "starting"
    pid: int | None = None
    restarts: int = 0
    since: float = field(default_factory=time.time)

    def become(self, state: State) -> None:
        """Change the state; a stop that has begun stays one."""
        if state != self.state and self.state != "draining":
            self.state = state
            self.since = time.time()

    def as_json(self) -> dict[str, Any]:
        """Give what clients see."""
        return {
            "ready": self.state == "ready",
            "state": self.state,
            "pid": self.pid,
            "restarts": self.restarts,
            "since": round(self.since, 3),
        }
