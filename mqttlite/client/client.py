"""The client as a program sees it: `Client`, which turns calls into packets and waits for their answers.

How it stays connected is in `line`, what outlives a connection in `session`. Invariant: every call that waits
ends, by its answer, its timeout, or the client's end.
"""

import asyncio
import math
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Final, final

from mqttlite.client import options as defaults
from mqttlite.client.aiomqtt_names import TLSParameters, either, version_of
from mqttlite.client.authentication import Authentication
from mqttlite.client.backoff import MAX_DELAY_S, MIN_DELAY_S
from mqttlite.client.errors import AnswerTimeout, MqttError, PublishRefused, PublishTimeout
from mqttlite.client.filters import with_filter
from mqttlite.client.inbox import MAX_QUEUED_MESSAGES, Inbox
from mqttlite.client.inflight import Outgoing
from mqttlite.client.line import Line
from mqttlite.client.message import SENT, Message, Payload, PublishOutcome, Will, payload_bytes
from mqttlite.client.options import Options, Transport, Version, split_server
from mqttlite.client.queue import Queue
from mqttlite.client.requests import Requests
from mqttlite.client.responder import CONCURRENCY, Handler, ReplyTo, Responder
from mqttlite.client.session import FIRST_READER_IDENTIFIER, refusal_of
from mqttlite.client.stream import Group, Since, Stream
from mqttlite.client.table import MAX_KEYS, Table
from mqttlite.client.topics import check_filter, check_name
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import publish_parts
from mqttlite.wire.packets import Disconnect, SubscriptionRequest
from mqttlite.wire.properties import NONE, Properties

_KNOWN_TOPICS: Final = 1024
"""Checked topic names that are remembered: a device publishes to few."""


@final
class Client:
    """An MQTT client, used once: `async with Client("host") as client`.

    Several host names, each as host or `host:port`, are those of servers of which one serves at a time, such as the
    machines of a cluster: each attempt to connect tries them in turn.

    With `transport="unix"` the host name is the path of a Unix socket, and `port` has no meaning.
    With `transport="websocket"`, `path` is the path of the server's URL.

    `authentication`, such as `ScramSha256(username, password)`, takes the place of user name and password (5.0).
    `client_id` "" lets the server choose. `clean_start` is also 3.1.1's clean session. `session_expiry_interval` (s),
    `receive_maximum`, `max_packet_size` and `properties` go into CONNECT (5.0). `timeout` (s) holds for connecting, for
    acknowledgements and for the answer to a ping; calls may override it. `max_inflight` bounds our unacknowledged
    messages; while `max_queued_messages` wait in `messages`, the socket is not read.

    With `reconnect`, a connection that is lost comes back after a delay that grows from `min_reconnect_delay` to
    `max_reconnect_delay`; subscriptions and unacknowledged messages come back with it. `on_connection_lost(error,
    retry_in_s)` and `on_reconnected(session_present)` tell of it. `trace` gets a line for each packet.

    `identifier`, `keepalive`, `protocol`, `tls_context` and `tls_params` are the names of aiomqtt for `client_id`,
    `keep_alive`, `version` and `tls`.

    Entering raises `ConnectError` or `ConnectRefused`; that first attempt is not repeated.
    """

    def __init__(
        self,
        hostname: str | Sequence[str],
        port: int = 1883,
        *,
        transport: Transport = "tcp",
        path: str = "/mqtt",
        client_id: str = "",
        clean_start: bool = True,
        session_expiry_interval: int | None = None,
        username: str | None = None,
        password: str | bytes | None = None,
        authentication: Authentication | None = None,
        keep_alive: int = defaults.KEEP_ALIVE_S,
        version: Version = "5.0",
        will: Will | None = None,
        tls: ssl.SSLContext | None = None,
        server_hostname: str | None = None,
        timeout: float = defaults.TIMEOUT_S,
        receive_maximum: int | None = None,
        max_inflight: int = defaults.MAX_INFLIGHT,
        max_packet_size: int | None = None,
        max_queued_messages: int = MAX_QUEUED_MESSAGES,
        properties: Properties = NONE,
        reconnect: bool = True,
        min_reconnect_delay: float = MIN_DELAY_S,
        max_reconnect_delay: float = MAX_DELAY_S,
        on_connection_lost: Callable[[MqttError, float], None] | None = None,
        on_reconnected: Callable[[bool], None] | None = None,
        trace: Callable[[str], None] | None = None,
        identifier: str | None = None,
        keepalive: int | None = None,
        protocol: int | Version | None = None,
        tls_context: ssl.SSLContext | None = None,
        tls_params: TLSParameters | None = None,
    ) -> None:
        if tls_params is not None:
            tls_context = either("tls_context", tls_params.context(), None, "tls_params", tls_context)
        further: tuple[str, ...] = ()
        if not isinstance(hostname, str):
            first, *rest = hostname or ("",)
            further = tuple(rest)
            hostname, port = split_server(first, port)
        self._options: Final = Options(
            hostname=hostname,
            port=port,
            further=further,
            transport=transport,
            path=path,
            client_id=either("client_id", client_id, "", "identifier", identifier),
            clean_start=clean_start,
            session_expiry_interval=session_expiry_interval,
            username=username,
            password=password,
            authentication=authentication,
            keep_alive=either("keep_alive", keep_alive, defaults.KEEP_ALIVE_S, "keepalive", keepalive),
            version=either("version", version, "5.0", "protocol", version_of(protocol)),
            will=will,
            tls=either("tls", tls, None, "tls_context", tls_context),
            server_hostname=server_hostname,
            timeout=timeout,
            receive_maximum=receive_maximum,
            max_inflight=max_inflight,
            max_packet_size=max_packet_size,
            max_queued_messages=max_queued_messages,
            properties=properties,
            reconnect=reconnect,
            min_reconnect_delay=min_reconnect_delay,
            max_reconnect_delay=max_reconnect_delay,
            on_connection_lost=on_connection_lost,
            on_reconnected=on_reconnected,
            trace=trace,
        )
        self._version: Final = self._options.wire_version
        self._line: Final = Line(self._options)
        self._topics: Final[dict[str, bytes]] = {}
        self._requests: Final = Requests(self, self._line.session, self._place, self._version)
        self._responders: Final[list[Responder]] = []

    def __repr__(self) -> str:
        line = self._line
        state = "ended" if line.end else "connected" if line.connection else "not connected"
        return f"Client({self._options.where}, client_id={line.client_id!r}, {state}, {len(line.inbox)} messages wait)"

    async def __aenter__(self) -> "Client":
        await self._line.open()
        try:
            for responder in self._responders:
                await self._start(responder)
        except BaseException:
            await self.disconnect()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.disconnect()

    async def disconnect(self, reason_code: int = 0, properties: Properties | None = None) -> None:
        """Say goodbye and end; a second time is harmless. What waits for an answer gets `ClientClosed`.

        `ReasonCode.DISCONNECT_WITH_WILL` asks a 5.0 server to publish the will all the same.
        """
        goodbye = Disconnect(reason_code, self._properties(properties))
        for responder in self._responders:
            await responder.stop()
        await self._line.close(goodbye)

    @property
    def client_id(self) -> str:
        """The identifier in use: ours, or the one that the server assigned."""
        return self._line.client_id

    @property
    def identifier(self) -> str:
        """The same, by the name that aiomqtt has for it."""
        return self.client_id

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._line.connection is not None

    @property
    def session_present(self) -> bool:
        """Whether the server had kept our session when we connected last."""
        return self._line.connack.session_present

    @property
    def connack_properties(self) -> Properties:
        """The properties of the server's latest CONNACK."""
        return self._line.connack.properties

    @property
    def messages(self) -> Inbox:
        """The messages of all subscriptions: `async for message in client.messages`."""
        return self._line.inbox

    async def publish(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the name that users of aiomqtt know
    ) -> PublishOutcome:
        """Publish a message.

        At QoS 0 this returns when the message is handed to the network, which waits while the network is slow or
        gone; at QoS 1 and 2 when the server has acknowledged it, in this connection or a later one. Raises
        `PublishRefused`, `PublishTimeout` or `ClientClosed`; `ValueError` for what is no message. `timeout` overrides
        the client's; `math.inf` waits for good.
        """
        if qos == 0:
            head, tail = self._parts(topic, payload, qos, retain, properties)
            line = self._line
            connection = line.connection
            if connection is None or not connection.writable:
                try:
                    async with asyncio.timeout(self._limit(timeout)):
                        connection = await line.writable()
                except TimeoutError:
                    raise PublishTimeout(self._late(f"The message to {topic!r} could not be sent", timeout)) from None
            refusal = line.limits.refusal(0, retain, len(head) + len(tail))
            if refusal is not None:
                raise PublishRefused(topic, *refusal)
            if connection.write(head + tail):
                await asyncio.sleep(0)
            return SENT
        outgoing: Outgoing[asyncio.Future[PublishOutcome]] | None = None
        try:
            async with asyncio.timeout(self._limit(timeout)):
                outgoing = await self._place(topic, payload, qos, properties, retain)
                return await outgoing.waiter
        except TimeoutError:
            raise PublishTimeout(self._late(f"The message to {topic!r} was not acknowledged", timeout)) from None
        finally:
            if outgoing is not None:
                self._line.session.window.withdraw(outgoing)

    async def submit(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 0,
        retain: bool = False,
        properties: Properties | None = None,
    ) -> asyncio.Future[PublishOutcome]:
        """Publish without waiting for the acknowledgement: only for room among the `max_inflight` messages.

        The future that it returns has what `publish` would return or raise.
        """
        if qos == 0:
            outcome: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
            outcome.set_result(await self.publish(topic, payload, 0, retain, properties, math.inf))
            return outcome
        return (await self._place(topic, payload, qos, properties, retain)).waiter

    async def subscribe(
        self,
        topic: str | Sequence[tuple[str, int]],
        qos: int = 0,
        *,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
        where: str | None = None,
        manual_ack: bool = False,
        properties: Properties | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        allow_refusal: bool = False,
    ) -> tuple[int, ...]:
        """Subscribe to a topic filter, or to several with a QoS each; the codes granted, in order.

        With `where` the broker sends only messages that pass this filter (mqttlite, 5.0; other servers send all, and a
        `Filter` can tell them apart). Raises `FilterError` for one that is wrong.

        With `manual_ack` messages of QoS 1 and 2 to these filters are acknowledged by `message.ack()`, and not as soon
        as they are in `messages`; so are those that came by another subscription too.

        Raises `SubscribeRefused` when one of them is refused, unless `allow_refusal` is set.
        """
        filters = [(topic, qos)] if isinstance(topic, str) else list(topic)
        if not filters:
            raise ValueError("no topic filter to subscribe to")
        if retain_handling not in (0, 1, 2):
            raise ValueError(f"retain_handling is {retain_handling}: it may be 0, 1 or 2")
        if self._version != V5 and (no_local or retain_as_published or retain_handling):
            raise ValueError("no_local, retain_as_published and retain_handling exist in MQTT 5.0 only")
        requests = tuple(
            SubscriptionRequest(check_filter(name), _check_qos(level), no_local, retain_as_published, retain_handling)
            for name, level in filters
        )
        given = self._properties(properties)
        if where is not None:
            if self._version != V5:
                raise ValueError("where exists in MQTT 5.0 only: ask a Filter about the messages that arrive")
            given = with_filter(given, where)
        for identifier in given.subscription_identifiers:
            if not self._line.session.may_use(identifier):
                highest = FIRST_READER_IDENTIFIER - 1
                raise ValueError(f"subscription_identifiers: {identifier} is a reader's; take one up to {highest:,}")
        self._line.check_alive()
        for name, _level in filters:  # before the first message can come
            self._line.session.receipts.keep(name, is_manual=manual_ack)
        try:
            async with asyncio.timeout(self._limit(timeout)):
                answer = await self._line.session.subscribe(requests, given)
        except TimeoutError:
            raise AnswerTimeout(self._late("SUBSCRIBE was not answered", timeout)) from None
        for (name, _level), code in zip(filters, answer.reason_codes, strict=True):
            if code >= 0x80:
                self._line.session.receipts.keep(name, is_manual=False)
        refusal = None if allow_refusal else refusal_of(requests, answer)
        if refusal is not None:
            raise refusal
        return tuple(answer.reason_codes)

    async def unsubscribe(
        self,
        topic: str | Sequence[str],
        *,
        properties: Properties | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> tuple[int, ...]:
        """Unsubscribe from one or several filters; the server's codes, of which 3.1.1 has none."""
        filters = [topic] if isinstance(topic, str) else list(topic)
        if not filters:
            raise ValueError("no topic filter to unsubscribe from")
        names = tuple([check_filter(name) for name in filters])
        self._line.check_alive()
        for name in filters:
            self._line.session.receipts.keep(name, is_manual=False)
        try:
            async with asyncio.timeout(self._limit(timeout)):
                answer = await self._line.session.unsubscribe(names, self._properties(properties))
        except TimeoutError:
            raise AnswerTimeout(self._late("UNSUBSCRIBE was not answered", timeout)) from None
        return tuple(answer.reason_codes)

    async def reauthenticate(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Prove once more who we are, on the connection that is there; messages pass meanwhile (5.0).

        Raises `DisconnectedByServer` when the server refuses, `AuthenticationFailed` when it does not prove itself.
        Whatever is raised but for a wrong use, that connection has ended.
        """
        if self._options.authentication is None:
            raise ValueError("there is no authentication to do again")
        self._line.check_alive()
        try:
            async with asyncio.timeout(self._limit(timeout)):
                await self._line.authenticate_again(self._options.authentication)
        except TimeoutError:
            raise AnswerTimeout(self._late("The authentication was not done", timeout)) from None

    def queue(self, name: str, topic_filter: str = "", *, options: Mapping[str, str] | None = None) -> Queue:
        """A consumer of the queue `name` of an mqttlite broker (5.0): `async for message in client.queue("jobs")`.

        With `topic_filter` it subscribes to `$queue/<name>/<topic_filter>`, and where there is no queue of that name
        the broker may make one, with these `options` (docs/reference/queues.md). Nothing is sent before it is used.
        """
        if self._version != V5:
            raise ValueError("queue exists in MQTT 5.0 only: subscribe to $queue/<name> with manual_ack=True")
        return Queue(self, self._line.session, name, topic_filter, options or {})

    def stream(self, name: str, topic_filter: str = "") -> Stream:
        """The stream `name` of an mqttlite broker (5.0): `async for message in client.stream("orders").read()`.

        With `topic_filter`, only messages whose topics match it. Nothing is sent before it is read. Raises `ValueError`
        for a name that no stream has.
        """
        self._check_has_streams()
        return Stream(self, self._line.session, name, topic_filter)

    def table(self, stream: str, topic_filter: str = "", *, max_keys: int = MAX_KEYS) -> Table:
        """The newest message of each key of a last-value stream of an mqttlite broker (5.0): `async with
        client.table("prices") as prices`, then `prices["price/copper"].payload`.

        With `topic_filter`, only messages whose topics match it. Nothing is sent before it is entered. Raises
        `ValueError` for a name that no stream has. More than `max_keys` keys end it with an `MqttError`.
        """
        self._check_has_streams()
        return Table(self, self._line.session, stream, topic_filter, max_keys)

    def group(
        self,
        name: str,
        stream: str,
        topic_filter: str = "",
        *,
        since: Since = "earliest",
        where: str | None = None,
    ) -> Group:
        """A member of the group `name`, which shares the partitions of a stream (5.0): `async for message in
        client.group("billing", "orders")`, with `message.commit()`.

        `since` says where the group begins if it is new: the broker keeps its positions. All members have the same
        `topic_filter` and message filter `where`. Nothing is sent before it is used.
        """
        self._check_has_streams()
        return Group(self, self._line.session, name, stream, topic_filter, since, where)

    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        qos: int = 1,
        *,
        reply_to: str | None = None,
        properties: Properties | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> Message:
        """Publish a request and wait for its answer, with Response Topic and Correlation Data (MQTT 5.0 §4.10).

        Many may wait at once. Answers come to one topic of the client's own below `reply/`, or below what the server
        tells as Response Information; `reply_to` names another. 3.1.1 needs it, for there both sides have to know the
        topic: one request waits there at a time, and an answer that is late is taken for the next one's.

        The request expires at the server after `timeout` (s), which overrides the client's. Raises `AnswerTimeout`;
        `NoResponder` where the server says that nobody is subscribed (QoS 1 and 2 with 5.0); `RequestFailed` when the
        responder says so; `PublishRefused`, `SubscribeRefused` or `ClientClosed`.
        """
        self._line.check_alive()
        limit_s = self._limit(timeout)
        try:
            async with asyncio.timeout(limit_s):
                return await self._requests.ask(topic, payload, _check_qos(qos), reply_to, properties, limit_s)
        except TimeoutError:
            raise AnswerTimeout(self._late(f"The request to {topic!r} was not answered", timeout)) from None

    def responder(
        self, topic_filter: str, *, qos: int = 1, concurrency: int = CONCURRENCY, reply_to: ReplyTo | None = None
    ) -> Callable[[Handler], Handler]:
        """Have the decorated function answer the requests to a topic filter, `concurrency` at a time.

            @client.responder("calc/+")
            async def add(request: Message) -> str: ...

        It is given the request and returns the payload of the answer, which is published to the request's Response
        Topic with its Correlation Data and QoS. `reply_to` names the topic where a request names none, as in 3.1.1; a
        request without either is handled, and not answered. A function that is no coroutine function runs in a thread.

        A handler that raises `RequestFailed("why")` has the requester raise it (5.0); another error is logged, and the
        requester told that the responder failed. A request of QoS 1 or 2 is acknowledged once the server has its
        answer, and comes again if the connection is lost before that and the session kept. With `$share/name/filter`
        several clients share the requests.

        The subscription is made when the client connects, where entering raises `SubscribeRefused`; or at once if it is
        connected, and then the client ends when it is refused.
        """
        _check_qos(qos)

        def register(handler: Handler) -> Handler:
            inbox = Inbox(self._options.max_queued_messages, self._line.take_held)
            session = self._line.session
            responder = Responder(
                self, session, inbox, topic_filter, handler, qos, concurrency, reply_to, self._version
            )
            self._responders.append(responder)
            session.take_filtered(topic_filter, inbox)
            if self._line.is_open:
                self._line.begin(self._start(responder))
            return handler

        return register

    # how

    def _check_has_streams(self) -> None:
        if self._version != V5:
            raise ValueError("streams are read so in MQTT 5.0 only: subscribe to $stream/<name>@earliest")

    async def _start(self, responder: Responder) -> None:
        responder.start()
        await self.subscribe(responder.topic_filter, responder.qos, manual_ack=True)

    def _parts(
        self, topic: str, payload: Payload, qos: int, retain: bool, properties: Properties | None
    ) -> tuple[bytes, bytes]:
        """A message as its frame, but for the packet identifier. Raises `ValueError` for what is none."""
        name = self._topics.get(topic)
        if name is None:
            name = check_name(topic)
            if len(self._topics) >= _KNOWN_TOPICS:
                self._topics.clear()
            self._topics[topic] = name
        carried = NONE if properties is None else self._properties(properties)
        if carried.topic_alias is not None:
            raise ValueError("topic_alias: this client does not use topic aliases")
        return publish_parts(name, payload_bytes(payload), _check_qos(qos), retain, carried, self._version)

    async def _place(
        self, topic: str, payload: Payload, qos: int, properties: Properties | None, retain: bool = False
    ) -> Outgoing[asyncio.Future[PublishOutcome]]:
        """Wait for room in the window and take a message of QoS 1 or 2 in."""
        head, tail = self._parts(topic, payload, qos, retain, properties)
        line = self._line
        line.check_alive()
        await line.room.acquire()
        try:
            line.check_alive()
            waiter: asyncio.Future[PublishOutcome] = asyncio.get_running_loop().create_future()
            outgoing = Outgoing(topic, head, tail, qos, retain, waiter)
            line.session.window.place(outgoing)
        except BaseException:
            line.room.release()
            raise
        line.take_held()
        return outgoing

    def _properties(self, properties: Properties | None) -> Properties:
        if properties is None or properties is NONE:
            return NONE
        if self._version != V5:
            raise ValueError(f"properties exist in MQTT 5.0 only, and version is {self._options.version}")
        return properties

    def _limit(self, timeout: float | None) -> float | None:
        """A timeout as asyncio takes it."""
        timeout = self._options.timeout if timeout is None else timeout
        return None if timeout == math.inf else timeout

    def _late(self, what: str, timeout: float | None) -> str:
        """A sentence that says which action took too long, and why, as far as the client knows."""
        line = self._line
        late = f"{what} within {self._options.timeout if timeout is None else timeout:g} s"
        if line.connection is None:
            return f"{late}: there is no connection to {self._options.where}."
        if line.connection.holding:
            return f"{late}: {len(line.inbox)} messages wait unread in client.messages, and the answer behind them."
        return f"{late} by {self._options.where}."


def _check_qos(qos: int) -> int:
    if qos not in (0, 1, 2):
        raise ValueError(f"qos is {qos!r}: it may be 0, 1 or 2")
    return qos
