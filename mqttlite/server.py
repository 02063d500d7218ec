"""The `Broker` object: start, stop, drain, reload, publish.

`assembly` builds the objects of a run. Invariant: `stop` ends everything that `start` began, even if `start` failed
half-way.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from mqttlite import event_hub
from mqttlite.assembly import Assembly
from mqttlite.assembly.extensions import Extensions
from mqttlite.config import Config, ConfigError, LameDuckOptions, ListenerOptions
from mqttlite.config.checks import conflicts
from mqttlite.core.authorizer import Authorizer
from mqttlite.core.broker import Broker as Core
from mqttlite.core.connect.connection import Connection
from mqttlite.core.ports import Store
from mqttlite.extensions.extension import Extension
from mqttlite.extensions.local_subscription import Callback, LocalSubscription, LocalSubscriptions, SubscribeOptions
from mqttlite.extensions.published import Published, check_properties
from mqttlite.gateway.metrics_port import MetricsPort
from mqttlite.net.listeners import Listener
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.net.loop_thread import LoopThread
from mqttlite.operations.admin import Admin
from mqttlite.operations.surroundings import Surroundings
from mqttlite.security.auth_chain import AuthChain
from mqttlite.security.authenticator import Authenticator, MethodAuthenticator
from mqttlite.store.memory import MemoryStore
from mqttlite.store.sqlite.store import SqliteStore
from mqttlite.telemetry.observer import Observer
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.properties import NONE, Properties

if TYPE_CHECKING:
    from mqttlite.extensions.dataset.dataset import Dataset
    from mqttlite.extensions.queues.service import Queues
    from mqttlite.extensions.schemas.service import SchemaRegistry
    from mqttlite.gateway.gateway import Gateway

_ABORT_S: Final = 2.0
"""How long aborted connections may take to be gone. An unblocked loop does it at once."""

_DUMP_S: Final = 1.0
"""The least time for the last telemetry rows, even if a stop has no time for clients."""

_DRAIN_AT_ONCE: Final = 20
"""So few clients may always connect elsewhere at once."""

_DRAIN_STEP_S: Final = 0.1
"""The interval in which a draining broker disconnects some clients, which spreads their reconnects over time."""

T = TypeVar("T")

_log = logging.getLogger("mqttlite")


class Broker:
    """An MQTT broker in this process: `async with Broker(port=0) as broker: ...`, or `with`, in a thread of its own.

    `config` has all options; `host` and `port` are a short way to one listener without TLS. On listeners for which
    `config` names no way to log in, the broker asks `authenticator` about every CONNECT, and `method_authenticator`
    about those with an authentication method; without either it accepts every client. `authorizer` decides who may
    publish and subscribe; without it every client may, except publish below `$SYS`. `store` keeps sessions and retained
    messages; by default they are in the database of `config.data_dir`, or live as long as this object where that names
    none. `extensions` are started with the broker, after those of the configuration. Raises `ConfigError` for a config
    that contradicts itself.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        authenticator: Authenticator | None = None,
        method_authenticator: MethodAuthenticator | None = None,
        authorizer: Authorizer | None = None,
        store: Store | None = None,
        extensions: Sequence[Extension] = (),
    ) -> None:
        if host is not None or port is not None:
            if config is not None:
                raise ConfigError("Broker takes a config, or a host and a port, not both")
            listener = ListenerOptions(host="127.0.0.1" if host is None else host, port=1883 if port is None else port)
            config = Config(listeners=(listener,))
        self.config: Final = Config() if config is None else config
        if problems := [str(each) for each in conflicts(self.config)]:
            raise ConfigError(*problems)
        self.broker_id: str = ""
        """Identifies one run, from `start` to `stop`; a second `start` makes a new one."""
        self.listeners: list[Listener] = []
        self.event_listeners: Final[list[event_hub.Listener]] = []
        """The program's listeners to events; add them before `start`."""
        self.tls_keylog: str | None = None
        """For debugging: a file for the keys of all TLS connections. Anybody who reads it can read their traffic.
        Set it before `start`."""
        self.surroundings: Surroundings | None = None
        """Set it before `start`."""
        self._auth_chain: Final = AuthChain(authenticator, method_authenticator)
        self._authorizer: Final = authorizer
        is_in_cluster = self.config.cluster is not None
        if store is not None and self.config.data_dir and not is_in_cluster:
            raise ConfigError("data_dir: the program gives the broker another store; one of both")
        if store is None and is_in_cluster:
            raise ConfigError("cluster: only `mqttlite serve` runs a broker as a machine of a cluster")
        self._extensions: Final = tuple(extensions)
        self._has_own_store: Final = store is None and bool(self.config.data_dir)
        """Whether each run opens the database of the data directory, and closes it."""
        self._store: Store = MemoryStore() if store is None else store
        self._assembly: Assembly
        self._core: Core
        self._loop_driver: LoopDriver
        self.monitor: MetricsPort | None = None
        """Serves metrics, health and status if the config has a section `metrics`."""
        self._subscriptions: Final = LocalSubscriptions()
        self._stop: asyncio.Task[None] | None = None
        self._thread: LoopThread | None = None
        """Runs the broker for programs that are not asynchronous."""
        self._running = False
        self._not_ready = ""
        """Why no clients may connect, in words."""
        self.on_reload: Callable[[], None] | None = None
        """Called for a reload request over HTTP, for example to read a configuration file. None: `reload` is called."""
        self._reloads: Final[set[asyncio.Task[None]]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    def __enter__(self) -> Self:
        """Start the broker in a thread of its own, for tests and notebooks; `run` runs coroutines there."""
        self._thread = LoopThread("mqttlite")
        try:
            self._thread.run(self.start())
        except BaseException:
            self._close_thread()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        try:
            self.run(self.stop())
        finally:
            self._close_thread()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's thread and wait for its result: `broker.run(broker.publish("a", "b"))`.

        Raises `RuntimeError` unless the broker was entered with `with`.
        """
        if self._thread is None:
            coroutine.close()
            raise RuntimeError("run is for a broker in a thread of its own: `with Broker() as broker`")
        return self._thread.run(coroutine)

    def _close_thread(self) -> None:
        thread, self._thread = self._thread, None
        assert thread is not None
        thread.close()

    @property
    def port(self) -> int:
        """The real port of the first listener, once `start` has run; 0 for a Unix socket."""
        return self.listeners[0].port

    @property
    def admin(self) -> Admin:
        """Lists and disconnects clients, ends sessions, purges queues, removes retained messages.

        It exists once `start` has run, and belongs to that run.
        """
        return self._assembly.administration.admin

    @property
    def queues(self) -> "Queues":
        """The queues of `$queue/…`; the changes that its methods make are on disk once `commit` has returned.

        It exists once `start` has run, and belongs to that run.
        """
        queueing = self._assembly.queueing
        assert queueing is not None, "this broker has no queues"
        return queueing.queues

    async def commit(self) -> None:
        """Carry out changes made with `queues`, and wait until they are on disk."""
        await self._assembly.commit()

    @property
    def gateway(self) -> "Gateway | None":
        """The HTTP gateway; None without a section `http`, and while the broker does not run."""
        return self._assembly.gateway if self._is_up else None

    @property
    def dataset(self) -> "Dataset | None":
        """The telemetry writer; None without a section `telemetry`, and while the broker does not run."""
        return self._assembly.telemetry.tracing.files if self._is_up else None

    @property
    def observer(self) -> Observer | None:
        """The tracer of messages; None without telemetry and delivery log, and while the broker does not run."""
        return self._assembly.telemetry.tracing.observer if self._is_up else None

    @property
    def _is_up(self) -> bool:
        return self._running or self._stop is not None

    async def start(self) -> None:
        """Open the listeners. It may be called again after `stop`; sessions and retained messages are kept.

        Raises `ConfigError` for a file or folder that cannot be used, `OSError` for an address or data directory, and
        `RuntimeError` if the broker runs already.
        """
        if self._running or self._stop is not None:
            raise RuntimeError("the broker runs already")
        if self._has_own_store:
            self._store = SqliteStore(Path(str(self.config.data_dir)))
        try:
            self._assembly = assembly = Assembly(
                *(
                    self.config,
                    self._store,
                    self._auth_chain,
                    self._authorizer,
                    lambda: self._not_ready,
                    self._begin_reload,
                ),
                tls_keylog=self.tls_keylog,
                surroundings=self.surroundings,
                extensions=Extensions(self.config, self._extensions, self.publish, self.subscribe),
            )
        except BaseException:
            self._close_store()
            raise
        self._core, self._loop_driver = assembly.core, assembly.loop_driver
        self.broker_id, self.listeners = assembly.broker_id, assembly.listeners
        self.monitor = assembly.administration.monitor
        around = self.surroundings
        self._running = True
        self._not_ready = "the broker starts"
        try:
            await assembly.open(self.event_listeners)
        except BaseException:
            await self.stop()
            raise
        self._not_ready = ""
        if around is not None:
            around.begin(assembly.hub.on_alarm)
        assembly.log_addresses()

    def _close_store(self) -> None:
        if self._has_own_store and isinstance(self._store, SqliteStore):
            self._store.close()

    async def stop(self, within_s: float | None = None) -> None:
        """Stop to accept clients, send every client its pending bytes and a DISCONNECT (0x8B), and end.

        Clients that are not done within that time, without it `stop_timeout_s` of the config, are cut off. A second
        call waits for the first; cancelling a call does not cut the stop short; without a `start` it does nothing.
        """
        if self._stop is None:
            if not self._running:
                return
            self._running = False
            self._not_ready = "the broker stops"
            timeout_s = self.config.stop_timeout_s if within_s is None else within_s
            self._stop = asyncio.get_running_loop().create_task(self._end(timeout_s))
        await asyncio.shield(self._stop)

    async def reload(self, config: Config | None = None) -> None:
        """Read the password files, the ACL file, the keys of tokens and the TLS files again; log the result for each.

        For a file that cannot be used it logs an error and keeps the former content. New rules hold at once, also for
        clients that are connected. New certificates are used for handshakes that begin from now on; open connections
        stay, but for clients whose certificates are revoked. All these files are also read when they change, without
        this call. `acl_file`, `groups` and `topic_policies` of a `config` come in the place of those that the broker
        has.
        """
        await self._assembly.logins.reload()
        live_rules = self._assembly.permissions.live_rules
        if config is not None and self._authorizer is None:
            await live_rules.use(config.acl_file, config.topic_policies, config.groups)
        else:
            await live_rules.reload()
        await self._assembly.network.certificates.reload()

    def _begin_reload(self) -> None:
        if self.on_reload is not None:
            self.on_reload()
        elif not self._reloads:  # otherwise one is under way, and repeated requests are ignored
            task = asyncio.get_running_loop().create_task(self.reload())
            self._reloads.add(task)
            task.add_done_callback(self._reloads.discard)

    async def log_status(self) -> None:
        """Log one line with the numbers of connections, sessions, subscriptions, retained and queued messages."""
        snapshot = await self._assembly.telemetry.snapshots.take()
        _log.info(
            "status: %d connections, %d sessions, %d subscriptions, %d retained messages, %d queued messages",
            sum(snapshot.connections.values()),
            snapshot.sessions,
            snapshot.subscriptions + snapshot.shared_subscriptions,
            snapshot.retained,
            snapshot.queued,
        )

    async def drain(self, options: LameDuckOptions | None = None) -> None:
        """Stop to accept clients, disconnect the connected ones a few at a time, then stop.

        `options`, without them `lame_duck` of the config, have the time for it, and the server to which 5.0 clients
        are referred (0x9C; without one, 0x8B).
        """
        if not self._running:
            return
        self._not_ready = "the broker disconnects its clients before it stops"
        options = self.config.lame_duck if options is None else options
        loop = asyncio.get_running_loop()
        for listener in self.listeners:
            await listener.stop_accepting()
        if self._assembly.nodes is not None:
            self._assembly.nodes.locating.leave()
        _log.info("disconnecting %d clients within %g s", len(self._core.connections), options.deadline_s)
        deadline = loop.time() + options.deadline_s
        while (clients := self._clients()) and self._running and loop.time() < deadline:
            steps_left = max(1, round((deadline - loop.time()) / _DRAIN_STEP_S))
            share = max(_DRAIN_AT_ONCE, math.ceil(len(clients) / steps_left))
            for connection in clients[:share]:
                self._core.send_away(connection, options.server_reference, loop.time())
            self._loop_driver.run()
            if len(clients) > share:
                await asyncio.sleep(_DRAIN_STEP_S)
        await self.stop()

    def _clients(self) -> list[Connection]:
        """All connections but those of other nodes, which go on until the end."""
        return [each for each in self._core.connections.values() if not each.identity.is_relay]

    async def _end(self, timeout_s: float) -> None:
        assembly = self._assembly
        try:
            await assembly.close_inputs()
            questions = await self._send_away_all()
            await assembly.close_extensions()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._emptied(questions)
            except TimeoutError:
                _log.warning("closing the connections of clients that did not leave within %g s", timeout_s)
            for listener in self.listeners:
                listener.abort()
            try:
                async with asyncio.timeout(_ABORT_S):
                    if assembly.push is not None:
                        await assembly.push.abort()
                    await self._subscriptions.abort()
                    if assembly.gateway is not None:
                        await assembly.gateway.abort()
                    for listener in self.listeners:
                        await listener.emptied()
            except TimeoutError:
                _log.error("some connections could not be closed")
            await assembly.close_readers()
            self._loop_driver.run()
            await self._loop_driver.stop()
            await assembly.telemetry.close_files(max(_DUMP_S, timeout_s))
        finally:
            await assembly.close_monitor()
            await asyncio.to_thread(self._close_store)
            self.monitor = None
            self._stop = None

    async def _send_away_all(self) -> list[asyncio.Task[None]]:
        """Send every client a DISCONNECT. Return the tasks that had asked about clients, which are cancelled."""
        questions = self._assembly.questions.cancel()
        for listener in self.listeners:
            await listener.stop_accepting()
        if self._assembly.gateway is not None:
            await self._assembly.gateway.stop_accepting()
        self._core.shut_down(asyncio.get_running_loop().time())
        return questions

    async def _emptied(self, questions: list[asyncio.Task[None]]) -> None:
        """Wait until all clients have left, and the tasks have ended."""
        if self._assembly.push is not None:
            await self._assembly.push.finish()
        await self._loop_driver.settled()
        if self.surroundings is not None:
            self.surroundings.settled()
        for listener in self.listeners:
            await listener.emptied()
        await self._subscriptions.emptied()
        if self._assembly.gateway is not None:
            await self._assembly.gateway.emptied()
        if questions:
            await asyncio.wait(questions)

    async def serve_forever(self) -> None:
        """Wait until the calling task is cancelled; the broker does not stop by itself."""
        await asyncio.get_running_loop().create_future()

    async def publish(
        self,
        topic: str,
        payload: bytes | bytearray | memoryview | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
    ) -> Published:
        """Publish from inside the program; returns when the message is in the session of every receiver, and on disk
        where that is kept.

        The result is an MQTT 5.0 reason code, with the message's number and its receivers: 0 (success), 0x10 (no
        subscribers), 0x83 (the policy of the topic refuses the message), 0x99 (the payload is not what the schema of
        the topic says) or 0x97 (the queue of a receiver is full, or the message could not be retained). Raises
        `TopicNameInvalid` for an invalid topic, `ValueError` for an invalid QoS, a payload over
        `limits.max_packet_bytes` or properties that a PUBLISH cannot have, `RuntimeError` if the broker does not run,
        and `ConnectionError` if it stops before the message has its receivers.
        """
        if not self._running:
            raise RuntimeError("the broker does not run")
        if qos not in (0, 1, 2):
            raise ValueError(f"QoS is {qos}: it may be 0, 1 or 2")
        name = topic.encode()
        if len(name) > 65_535 or b"\0" in name:
            raise TopicNameInvalid("a topic name has at most 65535 bytes, and no U+0000 [MQTT-4.7.3-2]")
        raw = payload.encode() if isinstance(payload, str) else bytes(memoryview(payload))
        if len(raw) > self.config.limits.max_packet_bytes:
            raise ValueError(f"payload of {len(raw)} bytes, at most {self.config.limits.max_packet_bytes} are accepted")
        if properties is not NONE:
            check_properties(properties)
        loop = asyncio.get_running_loop()
        ticket = self._core.publish(name, raw, qos, retain, loop.time(), properties)
        await self._loop_driver.finish(ticket)
        if not ticket.tally.is_durable:
            await asyncio.sleep(0)  # let other tasks run in a program that only publishes
        return Published.of(ticket)

    @property
    def schemas(self) -> "SchemaRegistry":
        """The schema registry: in the data directory, or in memory without one. Raises `RuntimeError` if the broker
        does not run."""
        if not self._running:
            raise RuntimeError("the broker does not run")
        if self._assembly.schemas is None:
            raise RuntimeError("the broker has no schemas: their extension is not there")
        return self._assembly.schemas.registry

    def subscribe(
        self,
        topic_filter: str,
        callback: Callback | None = None,
        *,
        qos: int = 0,
        receive_maximum: int = 100,
        where: str | None = None,
        client_id: str = "",
        session_expiry_s: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> LocalSubscription:
        """Subscribe from inside the program: iterate over the result, or give a callback for each message.

        At most `receive_maximum` messages of QoS 1 and 2 are unacknowledged at a time; docs/howto/embed.md says when
        the broker acknowledges them. With `where`, only messages that pass this filter (docs/reference/filters.md).
        With `client_id` and `session_expiry_s`, the broker keeps the session, with the messages that the program has
        not handled, for that time after the subscription is closed or the broker stops; the next `subscribe` with this
        `client_id` goes on with it. With `no_local`, messages that the program publishes do not come.
        `retain_as_published` and `retain_handling` are those of MQTT 5.0.
        Raises `TopicFilterInvalid` for an invalid topic filter, `ValueError` for an invalid option,
        `SubscribeRefused` for a topic filter that a limit refuses and for a filter that is wrong,
        `ConnectionRefusedError` when there are `limits.max_sessions` sessions or the session is another user's, and
        `RuntimeError` if the broker does not run.
        """
        if not self._running:
            raise RuntimeError("the broker does not run")
        options = SubscribeOptions(
            qos=qos,
            receive_maximum=receive_maximum,
            where=where,
            client_id=client_id,
            session_expiry_s=session_expiry_s,
            no_local=no_local,
            retain_as_published=retain_as_published,
            retain_handling=retain_handling,
        )
        subscription = LocalSubscription(self._core, self._loop_driver, topic_filter, options)
        return self._subscriptions.begin(subscription, callback)
