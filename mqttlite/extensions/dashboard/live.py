"""Keeps open pages up to date with one event stream (SSE) for each.

Each stream checks for news once a second, and all share one report. Without open pages nothing runs but
`history`. Invariant: reports use at most `SHARE` of a processor, however many clients there are; and a page
whose caller loses its role gets nothing more within a second.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import StreamingResponse

from mqttlite.gateway.caller import Callers, Role, check_role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.problems import Code, Problem
from mqttlite.telemetry.report import Report

INTERVAL_S: Final = 1.0
"""How often a stream looks: as often as a person can read."""

SHARE: Final = 0.007
"""Of one processor, for reports: with many clients these are made less often."""

MAX_STREAMS: Final = 200
"""Pages that are kept up to date at once: each costs some 0.1 ms a second."""

Look = Callable[[], Awaitable[object | None]]
"""The update for a page; None: no change."""


class Live:
    """The streams of one gateway."""

    def __init__(self, context: GatewayContext, max_streams: int = MAX_STREAMS) -> None:
        self._context: Final = context
        self._max_streams: Final = max_streams
        self.open: int = 0
        """Streams, now."""

    async def report(self) -> Report:
        """The state of the broker, as old as its cost demands."""
        return await self._context.reports.latest(max(INTERVAL_S, self._context.snapshots.cost_s / SHARE))

    def stream(
        self, request: Request, role: Role, look: Look, end: Callable[[], None] | None = None
    ) -> StreamingResponse:
        """Tell a page what `look` finds, once a second, and call `end` when it is closed after a look.

        Raises `Problem` where there are too many.
        """
        if self.open >= self._max_streams:
            raise Problem(Code.BUSY, f"{self._max_streams} pages are kept up to date, which is the limit; close some")
        return StreamingResponse(self._events(request, role, look, end), media_type="text/event-stream")

    async def _events(
        self, request: Request, role: Role, look: Look, end: Callable[[], None] | None
    ) -> AsyncIterator[bytes]:
        callers: Callers = request.app.callers
        stopping: asyncio.Event = request.app.stopping
        self.open += 1
        try:
            yield b"retry: 2000\n"
            while not stopping.is_set():
                try:
                    check_role(await callers.admit(request, is_counted=False), role)
                    found = await look()
                except Problem as problem:
                    yield b"event: end\ndata: %s\n\n" % msgspec.json.encode(problem.detail)
                    return
                if found is not None:
                    yield b"data: %s\n\n" % (found if isinstance(found, bytes) else msgspec.json.encode(found))
                try:
                    async with asyncio.timeout(INTERVAL_S):
                        await stopping.wait()
                except TimeoutError:
                    pass
        finally:
            self.open -= 1
            if end is not None:
                end()
