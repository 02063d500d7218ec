"""Ends what functions of extensions still do when the broker stops.

Invariant: a function that goes on after it was cancelled holds up a stop for `STOP_S` at most.
"""

import asyncio
import logging
from collections.abc import Collection
from typing import Any, Final

STOP_S: Final = 5.0
"""How long extensions may take to stop, and their functions to end after they were cancelled."""

_log = logging.getLogger("mqttlite.extensions")


async def end(tasks: Collection[asyncio.Task[Any]], what: str) -> None:
    """Cancel tasks and wait until they have ended, or for `STOP_S`. Log and leave those that go on."""
    if not tasks:
        return
    for task in tasks:
        task.cancel()
    _, left = await asyncio.wait(tasks, timeout=STOP_S)
    if not left:
        return
    _log.error("%s did not end within %g s of its cancellation; the broker stops without it", what, STOP_S)
    for task in left:  # else `asyncio.run` would wait for them without a limit
        asyncio.tasks._unregister_task(task)
