"""An event of asyncio for one task, small enough that each connection may have some.

Invariant: it says whether it is set, as `asyncio.Event` does; only one task waits for it at a time.
"""

import asyncio


class Waker:
    """Has the methods of `asyncio.Event` that are used here, and a tenth of its size."""

    __slots__ = ("_future", "_is_set")

    def __init__(self) -> None:
        self._is_set = False
        self._future: asyncio.Future[None] | None = None

    def is_set(self) -> bool:
        """Whether no route has to wait."""
        return self._is_set

    def set(self) -> None:
        """Let the task go on that waits, and the next one."""
        self._is_set = True
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    def clear(self) -> None:
        """Let the next task wait."""
        self._is_set = False

    async def wait(self) -> None:
        """Wait until it is set."""
        if self._is_set:
            return
        self._future = asyncio.get_running_loop().create_future()
        try:
            await self._future
        finally:
            self._future = None
