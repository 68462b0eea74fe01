"""Plans and their workers behind one port: which one takes a request, and when one is done."""

from __future__ import annotations

import asyncio

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kimi_serve.preprocess.workers.pool import Pool
from kimi_serve.schemas.plan import LaunchPlan

from .front.state import FrontState


class Generation:
    """One plan with the workers and the application made from it."""

    def __init__(self, plan: LaunchPlan, pool: Pool, app: ASGIApp) -> None:
        self.plan = plan
        self.pool = pool
        self.app = app
        self._num_requests = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def enter(self) -> None:
        self._num_requests += 1
        self._idle.clear()

    def leave(self) -> None:
        self._num_requests -= 1
        if self._num_requests == 0:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no request is left that began here."""
        await self._idle.wait()


class Switch:
    """The application that the server runs: gives every request to the current generation.

    A request stays where it began, so it sees one plan from its first byte to its last.
    """

    def __init__(self, first: Generation, state: FrontState) -> None:
        self.current = first
        self.state = state

    def turn_to(self, new: Generation) -> None:
        """Give all requests from now on to another generation."""
        self.state.follow(new.plan, new.pool)
        self.state.generation += 1
        self.current = new

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        generation = self.current

        async def send_last(message: Message) -> None:
            if message["type"] == "http.response.start" and self.state.is_draining:
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        generation.enter()
        try:
            await generation.app(scope, receive, send_last)
        finally:
            generation.leave()
