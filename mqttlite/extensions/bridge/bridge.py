"""One bridge: it connects, joins the connection to its session here, and comes back after a loss.

Packets are passed on in `relay`. Invariant: the session here exists from the start of the broker, so messages wait in
it while the other broker is away, within the limits of every session.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, Literal, NamedTuple

import msgspec

from mqttlite.client.backoff import MIN_DELAY_S, Backoff
from mqttlite.client.connection import Connection
from mqttlite.client.dial import dial
from mqttlite.client.errors import ConnectError, ConnectionLost, ConnectRefused, MqttError
from mqttlite.client.filters import PROPERTY as FILTER_PROPERTY
from mqttlite.client.limits import ServerLimits
from mqttlite.client.options import TIMEOUT_S, Options
from mqttlite.core.broker import Broker
from mqttlite.core.load.quotas import Quotas, Rates
from mqttlite.core.load.rate_limits import Buckets, Rate
from mqttlite.core.retained.publish_order import PUBLISHED, asks_for_order
from mqttlite.extensions.bridge.errors import ComesBack
from mqttlite.extensions.bridge.figures import Figures
from mqttlite.extensions.bridge.last_address import LastAddress
from mqttlite.extensions.bridge.options import BridgeOptions, BridgeTopic, Endpoint, without_query
from mqttlite.extensions.bridge.relay import Relay
from mqttlite.net.link import LinkDriver
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession, waiting_in
from mqttlite.wire.constants import NEVER_EXPIRES, V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connack, Disconnect, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import SUBACK_FAILURE, describe

CLIENT_ID_PREFIX: Final = "$bridge/"
"""The client identifier of a bridge's session here begins with it; the name follows."""

FAIL_BACK_S: Final = 30.0
MAX_FAIL_BACK_S: Final = 1_800.0
"""How long a bridge stays on another address before it tries the first one: twice as long after each time in vain."""

RETRY_S: Final = 5.0
"""How long after a refusal for want of room the bridge connects again, which repeats the message. Others go on."""

SHORT_S: Final = 2.0
"""An address whose connection is lost earlier is tried after the others next time."""

LOOK_S: Final = 1.0
"""How often a lazy bridge looks whether messages wait, or none came for a while."""

LEAST_PACKET_BYTES: Final = 128
"""The least that the other broker is told as the largest packet, whatever the prefixes, so that CONNACK fits."""

MAX_SHOWN: Final = 10
"""The most refused subscriptions that the reason names. The log has all of them."""

CLOSE_S: Final = 2.0
"""How long the other broker may take to close the connection when the bridge stops."""

State = Literal["connected", "away", "paused", "idle"]
"""`away` while it tries to connect; `idle` for a lazy bridge without messages, and for one that connects once."""

Origin = Literal["config", "admin"]

_NOT_THIS_LEVEL: Final = 1
"""The return code of CONNACK for an unacceptable protocol version (3.1.1 §3.2.2.3)."""

_log = logging.getLogger("mqttlite.bridge")


class BridgeState(msgspec.Struct, frozen=True, kw_only=True):
    """How a bridge stands."""

    name: str
    origin: Origin
    """`config` if it is in the configuration; `admin` if it was added while the broker ran, and can be removed so."""
    state: State
    reason: str
    """Why it is not connected, as a sentence. While it is: which subscriptions the other broker refused; or empty."""
    address: str
    """The address to which it is connected; empty while it is not."""
    addresses: tuple[str, ...]
    version: str
    client_id: str
    """Its client identifier at the other broker. Here it is `$bridge/` and the name."""
    since: str
    """When it came to this state, in UTC."""
    waiting: int
    """Messages for the other broker that it has not acknowledged."""
    sent: int
    """Messages sent to the other broker since the start of this one, repeated ones included."""
    received: int
    """Messages from the other broker, repeated ones included."""
    sent_per_s: float
    received_per_s: float
    """Messages a second, as an average of five seconds."""
    filtered: int
    """Messages from the other broker that did not pass the filter of their topic."""
    dropped: dict[str, int]
    """Messages that the bridge dropped, by reason."""
    connects: int
    """How often it has connected."""
    newest_retained: bool
    """Whether the newer one of two retained messages of a topic holds at both brokers; otherwise the last arrival. As
    the other broker said when it was last connected."""
    topics: tuple[BridgeTopic, ...]


class _Joined(NamedTuple):
    connection: Connection
    connack: Connack
    endpoint: Endpoint


class Bridge:
    """`on_state` is called when the state changes. `tls` is the context for `options.tls`; `unusable` says why there is
    none, so that the bridge does not connect until the broker starts again."""

    def __init__(
        self,
        options: BridgeOptions,
        core: Broker,
        loop_driver: LinkDriver,
        broker_id: str,
        tls: ssl.SSLContext | None,
        on_state: Callable[["Bridge"], None],
        last: LastAddress,
        origin: Origin,
        unusable: str = "",
    ) -> None:
        self.options: Final = options
        self.origin: Final[Origin] = origin
        self.figures: Final = Figures()
        self.state: State = "idle" if options.start == "lazy" else "away"
        self.reason: str = "It has not connected yet."
        """As in `BridgeState`."""
        self._asked: Final[dict[int, list[str]]] = {}
        """The topic filters of each SUBSCRIBE that the other broker has not answered, by packet identifier."""
        self._refused: Final[list[str]] = []
        """The subscriptions that the other broker refused."""
        self.has_tried: bool = False
        """Whether an attempt to connect has ended."""
        self.since: datetime = datetime.now(UTC)
        """When it came to its state."""
        self.connects: int = 0
        self.compares: bool = False
        """Whether the other broker keeps the newer one of two retained messages."""
        self.endpoint: str = ""
        """The address to which it is connected; empty if it is not."""
        self._core: Final = core
        self._may_compare: Final = core.router.retained.order.is_on
        self._loop_driver: Final = loop_driver
        self._broker_id: Final = broker_id
        self._tls: Final = tls
        self._unusable: Final = unusable
        self._on_state: Final = on_state
        self._loop: Final = asyncio.get_running_loop()
        self._version: Final = options.wire_version
        self._says_bridge = self._version != V5
        self._quotas: Final = _quotas(options, self._loop.time())
        self._flushed: set[int] | None = None
        """As for `Relay`."""
        self._contents: Final[dict[int, int]] = {}
        """As for `Relay`."""
        self._fail_back_s = FAIL_BACK_S
        self._short_lived: Endpoint | None = None
        """The address whose latest connection was lost within `SHORT_S`."""
        self._subscribed_at: Endpoint | None = None
        """The address at which it has subscribed since this broker started."""
        self._granted: asyncio.Future[None]
        self._last: Final = last
        self._resumed: Final = asyncio.Event()
        self._resumed.set()
        self._is_removed = False
        self._task: asyncio.Task[None] | None = None
        self._change: Final = asyncio.Lock()
        """Held by `stop`, `pause` and `resume`, so that there is one task."""

    @property
    def client_id(self) -> str:
        """The client identifier of its session here."""
        return CLIENT_ID_PREFIX + self.options.name

    @property
    def remote_client_id(self) -> str:
        """Its client identifier at the other broker."""
        return self.options.client_id or f"{self._broker_id}.{self.options.name}"

    @property
    def waiting(self) -> int:
        """Messages for the other broker that it has not acknowledged."""
        return waiting_in(self._core, self.client_id)

    def view(self) -> BridgeState:
        """How it stands now."""
        options, figures = self.options, self.figures
        return BridgeState(
            name=options.name,
            origin=self.origin,
            state=self.state,
            reason=self.reason,
            address=self.endpoint,
            addresses=tuple(without_query(each) for each in options.addresses),
            version=options.version,
            client_id=self.remote_client_id,
            since=self.since.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            waiting=self.waiting,
            sent=figures.sent,
            received=figures.received,
            sent_per_s=figures.sent_per_s,
            received_per_s=figures.received_per_s,
            filtered=figures.filtered,
            dropped=dict(figures.refused),
            connects=self.connects,
            newest_retained=self.compares,
            topics=options.topics,
        )

    # ------------------------------------------------------------------ start and stop

    def start(self) -> None:
        """Open the session here, and begin to connect. Raises `ConnectionRefusedError` if the broker has no room."""
        session = self._open(lambda: None, self.options.window, 2)
        self._flushed = None if session.session_present else set()
        session.end()
        self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Disconnect. Both sessions are kept."""
        async with self._change:
            await self._stop()

    async def remove(self) -> None:
        """Disconnect, and end both sessions: that at the other broker only if it is connected and speaks 5.0."""
        async with self._change:
            self._is_removed = True
            await self._stop()
        end_session(self._core, self._loop_driver, self.client_id)

    def _refuse_removed(self) -> None:
        if self._is_removed:
            raise KeyError(self.options.name)

    async def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    async def pause(self) -> None:
        """Disconnect until `resume`. Messages wait in the session here. Raises `KeyError` if it is removed."""
        async with self._change:
            self._refuse_removed()
            self._resumed.clear()
            await self._stop()
            self._set_state("paused", "It was paused.")
            self._task = self._loop.create_task(self._run())

    async def resume(self) -> None:
        """Connect now, whatever the bridge waits for. Raises `KeyError` if it is removed."""
        async with self._change:
            self._refuse_removed()
            if self.state == "connected":
                return
            self._resumed.set()
            await self._stop()
            self.has_tried = False
            self._set_state("away", "It connects now.")
            self._task = self._loop.create_task(self._run(is_asked=True))

    def _open(self, on_readable: Callable[[], None], window: int, maximum_qos: int) -> LocalSession:
        """Connect to this broker, with the subscriptions of the configuration and no others."""
        session = LocalSession(self._core, self._loop_driver, on_readable, "bridge", "local", self.options.name)
        client = LocalClient(
            client_id=self.client_id,
            clean_start=False,
            session_expiry_s=NEVER_EXPIRES,
            is_trusted=True,
            hears_program=True,
            quotas=self._quotas,
        )
        session.connect(client, window)
        if session.source is not None:
            session.source.dates_retained = self.compares
        out = [each for each in self.options.topics if each.goes_out]
        kept = {each.local_filter.encode() for each in out}
        stale = [each for each in session.filters if each not in kept]
        if stale:
            session.unsubscribe(stale)
        for where, topics in _by_filter(out):
            session.subscribe([_request(each, each.local_filter, maximum_qos) for each in topics], where or None)
        return session

    # ------------------------------------------------------------------ connections

    async def _run(self, *, is_asked: bool = False) -> None:
        options = self.options
        backoff = Backoff(min(MIN_DELAY_S, options.max_delay_s), options.max_delay_s)
        await self._resumed.wait()
        if self._unusable:
            self._set_away(self._unusable)
            return
        while True:
            if options.start == "lazy" and not is_asked:
                await self._until_messages_wait()
            is_asked = False
            began = self._loop.time()
            comes_back = False
            try:
                joined = await self._dial()
                began = self._loop.time()
                await self._stay(joined)
                continue
            except (MqttError, ConnectionRefusedError) as error:
                comes_back = isinstance(error, ComesBack)
                why = str(error)
            except Exception as error:
                _log.exception("bridge %s: an attempt failed", options.name)
                why = f"An attempt failed with {type(error).__name__}: {error}"
            self._set_away(why)
            backoff.on_lost(self._loop.time() - began)
            if options.start == "once" and not comes_back:
                self._set_state("idle", f"{self.reason} It connects once: mqttlite bridge resume {options.name}.")
                return
            await asyncio.sleep(backoff.next_s(random.random()))

    async def _until_messages_wait(self) -> None:
        if not self.waiting:
            self._set_state("idle", "No messages wait.")
        while not self.waiting:
            await asyncio.sleep(LOOK_S)

    async def _dial(self) -> _Joined:
        """Connect to the first address that answers. Raises the error of the last one."""
        error: MqttError = ConnectError("No address was tried.")
        for endpoint in sorted(self.options.endpoints, key=lambda each: each == self._short_lived):
            try:
                return await self._dial_one(endpoint)
            except MqttError as failure:
                error = failure
        raise error

    async def _dial_one(self, endpoint: Endpoint) -> _Joined:
        if self._says_bridge:
            try:
                return await self._connect(endpoint, is_bridge=True)
            except ConnectRefused as error:
                if error.reason_code != _NOT_THIS_LEVEL:
                    raise
            except ConnectError as error:
                if not isinstance(error.__cause__, ConnectionLost):
                    raise
            # A broker that does not know the bit of a bridge refuses the level, or closes the connection.
            found = await self._connect(endpoint, is_bridge=False)
            self._says_bridge = False
            _log.warning(
                "bridge %s: the other broker takes no bridge bit, so messages of topics in both directions come back "
                "here once; MQTT 5.0 has no such limit",
                self.options.name,
            )
            return found
        return await self._connect(endpoint, is_bridge=False)

    async def _connect(self, endpoint: Endpoint, *, is_bridge: bool) -> _Joined:
        options, is_v5 = self.options, self._version == V5
        tls = options.tls
        dialled = Options(
            hostname=endpoint.host,
            port=endpoint.port,
            transport="websocket" if endpoint.path else "tcp",
            path=endpoint.path or "/",
            client_id=self.remote_client_id,
            clean_start=False,
            session_expiry_interval=options.session_expiry_s if is_v5 else None,
            username=options.username,
            password=options.password,
            keep_alive=options.keep_alive_s,
            version=options.version,
            is_bridge=is_bridge,
            tls=self._tls if endpoint.is_tls else None,
            server_hostname=None if isinstance(tls, bool) else tls.server_name,
            receive_maximum=min(options.window, self._core.limits.receive_maximum) if is_v5 else None,
            max_packet_size=self._largest_packet() if is_v5 else None,
            properties=Properties(user_properties=[(PUBLISHED, "1")])
            if is_v5 and self._core.router.retained.order.is_on
            else NONE,
        )
        connection, connack = await dial(dialled, self.remote_client_id, clean_start=False)
        return _Joined(connection, connack, endpoint)

    def _largest_packet(self) -> int:
        """What the other broker may send, so that it has room here also under a longer prefix."""
        longer = max(
            (
                len(each.local_prefix.encode()) - len(each.remote_prefix.encode())
                for each in self.options.topics
                if each.comes_in
            ),
            default=0,
        )
        limit = self._core.limits.max_packet_bytes
        return limit if longer <= 0 else max(LEAST_PACKET_BYTES, limit - longer - 1)

    async def _stay(self, joined: _Joined) -> None:
        """Join the connection to the session here, until it ends. Raises why it ended, and nothing if a lazy bridge
        ended it."""
        connection, connack, endpoint = joined
        limits = ServerLimits.of(connack)
        wrong = [each for each in self.options.topics if each.goes_out and each.qos > limits.maximum_qos]
        if wrong:
            why = ConnectError(f"The other broker takes at most QoS {limits.maximum_qos}: lower the qos of the topics.")
            await self._close(connection, why)
            raise why
        is_same = self._last.endpoint == endpoint
        self.compares = self._may_compare and asks_for_order(connack.properties)
        if not connack.session_present:
            self._flushed = None
        elif not is_same:
            self._flushed = set()
        relay = Relay(
            options=self.options,
            connection=connection,
            limits=limits,
            broker_id=self._broker_id,
            figures=self.figures,
            flushed=self._flushed,
            contents=self._contents,
            max_packet_bytes=self._core.limits.max_packet_bytes,
            compares=self.compares,
            on_suback=self._on_suback,
            retry_s=RETRY_S,
        )
        try:
            session = self._open(relay.wake, min(self.options.window, limits.receive_maximum), limits.maximum_qos)
        except ConnectionRefusedError:
            await self._close(connection, ConnectionLost("This broker refused the session of the bridge."))
            raise
        self._last.endpoint = endpoint
        began = self._loop.time()
        try:
            relay.join(session, must_forget=not connack.session_present or not is_same)
            granted = self._subscribe(connection, session, endpoint, connack)
            keep_alive_s = connack.properties.server_keep_alive
            connection.start(
                *(relay, relay.wake, self.options.keep_alive_s if keep_alive_s is None else keep_alive_s, TIMEOUT_S)
            )
            answers: set[asyncio.Future[Any]] = {granted, connection.closed}
            await asyncio.wait(answers, timeout=TIMEOUT_S, return_when=asyncio.FIRST_COMPLETED)
            if not granted.done() and not connection.closed.done():
                connection.abort(ConnectionLost("The other broker did not answer SUBSCRIBE."))
            self.endpoint = str(endpoint)
            if not connection.closed.done():
                self.connects += 1
                self._last.keep()
                self._set_state("connected", self._refused_there())
                await self._until_over(relay, connection, endpoint)
        finally:
            lasted_s = self._loop.time() - began
            self._short_lived = endpoint if lasted_s < SHORT_S else None
            if endpoint == self.options.endpoints[0] and lasted_s >= FAIL_BACK_S:
                self._fail_back_s = FAIL_BACK_S
            self.endpoint = ""
            relay.stop()
            await self._close(connection, ConnectionLost("The bridge stopped."))
        if self.state != "idle":
            raise connection.closed.result()

    async def _until_over(self, relay: Relay, connection: Connection, endpoint: Endpoint) -> None:
        """Wait for the end of a connection, or for a reason to end it."""
        looked_at = self._loop.time()
        is_first = endpoint == self.options.endpoints[0]
        while not connection.closed.done():
            limit_s = LOOK_S if self.options.start == "lazy" or not is_first else None
            await asyncio.wait({connection.closed}, timeout=limit_s)
            now = self._loop.time()
            is_quiet = now - relay.last_active >= self.options.idle_timeout_s and not self.waiting
            if self.options.start == "lazy" and is_quiet:
                self._set_state("idle", f"No message came for {self.options.idle_timeout_s:g} s.")
                return
            if not is_first and now - looked_at >= self._fail_back_s:
                looked_at = now
                if await _answers(self.options.endpoints[0]):
                    self._fail_back_s = min(2 * self._fail_back_s, MAX_FAIL_BACK_S)
                    connection.close(ComesBack("The first address answers again."), Disconnect())

    async def _close(self, connection: Connection, why: MqttError) -> None:
        """Say goodbye and close. The other broker keeps the session, unless the bridge is removed."""
        properties = Properties(session_expiry_interval=0) if self._is_removed and self._version == V5 else NONE
        connection.close(why, Disconnect(0, properties))
        done, _waiting = await asyncio.wait({connection.closed}, timeout=CLOSE_S)
        if not done:
            connection.abort(why)

    def _subscribe(
        self, connection: Connection, session: LocalSession, endpoint: Endpoint, connack: Connack
    ) -> asyncio.Future[None]:
        """Subscribe at the other broker, unless it was done in the session that it has kept: before 5.0 all retained
        messages would come again. The result is done with the answer."""
        granted = self._granted = self._loop.create_future()
        self._asked.clear()
        into = [each for each in self.options.topics if each.comes_in]
        if not into or (connack.session_present and self._subscribed_at == endpoint):
            granted.set_result(None)
        else:
            self._subscribed_at = endpoint
            self._refused.clear()
            free = (each for each in range(65_535, 0, -1) if not session.uses(each))
            for (where, topics), packet_id in zip(_by_filter(into), free, strict=False):
                self._asked[packet_id] = [each.remote_filter for each in topics]
                requests = tuple(_request(each, each.remote_filter, 2) for each in topics)
                # A broker that knows filters then sends less. What comes is filtered here, too.
                properties = (
                    Properties(user_properties=[(FILTER_PROPERTY, where)]) if where and self._version == V5 else NONE
                )
                connection.write(encode(Subscribe(packet_id, requests, properties), self._version))
        return granted

    def _on_suback(self, packet_id: int, codes: bytes) -> None:
        for topic_filter, code in zip(self._asked.pop(packet_id, []), codes, strict=False):
            if code >= SUBACK_FAILURE:
                said = describe(code) if self._version == V5 else "no reason in 3.1.1"
                self._refused.append(f"{topic_filter!r} ({said})")
                _log.warning(
                    "bridge %s: the other broker refused the subscription to %r: %s",
                    *(self.options.name, topic_filter, said),
                )
        if not self._asked and not self._granted.done():
            self._granted.set_result(None)

    def _refused_there(self) -> str:
        """As a sentence; empty if there are none."""
        refused = self._refused
        more = f" and {len(refused) - MAX_SHOWN} more" if len(refused) > MAX_SHOWN else ""
        shown = ", ".join(refused[:MAX_SHOWN]) + more
        return f"The other broker refused the subscription to {shown}." if refused else ""

    def _set_away(self, why: str) -> None:
        self.has_tried = True
        self._set_state("away", why)

    def _set_state(self, state: State, reason: str) -> None:
        changed = state != self.state
        if not changed and reason == self.reason:
            return
        self.state, self.reason = state, reason
        if changed:
            self.since = datetime.now(UTC)
        if state == "connected":
            _log.info("bridge %s: connected to %s", self.options.name, self.endpoint)
        elif state == "away" and self.has_tried:
            _log.warning("bridge %s: not connected: %s", self.options.name, reason)
        else:
            _log.info("bridge %s: %s: %s", self.options.name, state, reason)
        self._on_state(self)


def _request(topic: BridgeTopic, topic_filter: str, maximum_qos: int) -> SubscriptionRequest:
    """With No Local and Retain As Published, so that a message does not come back. Retained messages come if the
    subscription is new."""
    return SubscriptionRequest(
        topic_filter.encode(),
        min(topic.qos, maximum_qos),
        no_local=True,
        retain_as_published=topic.retained or bool(topic.filter),
        retain_handling=1 if topic.retained else 2,
    )


def _by_filter(topics: Sequence[BridgeTopic]) -> list[tuple[str, list[BridgeTopic]]]:
    """The topics of each filter."""
    found: dict[str, list[BridgeTopic]] = {}
    for each in topics:
        found.setdefault(each.filter, []).append(each)
    return list(found.items())


def _quotas(options: BridgeOptions, now: float) -> Quotas | None:
    if not options.max_rate_per_s:
        return None
    return Quotas(outgoing=Rates(listener=Buckets(Rate(options.max_rate_per_s), now)))


def end_session(core: Broker, loop_driver: LinkDriver, client_id: str) -> None:
    """End the session here of a bridge that is there no more."""
    session = LocalSession(core, loop_driver, lambda: None)
    session.connect(LocalClient(client_id=client_id, is_trusted=True), 1)
    session.leave()


async def _answers(endpoint: Endpoint) -> bool:
    """Whether a server listens there."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            _reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
        writer.close()
        return True
    return False
