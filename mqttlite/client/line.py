"""Staying connected: the first connection, the next after a loss, and the end.

What is asked over the line is in `client`, what survives a connection in `session`. Invariant: once `end` is set,
nobody waits here.
"""

import asyncio
import logging
import random
from collections.abc import Coroutine
from typing import Final, final

from mqttlite.client.authentication import Authentication, Exchange
from mqttlite.client.backoff import Backoff
from mqttlite.client.connection import Connection
from mqttlite.client.dial import dial, is_permanent
from mqttlite.client.errors import ClientClosed, ConnectionLost, MqttError
from mqttlite.client.inbox import Inbox
from mqttlite.client.limits import ServerLimits
from mqttlite.client.options import Options
from mqttlite.client.session import Session
from mqttlite.wire.constants import DEFAULT_RECEIVE_MAXIMUM, V5
from mqttlite.wire.packets import Connack, Disconnect
from mqttlite.wire.reason_codes import ReasonCode

log: Final = logging.getLogger("mqttlite.client")


@final
class Line:
    """A session and, most of the time, a connection."""

    def __init__(self, options: Options) -> None:
        self.options: Final = options
        self.inbox: Final = Inbox(options.max_queued_messages, self.take_held)
        self.room: Final = asyncio.Semaphore(options.max_inflight)
        self.session: Final = Session(
            options.wire_version,
            options.receive_maximum or DEFAULT_RECEIVE_MAXIMUM,
            self.inbox,
            self.room.release,
            self._fail,
        )
        self.client_id: str = options.first_client_id()
        self.connection: Connection | None = None
        self.connack: Connack = Connack(session_present=False)
        self.limits: ServerLimits = ServerLimits()
        self.end: MqttError | None = None
        self._backoff: Final = Backoff(options.min_reconnect_delay, options.max_reconnect_delay)
        self._writable: Final = asyncio.Event()
        self._authenticating: Final = asyncio.Lock()
        self._connected_at = 0.0
        self._life: asyncio.Task[None] | None = None
        self._work: Final[set[asyncio.Task[None]]] = set()

    async def open(self) -> None:
        """Connect for the first time. Raises `ConnectError`; this attempt is not repeated."""
        if self._life is not None or self.end is not None:
            raise RuntimeError("a Client is used once; make another")
        connection, connack = await dial(self.options, self.client_id, clean_start=self.options.clean_start)
        self._begin(connection, connack)
        self._life = asyncio.create_task(self._stay_connected(connection))

    async def close(self, disconnect: Disconnect) -> None:
        """Send the DISCONNECT and end; a second call is harmless."""
        closed = ClientClosed("The client was closed.")
        self._finish(closed, None)
        if self._life is not None:
            self._life.cancel()
            await asyncio.wait({self._life})
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close(closed, disconnect)
            done, _waiting = await asyncio.wait({connection.closed}, timeout=self.options.timeout)
            if not done:
                connection.abort(closed)

    @property
    def is_open(self) -> bool:
        """Whether it was opened, and has not ended."""
        return self._life is not None and self.end is None

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Do what the program does not wait for; the client ends if it fails."""
        task = asyncio.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._on_done)

    def check_alive(self) -> None:
        """Raises why nothing can be asked any more."""
        if self.end is not None:
            raise self.end
        if self._life is None:
            raise ClientClosed("The client is not connected: use it inside 'async with'.")

    async def writable(self) -> Connection:
        """The connection, once there is one that takes more. Raises when there will be none."""
        while True:
            self.check_alive()
            if self.connection is not None and self.connection.writable:
                return self.connection
            self._writable.clear()
            await self._writable.wait()

    async def authenticate_again(self, authentication: Authentication) -> None:
        """Authenticate on the connection that is there; it ends when this is cut off half-way."""
        async with self._authenticating:
            connection = await self.writable()
            self.session.authenticating = True
            self.take_held()
            try:
                await Exchange(authentication, self.options.where).again(connection)
            except BaseException as error:
                cut = ConnectionLost(f"The authentication to {self.options.where} was cut off.")
                reason = error if isinstance(error, MqttError) else cut
                connection.close(reason, Disconnect(ReasonCode.UNSPECIFIED_ERROR))
                raise
            finally:
                self.session.authenticating = False

    def take_held(self) -> None:
        """The inbox has room, or an answer is awaited that may stand behind messages that wait for room."""
        if self.connection is not None and self.connection.holding:
            self.connection.take_held()

    def _begin(self, connection: Connection, connack: Connack) -> None:
        """A connection is there: go on with the session."""
        said = connack.properties
        self.connection, self.connack, self.limits = connection, connack, ServerLimits.of(connack)
        self.client_id = said.assigned_client_identifier or self.client_id
        self._connected_at = asyncio.get_running_loop().time()
        self.session.resume(connection.write, self.limits, session_present=connack.session_present)
        keep_alive_s = self.options.keep_alive if said.server_keep_alive is None else said.server_keep_alive
        connection.start(self.session, self._writable.set, keep_alive_s, self.options.timeout)
        self._writable.set()

    async def _stay_connected(self, connection: Connection) -> None:
        """Wait for the end of a connection and make the next, until there is a reason not to."""
        error: MqttError = ClientClosed("The client stopped because of a fault of its own.")
        try:
            while True:
                await asyncio.wait({connection.closed})
                self.connection = None
                self.session.suspend()
                error = connection.closed.result()
                if not self.options.reconnect or is_permanent(error, self.options):
                    return
                self._backoff.on_lost(asyncio.get_running_loop().time() - self._connected_at)
                connection = await self._connect_again(error)
        except MqttError as failure:
            error = failure
        finally:
            self._finish(error, error)

    async def _connect_again(self, error: MqttError) -> Connection:
        """Try until it works. Raises what makes trying again senseless."""
        options = self.options
        # Not a clean start: a server that kept the session goes on with it. 3.1.1 says clean session each time.
        clean_start = options.clean_start and options.wire_version != V5
        while True:
            delay_s = self._backoff.next_s(random.random())
            log.info("%s Trying again in %.1f s.", error, delay_s)
            if options.on_connection_lost is not None:
                options.on_connection_lost(error, delay_s)
            await asyncio.sleep(delay_s)
            try:
                connection, connack = await dial(options, self.client_id, clean_start=clean_start)
                break
            except MqttError as failure:
                if is_permanent(failure, options):
                    raise
                error = failure
        self._begin(connection, connack)
        log.info("Connected to %s again.", connection.where)
        if options.on_reconnected is not None:
            options.on_reconnected(connack.session_present)
        return connection

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._work.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MqttError):
            self._fail(error)

    def _fail(self, error: MqttError) -> None:
        """End because of something the session found."""
        self._finish(error, error)

    def _finish(self, end: MqttError, error: MqttError | None) -> None:
        """Nothing can be asked any more; the first reason counts. `error` is what iteration raises."""
        if self.end is None:
            self.end = end
            self.session.fail(end)
            self.inbox.end(error)
            self._writable.set()
