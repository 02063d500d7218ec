"""One connection to whichever NATS server answers, made again for ever.

nats-py moves the bytes of one connection. It neither reconnects nor keeps what could not be sent: nothing is sent again
behind our back. Invariant: `client` is a connection that is ready, or None.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, final

from nats.aio.client import Client
from nats.errors import Error as NatsError

from mqttlite.engine.addresses import shown
from mqttlite.engine.nats.servers import NatsLogin, NatsOptions

CONNECT_TIMEOUT_S: Final = 2.0
"""A server that does not answer for so long is passed over: the next one may."""

RECONNECT_S: Final = 0.1
"""The pause after each server has been tried. A planned restart of one server costs no more than this."""

PING_S: Final = 1.0
PING_TIMEOUT_S: Final = 2.0
"""A server that is stopped or cut off closes nothing. After a ping without answer we go to another one."""

CLOSE_TIMEOUT_S: Final = 1.0

TOO_MANY: Final = 0
"""nats-py drops messages at a limit of bytes; ours are bounded by what we ask for. 0 switches the limit off."""

_log = logging.getLogger("mqttlite.cluster")


@final
class LastingConnection:
    """`begin` subscribes on a new connection and waits until the server has that, `lose` is
    called when one is lost, and `complain` with the reason why there is none."""

    def __init__(
        self,
        options: NatsOptions,
        login: NatsLogin,
        begin: Callable[[Client], Awaitable[None]],
        lose: Callable[[], None],
        complain: Callable[[str], None],
    ) -> None:
        self._options: Final = options
        self._login: Final = login
        self._begin: Final = begin
        self._lose: Final = lose
        self._complain: Final = complain
        self.client: Client | None = None
        self.connected: Final = asyncio.Event()
        """Set while there is a connection, and at the end."""
        self.is_closed: bool = False
        self._tried: Final = asyncio.Event()
        self._broken: asyncio.Event | None = None
        """Of the present connection."""
        self._task: asyncio.Task[None] | None = None
        self._closing: Final[set[asyncio.Task[None]]] = set()

    async def open(self, name: str) -> None:
        """Try each server once, and go on until `close`. `name` is that of the task."""
        self._task = asyncio.create_task(self._keep_connected(), name=name)
        await self._tried.wait()

    def use_another(self) -> None:
        """Give up the present connection: the next one is to the server behind it in the list."""
        if self._broken is not None:
            self._broken.set()

    async def close(self) -> None:
        """End the connection, and make no other."""
        self.is_closed = True
        while self._task is not None and not self._task.done():  # nats-py may swallow a cancellation
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=CLOSE_TIMEOUT_S)
        self.connected.set()
        if self._closing:
            await asyncio.wait(self._closing)

    async def _keep_connected(self) -> None:
        while not self._is_ending():
            for url in self._options.servers:
                broken = self._broken = asyncio.Event()
                try:
                    client = await _connect(self._options, self._login, url, broken)
                    try:
                        await self._use(client, broken)
                    finally:
                        self.client = None
                        self.connected.clear()
                        self._lose()
                        self._close_later(client)
                except Exception as error:  # whatever nats-py raises: without this task nothing would ever connect
                    self._complain(f"{shown(url)}: {str(error) or type(error).__name__}")
            self._tried.set()
            await asyncio.sleep(RECONNECT_S)

    async def _use(self, client: Client, broken: asyncio.Event) -> None:
        """Use a connection until it breaks. A server that does not answer a ping raises."""
        await self._begin(client)
        self.client = client
        self.connected.set()
        self._tried.set()
        while not self._is_ending():
            try:
                async with asyncio.timeout(PING_S):
                    await broken.wait()
            except TimeoutError:
                await client.flush(PING_TIMEOUT_S)  # type: ignore[arg-type]
            else:
                raise ConnectionError("the connection was lost")

    def _is_ending(self) -> bool:
        """Whether this task was cancelled. nats-py swallows a cancellation at some places, so we look ourselves."""
        task = asyncio.current_task()
        return self.is_closed or (task is not None and task.cancelling() > 0)

    def _close_later(self, client: Client) -> None:
        """Close what is left of a connection. It may hang at a server that is stopped, so nobody waits for it."""
        closing = asyncio.create_task(_close(client))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


async def _connect(options: NatsOptions, login: NatsLogin, url: str, broken: asyncio.Event) -> Client:
    """Connect to one server; `broken` is set when the connection is lost."""

    async def lost() -> None:
        broken.set()

    async def note(error: Exception) -> None:
        _log.debug("connection to the engine: %s", error)

    client = Client()
    try:
        async with asyncio.timeout(2 * CONNECT_TIMEOUT_S):
            await client.connect(
                servers=[url],
                name=f"mqttlite {options.cluster}",
                allow_reconnect=False,
                connect_timeout=CONNECT_TIMEOUT_S,  # type: ignore[arg-type]
                reconnect_time_wait=0,
                max_reconnect_attempts=1,
                pending_size=0,  # keep nothing that cannot be sent, and never wait until it can
                disconnected_cb=lost,
                closed_cb=lost,
                error_cb=note,
                tls=options.tls,
                user=login.user or None,
                password=login.password or None,
                token=login.token or None,
                user_credentials=str(login.credentials) if login.credentials else None,
            )
    except BaseException:
        await _close(client)
        raise
    return client


async def _close(client: Client) -> None:
    with suppress(TimeoutError, NatsError, OSError):
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await client.close()
