"""The hall: builds the rooms, wires them, starts and stops them. The only place where rooms meet.

Invariant: what `start` began, `stop` ends, also when `start` failed half-way.
"""

import asyncio
import logging
import math
import secrets
import ssl
from functools import partial
from types import TracebackType
from typing import Final, Self

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.core.broker import Broker as Core
from mqttlite.core.connection import Connection
from mqttlite.core.effects import Authenticate
from mqttlite.core.ports import Store
from mqttlite.local_subscription import Callback, LocalSubscription, LocalSubscriptions
from mqttlite.monitor import Monitor
from mqttlite.net.endpoints import TcpEndpoint, UnixEndpoint
from mqttlite.net.link import LinkPort, about
from mqttlite.net.listeners import Listener
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.net.proxy_protocol import Proxies
from mqttlite.security.auth_chain import AuthChain
from mqttlite.security.authenticator import Authenticator, Credentials, MethodAuthenticator
from mqttlite.security.identity import identity_of
from mqttlite.security.password_file import PasswordFileError
from mqttlite.security.passwords import PasswordAuthenticator
from mqttlite.security.tls import TlsConfigError, server_context
from mqttlite.store.memory import MemoryStore
from mqttlite.telemetry.counters import Survey, Totals
from mqttlite.telemetry.dataset import Dataset
from mqttlite.telemetry.journal import Opened
from mqttlite.telemetry.observer import Observer
from mqttlite.telemetry.options import TelemetryError
from mqttlite.telemetry.pseudonyms import Pseudonyms, pseudonyms_of
from mqttlite.telemetry.rows import opened_session, session_row
from mqttlite.telemetry.sys_topics import Presence, Status
from mqttlite.telemetry.timing import TimedStore
from mqttlite.telemetry.wall import Wall
from mqttlite.wire.constants import PUBLISH, VERSION_NAMES
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.properties import NONE, Properties, encode_properties

_ABORT_S: Final = 2.0
"""How long connections that were cut off may take to be gone; a loop that turns does it at once."""

_DUMP_S: Final = 1.0
"""How long the last telemetry rows may take at least, where a stop has no time for clients."""

_TRANSPORT_NAMES: Final = {
    "tcp": "TCP",
    "tls": "TLS",
    "ws": "WebSocket",
    "wss": "WebSocket and TLS",
    "unix": "a Unix socket",
}

_DRAIN_STEP_S: Final = 0.1
"""How often a draining broker sends some clients away: spreads their reconnecting over the other servers' time."""

_log = logging.getLogger("mqttlite")


class Broker:
    """An MQTT broker in this process: `async with Broker(port=0) as broker: ...`.

    `config` says everything; `host` and `port` are a short way to one plain listener. `authenticator` is asked for
    every CONNECT and `method_authenticator` for those with an authentication method, but on listeners that have a
    password file; without any of them everybody may come in. `store` keeps sessions and retained messages; by default
    they live as long as this object.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        authenticator: Authenticator | None = None,
        method_authenticator: MethodAuthenticator | None = None,
        store: Store | None = None,
    ) -> None:
        if host is not None or port is not None:
            if config is not None:
                raise ConfigError("Broker takes a config, or a host and a port, not both")
            listener = ListenerOptions(host="127.0.0.1" if host is None else host, port=1883 if port is None else port)
            config = Config(listeners=(listener,))
        self.config: Final = Config() if config is None else config
        self.broker_id = ""
        """Names one run, from `start` to `stop`: telemetry rows of another run have another."""
        self.listeners: list[Listener] = []
        self._auth_chain: Final = AuthChain(authenticator, method_authenticator)
        self._auth_chains: dict[Listener, AuthChain] = {}
        self._passwords: Final[list[PasswordAuthenticator]] = []
        self._store: Final[Store] = MemoryStore() if store is None else store
        self._core: Core
        self._loop_driver: LoopDriver
        self.dataset: Dataset | None = None
        """Writes telemetry where the config says so."""
        self._pseudonyms = Pseudonyms()
        self._status: Status | None = None
        self._reporting: asyncio.Task[None] | None = None
        self._presence: Presence | None = None
        self.monitor: Monitor | None = None
        """Serves metrics, health and status where the config says so."""
        self._questions: Final[dict[int, asyncio.Task[None]]] = {}
        self._subscriptions: Final = LocalSubscriptions()
        self._stop: asyncio.Task[None] | None = None
        self._running = False
        self._not_ready = ""
        """Why no clients may come in, in words."""
        self._wall: Wall
        self.observer: Observer | None = None
        """Watches the core where there is a dataset or a delivery log."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def port(self) -> int:
        """The real port of the first listener."""
        return self.listeners[0].port

    async def start(self) -> None:
        """Listen. Raises `ConfigError` for TLS files that cannot be used and `OSError` for an address that cannot."""
        if self._running or self._stop is not None:
            raise RuntimeError("the broker runs already")
        loop = asyncio.get_running_loop()
        self.broker_id = secrets.token_hex(8)
        self._wall = Wall(loop.time())
        self._core = Core(self.config.limits, f"mqttlite-{self.broker_id}-", {**self.config.share_policies})
        self._core.permit_analytics(frozenset(self.config.sys.publishers))
        self._core.restore(self._store.load(), loop.time())
        metrics = self.config.metrics
        store = self._store if metrics is None else TimedStore(self._store)
        self._loop_driver = LoopDriver(
            self._core,
            store,
            on_connected=self._on_connected,
            on_closed=self._on_closed,
            on_question=self._on_question,
        )
        self._auth_chains.clear()
        self._passwords.clear()
        self.listeners = [
            self._listener(number, options, _tls_context(number, options))
            for number, options in enumerate(self.config.listeners)
        ]
        if metrics is not None and isinstance(store, TimedStore):
            self.monitor = Monitor(
                *(metrics, self.config, self._core, self._loop_driver, self.listeners, store, self.broker_id),
                lambda: self._not_ready,
            )
        self._running = True
        self._not_ready = "the broker starts"
        try:
            self._open_dataset()
            self._observe()
            if self.monitor is not None:
                self.monitor.dataset = self.dataset
                await self.monitor.start()
            self._report()
            for listener in self.listeners:
                await listener.start()
        except BaseException:
            await self.stop()
            raise
        self._not_ready = ""
        if self.monitor is not None:
            for address in self.monitor.addresses:
                _log.info("metrics, health and status are at http://%s", address)
        for listener in self.listeners:
            kind = _TRANSPORT_NAMES[listener.transport]
            for address in listener.addresses:
                _log.info("listening for MQTT over %s on %s (%s)", kind, address, listener.name)

    async def stop(self) -> None:
        """Stop accepting, say goodbye to every client (0x8B), send what is under way, end. Within `stop_timeout_s`.

        A second call waits for the first; who is cancelled while waiting does not cut the stop short.
        """
        if self._stop is None:
            if not self._running:
                return
            self._running = False
            self._not_ready = "the broker stops"
            self._stop = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._stop)

    async def reload(self) -> None:
        """Read the password files and TLS files again and log what came of it.

        A file that cannot be used is logged as an error, and the former content stays in use. Certificates are for
        handshakes that begin from now on; connections stay as they are.
        """
        for passwords in self._passwords:
            await passwords.reload()
        for number, (listener, options) in enumerate(zip(self.listeners, self.config.listeners, strict=True)):
            if options.tls is None:
                continue
            files = ", ".join(filter(None, (options.tls.cert_file, options.tls.key_file, options.tls.ca_file)))
            try:
                context = await asyncio.to_thread(_tls_context, number, options)
            except ConfigError as error:
                _log.error("%s: the certificates stay as they were: %s", listener.name, error)
                continue
            assert context is not None, "a listener with TLS options"
            listener.use_context(context)
            if self.monitor is not None:
                self.monitor.on_certificate(number, options.tls.cert_file)
            _log.info("%s: read again for new connections: %s", listener.name, files)

    async def log_status(self) -> None:
        """Log in one line how much the broker holds; the sessions are counted in slices between other work."""
        core = self._core
        survey = Survey(core, [], Totals())
        while not survey.step():
            await asyncio.sleep(0)
        _log.info(
            "status: %d connections, %d sessions, %d subscriptions, %d retained messages, %d queued messages",
            len(self._loop_driver.links),
            len(core.sessions),
            core.subscriptions + core.shared_subscriptions,
            core.router.retained,
            survey.queued,
        )

    async def drain(self) -> None:
        """Lame duck: take no new clients, send those that are here away, a few at a time, then stop.

        `lame_duck` in the config says within what time, and to which server 5.0 clients are sent (0x9C; else 0x8B).
        """
        if not self._running:
            return
        self._not_ready = "the broker sends its clients away, and stops then"
        options = self.config.lame_duck
        loop = asyncio.get_running_loop()
        for listener in self.listeners:
            await listener.stop_accepting()
        _log.info("sending %d clients away within %g s", len(self._core.connections), options.deadline_s)
        deadline = loop.time() + options.deadline_s
        while self._core.connections and self._running and loop.time() < deadline:
            steps_left = max(1, round((deadline - loop.time()) / _DRAIN_STEP_S))
            share = math.ceil(len(self._core.connections) / steps_left)
            for connection in list(self._core.connections.values())[:share]:
                self._core.send_away(connection, options.server_reference, loop.time())
            self._loop_driver.run()
            await asyncio.sleep(_DRAIN_STEP_S)
        await self.stop()

    async def _end(self) -> None:
        try:
            if self._reporting is not None:
                self._reporting.cancel()
                await asyncio.wait([self._reporting])
            try:
                async with asyncio.timeout(self.config.stop_timeout_s):
                    await self._say_goodbye()
            except TimeoutError:
                _log.warning("not all clients left within %g s: they are cut off", self.config.stop_timeout_s)
            for listener in self.listeners:
                listener.abort()
            try:
                async with asyncio.timeout(_ABORT_S):
                    await self._subscriptions.abort()
                    for listener in self.listeners:
                        await listener.emptied()
            except TimeoutError:
                _log.error("some connections could not be closed")
            self._loop_driver.run()
            await self._loop_driver.stop()
            if self.observer is not None:
                await self.observer.stop()
            if self.dataset is not None:
                await asyncio.to_thread(self.dataset.close, max(_DUMP_S, self.config.stop_timeout_s))
        finally:
            if self.monitor is not None:
                await self.monitor.stop()
            self._reporting = None
            self.monitor = None
            self.dataset = None
            self.observer = None
            self._stop = None

    async def _say_goodbye(self) -> None:
        questions = list(self._questions.values())
        for question in questions:
            question.cancel()
        for listener in self.listeners:
            await listener.stop_accepting()
        self._core.shut_down(asyncio.get_running_loop().time())
        await self._loop_driver.settled()
        for listener in self.listeners:
            await listener.emptied()
        await self._subscriptions.emptied()
        if questions:
            await asyncio.wait(questions)

    async def serve_forever(self) -> None:
        """Wait until cancelled."""
        await asyncio.get_running_loop().create_future()

    async def publish(
        self,
        topic: str,
        payload: bytes | bytearray | memoryview | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
    ) -> int:
        """Publish from inside the program; returns once it is with its receivers' sessions.

        The result is a 5.0 reason code: 0, 0x10 where nobody subscribes, 0x97 where a subscriber's queue is full.
        Raises `TopicNameInvalid` for a topic that is none, `ValueError` for a QoS that is none and for properties that
        a message may not have.
        """
        if not self._running:
            raise RuntimeError("the broker does not run")
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS is {qos}: it may be 0, 1 or 2")
        name = topic.encode()
        if len(name) > 65_535 or b"\0" in name:
            raise TopicNameInvalid("a topic name has 65535 bytes at most, and U+0000 is not among them [MQTT-4.7.3-2]")
        raw = payload.encode() if isinstance(payload, str) else bytes(memoryview(payload))
        if len(raw) > self.config.limits.max_packet_bytes:
            raise ValueError(f"payload of {len(raw)} bytes, at most {self.config.limits.max_packet_bytes} are accepted")
        if properties is not NONE:
            _check_properties(properties)
        code = self._core.publish(name, raw, qos, retain, asyncio.get_running_loop().time(), properties)
        if self._core.effects.changes:
            await self._loop_driver.settled()
        else:
            self._loop_driver.run()
            await asyncio.sleep(0)  # a program that only publishes leaves the others their turn
        return code

    def subscribe(
        self, topic_filter: str, callback: Callback | None = None, *, qos: int = 0, receive_maximum: int = 100
    ) -> LocalSubscription:
        """Subscribe from inside the program: iterate over the result, or let it call back for each message.

        `receive_maximum` is how many messages of QoS 1 and 2 may be unacknowledged; see docs/howto/embed.md. Raises
        `TopicFilterInvalid` for a filter that is none, `ValueError` for a QoS or a maximum that is none,
        `ConnectionRefusedError` when there are too many sessions, and `RuntimeError` if the broker does not run.
        """
        if not self._running:
            raise RuntimeError("the broker does not run")
        subscription = LocalSubscription(self._core, self._loop_driver, topic_filter, qos, receive_maximum)
        return self._subscriptions.begin(subscription, callback)

    # ------------------------------------------------------------------ what the rooms tell each other

    def _report(self) -> None:
        """Begin to say below `$SYS` what goes on here."""
        loop_driver, options = self._loop_driver, self.config.sys
        loop = asyncio.get_running_loop()
        self._status = None
        if options.interval_s:

            def connections() -> list[Connection]:
                return [link.connection for link in loop_driver.links.values()]

            self._status = Status(self._core, connections, loop_driver.wake, options.interval_s, loop.time())
            self._reporting = loop.create_task(self._status.run())
        self._presence = Presence(self._core, loop_driver.wake, self._wall.offset) if options.presence else None

    def _open_dataset(self) -> None:
        options = self.config.telemetry
        if options is not None:
            try:
                self._pseudonyms = pseudonyms_of(options)
                self.dataset = Dataset(options, self.broker_id)
            except TelemetryError as error:
                raise ConfigError(f"telemetry.{error.option}: {error}") from None

    def _observe(self) -> None:
        """Let the core be watched, if anybody wants to know what happens in it."""
        dataset, delivery_log, monitor = self.dataset, self.config.delivery_log, self.monitor
        if dataset is None and delivery_log is None:
            return
        self.observer = observer = Observer(
            *(self._core, self._loop_driver.links, self.broker_id, self._wall),
            clock=asyncio.get_running_loop().time,
            options=self.config.telemetry,
            write=None if dataset is None else dataset.write,
            names=self._pseudonyms,
            delivery_log_options=delivery_log,
        )
        self._loop_driver.on_written = observer.on_written
        if monitor is not None:
            monitor.latency = lambda: observer.latency
            monitor.oldest_unacknowledged_s = observer.oldest_unacknowledged_s
            monitor.why = None if observer.delivery_log is None else observer.delivery_log.why
        observer.start(sum(listener.max_connections for listener in self.config.listeners))

    def _listener(self, number: int, options: ListenerOptions, context: ssl.SSLContext | None) -> Listener:
        auth_chain = self._auth_chain_of(number, options)
        listener = Listener(
            options.title(),
            TcpEndpoint(options.host, options.port)
            if options.path is None
            else UnixEndpoint(options.path, options.mode),
            transport=options.transport(),
            websocket=options.websocket_options(),
            context=context,
            proxies=None if options.proxy_protocol is None else Proxies(options.proxy_protocol),
            max_connections=options.max_connections,
            handshake_timeout_s=options.handshake_timeout_s,
            must_authenticate=not auth_chain.is_open,
            methods=auth_chain.methods,
            capabilities=options.capabilities,
            identity_of=identity_of,
            broker=self._core,
            loop_driver=self._loop_driver,
        )
        self._auth_chains[listener] = auth_chain
        return listener

    def _auth_chain_of(self, number: int, options: ListenerOptions) -> AuthChain:
        """Who is asked on a listener."""
        path, allow_anonymous = self.config.passwords_of(options)
        if path is None:
            return self._auth_chain
        try:
            passwords = PasswordAuthenticator(path, allow_anonymous=allow_anonymous)
        except PasswordFileError as error:
            key = "password_file" if options.password_file is None else f"listeners[{number}].password_file"
            raise ConfigError(f"{key}: {error}") from None
        self._passwords.append(passwords)
        return AuthChain(passwords, passwords)

    def _on_question(self, link: LinkPort, question: Authenticate) -> None:
        auth_chains = [auth_chain for listener, auth_chain in self._auth_chains.items() if listener.holds(link)]
        if auth_chains:  # else the link is gone
            task = asyncio.get_running_loop().create_task(self._authenticate(link, auth_chains[0], question))
            self._questions[question.number] = task
            task.add_done_callback(partial(self._on_answered, question.number))

    def _on_answered(self, number: int, task: asyncio.Task[None]) -> None:
        if self._questions.get(number) is task:
            del self._questions[number]

    async def _authenticate(self, link: LinkPort, auth_chain: AuthChain, question: Authenticate) -> None:
        credentials = Credentials(
            question.client_id,
            question.username,
            question.password,
            link.connection.peer.identity,
            link.address,
            link.listener,
        )
        verdict = await auth_chain.verdict(question, credentials)
        if not self._running:
            return  # the connection has had its last word
        self._core.answer(question.number, verdict, asyncio.get_running_loop().time())
        self._loop_driver.wake()

    def _on_connected(self, link: LinkPort) -> None:
        connection = link.connection
        if self.dataset is not None:
            self.dataset.begin(self._opened(link))
        if _log.isEnabledFor(logging.INFO):
            version = VERSION_NAMES[connection.version]
            session = "session resumed" if connection.session_present else "new session"
            user = f", as {connection.username!r}" if connection.username else ""
            _log.info(
                f"{link.address} client {connection.client_id!r} connected: MQTT {version} on {link.listener}, "
                f"{session}, keep-alive {connection.keep_alive_s} s{user}",
                extra=about(link),
            )
        if self._status is not None:
            self._status.on_connected()
        if self.monitor is not None:
            self.monitor.on_connected(link)
        if self.observer is not None:
            self.observer.on_connected(link)
        if self._presence is not None:
            self._presence.on_connected(connection, link.address, link.listener, connection.connected_at)

    def _on_closed(self, link: LinkPort) -> None:
        connection = link.connection
        question = self._questions.pop(connection.number, None)
        if question is not None:
            question.cancel()  # nobody waits for it any more
        for auth_chain in self._auth_chains.values():
            auth_chain.forget(connection.number)
        if self._status is not None:
            self._status.on_closed(connection)
        if self.monitor is not None:
            self.monitor.on_closed(link)
        if self.observer is not None:
            self.observer.on_closed(link)
        if not connection.accepted:
            level = logging.DEBUG if connection.bytes_received == 0 else logging.WARNING
            detail = connection.close_detail or "the client left before CONNECT"
            what = link.address, link.listener, _printable(detail)
            fields = {**about(link)["fields"], "username": connection.username}
            claims = f" (user {connection.username!r}, client {connection.client_id!r})" if connection.version else ""
            _log.log(level, "%s on %s refused: %s%s", *what, claims, extra={"fields": fields})
            return
        if _log.isEnabledFor(logging.INFO):
            detail = f": {_printable(connection.close_detail)}" if connection.close_detail else ""
            _log.info(
                f"{link.address} client {connection.client_id!r} disconnected: {connection.close_reason}{detail}",
                extra=about(link),
            )
        if connection.drops:
            _log.warning(
                "%s client %r lost messages: %s",
                link.address,
                connection.client_id,
                ", ".join(f"{count} {reason}" for reason, count in connection.drops.items()),
                extra=about(link),
            )
        if self.dataset is not None:
            row = session_row(
                connection,
                self._opened(link),
                broker_id=self.broker_id,
                wall=self._wall.at,
                pseudonyms=self._pseudonyms,
            )
            self.dataset.write("sessions", row)
        if self._presence is not None:
            self._presence.on_disconnected(connection, link.address, link.listener, connection.ended_at)

    def _opened(self, link: LinkPort) -> Opened:
        return opened_session(
            link.connection,
            listener=link.listener,
            transport=link.transport,
            peer=link.address,
            tls_version=link.tls_version,
            tls_cipher=link.tls_cipher,
            wall=self._wall.at,
            pseudonyms=self._pseudonyms,
        )


def _check_properties(properties: Properties) -> None:
    """Raises `ValueError` for those that a message may not have, or that its receivers could not be sent."""
    if properties.topic_alias is not None or properties.subscription_identifiers:
        raise ValueError("a topic alias and subscription identifiers are for the broker to give, to each receiver")
    encode_properties(properties, PUBLISH)


def _printable(text: str) -> str:
    """What a client may have written, for a line of the log: one line, and not a long one."""
    short = text if len(text) <= 200 else f"{text[:200]}…"
    return short if short.isprintable() else repr(short)


def _tls_context(number: int, options: ListenerOptions) -> ssl.SSLContext | None:
    """What a listener speaks TLS with; None for one that does not. Raises `ConfigError` for files it cannot use."""
    try:
        return None if options.tls is None else server_context(options.tls)
    except TlsConfigError as error:
        raise ConfigError(f"listeners[{number}].tls.{error.option}: {error}") from None


def open_listeners(config: Config) -> list[ListenerOptions]:
    """The listeners that anybody on the network may use."""
    return [
        listener
        for listener in config.listeners
        if listener.path is None
        and not listener.host.startswith("127.")
        and listener.host not in ("localhost", "::1")
        and not (listener.tls is not None and listener.tls.require_client_cert)
        and config.lets_anybody_in(listener)
    ]
