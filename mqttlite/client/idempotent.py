"""A handler that handles each message once, although it may come several times.

A key is claimed before the handler is called, and marked when it has returned. Invariant: it is marked before the
message can be acknowledged, and a handler that raises leaves nothing behind. So a message is handled at least once; it
is handled again only where a process ended between the handler's return and the mark, or the store lost or forgot it.
"""

import asyncio
import inspect
import secrets
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, final

from mqttlite.client.message import Message
from mqttlite.client.queue_handlers import is_async
from mqttlite.client.seen import Claim, MemorySeen, SeenStore

TTL_S: Final = 3_600.0
"""How long a message is remembered."""

LEASE_S: Final = 30.0
"""How long a process that has died keeps others from a message that it was handling."""

FIRST_LOOK_S: Final = 0.01
LAST_LOOK_S: Final = 0.5
"""How often one looks that waits for another who handles the same message: first soon, then less."""

MessageT = TypeVar("MessageT", bound=Message)


@final
class IdempotentHandler(Generic[MessageT]):
    """`await handler(message)`: True when it handled the message, False when that was done before.

    `handler` is a coroutine function, or one that may block, which runs in a thread. What it raises is raised, and the
    message not remembered. Where another is handling the same message, this waits, and handles it if the other fails.

    `key` names a message: by default its `message-id`, which is the same in all queues; so give each handler a store,
    or a key of its own. `ttl` is how long it is remembered, at least as long as it may come again; `lease` how long a
    message is not handled when the process that did so has died. The store bounds how many are remembered.
    """

    def __init__(
        self,
        handler: Callable[[MessageT], Any],
        store: SeenStore | None = None,
        *,
        key: Callable[[MessageT], str] | None = None,
        ttl: float = TTL_S,
        lease: float = LEASE_S,
    ) -> None:
        for name, value in (("ttl", ttl), ("lease", lease)):
            if not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value}: it is a number of seconds above 0")
        self._handler: Final = handler
        self._is_async: Final = is_async(handler)
        self.store: Final[SeenStore] = MemorySeen() if store is None else store
        self._key: Final = message_id_of if key is None else key
        self._ttl: Final = ttl
        self._lease: Final = lease

    async def __call__(self, message: MessageT) -> bool:
        """Raises what the handler raises, and `ValueError` for a message without a key."""
        key, owner = self._key(message), secrets.token_hex(8)
        look_s = FIRST_LOOK_S
        while True:
            claim = await self.store.claim(key, owner, self._lease)
            if claim is Claim.SEEN:
                return False
            if claim is Claim.CLAIMED:
                break
            await asyncio.sleep(look_s)
            look_s = min(look_s * 2, LAST_LOOK_S)
        try:
            await self._handle(message, key, owner)
        except BaseException:
            await self.store.forget(key, owner)
            raise
        await self.store.done(key, owner, self._ttl)
        return True

    async def _handle(self, message: MessageT, key: str, owner: str) -> None:
        """Call the handler, and claim the message again while it runs."""
        task = asyncio.ensure_future(self._call(message))
        try:
            while not task.done():
                await asyncio.wait((task,), timeout=self._lease / 3)
                if not task.done():
                    await self.store.claim(key, owner, self._lease)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        task.result()

    async def _call(self, message: MessageT) -> None:
        result = self._handler(message) if self._is_async else await asyncio.to_thread(self._handler, message)
        if inspect.isawaitable(result):
            await result


def message_id_of(message: Message) -> str:
    """The last user property `message-id`, which the broker adds. Raises `ValueError` where there is none."""
    for name, value in reversed(message.properties.user_properties):
        if name == "message-id":
            return value
    raise ValueError(f"the message of {message.topic!r} has no message-id: give IdempotentHandler a key")
