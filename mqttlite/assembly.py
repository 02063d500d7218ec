"""Builds the objects of one run of a broker and connects them: the only place where the packages meet.

What a run does with them, and when, is in `server`. Invariant: before `open`, nothing here holds a file, a socket or a
thread, so that an assembly that could not be built needs no end.
"""

import asyncio
import heapq
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqttlite import event_hub
from mqttlite.admin import Admin
from mqttlite.admin_socket import AdminSocket
from mqttlite.certificate_watch import CertificateFiles, CertificateWatch
from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.config.checks import (
    api_key_file,
    http_warnings,
    is_loopback,
    is_refused,
    open_gateway,
    open_listeners,
    push_problems,
)
from mqttlite.config.login_methods import LoginMethod
from mqttlite.config.logins import logins
from mqttlite.config.quotas import BrokerQuotas
from mqttlite.core.authorizer import Authorizer, DefaultRules
from mqttlite.core.broker import Broker as Core
from mqttlite.core.ports import Store
from mqttlite.core.question import Authenticate, LoadPage, Question
from mqttlite.delivery.filters import Filters
from mqttlite.delivery.push.guard import Guard, check_push
from mqttlite.delivery.push.service import Push
from mqttlite.delivery.queues.api import QueuesApi
from mqttlite.delivery.queues.control import ACTIONS, QueueControl
from mqttlite.delivery.queues.errors import QueueRecordError
from mqttlite.delivery.queues.resources import subscription_name
from mqttlite.delivery.queues.service import Queues
from mqttlite.delivery.schemas.api import CONTENT_TYPE as REGISTRY_JSON
from mqttlite.delivery.schemas.api import RegistryApi
from mqttlite.delivery.schemas.parsing import EXTRA_MISSING, is_installed
from mqttlite.delivery.schemas.service import FILE_NAME, RegistryFileError, SchemaRegistry
from mqttlite.delivery.schemas.topic_schema import TopicSchemas
from mqttlite.event_hub import MEMORY_SHORT, PUSH_STOPPED, STORE_FAILING, CoreTracer, EventHub, NoMessages
from mqttlite.explanations import Explanations
from mqttlite.monitor import Monitor
from mqttlite.net.endpoints import TcpEndpoint, UnixEndpoint
from mqttlite.net.frame_queue import FrameQueue
from mqttlite.net.handshake_turns import HandshakeTurns
from mqttlite.net.http import JSON, Request, Response
from mqttlite.net.link import LinkPort
from mqttlite.net.listeners import Listener
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.net.memory_limit import usable_memory
from mqttlite.net.proxy_protocol import Proxies
from mqttlite.net.queue_reader import QueueReader
from mqttlite.overload_watch import OverloadWatch
from mqttlite.reports import Reports
from mqttlite.security.acl_file import AclFileError
from mqttlite.security.api_keys import ApiKeyFileError, ApiKeys
from mqttlite.security.auth_chain import AuthChain, FirstOf
from mqttlite.security.auth_questions import AuthQuestions
from mqttlite.security.authenticator import Authenticator
from mqttlite.security.both_rules import BothRules
from mqttlite.security.dynamic_security import DynamicSecurity, DynamicSecurityError, path_of
from mqttlite.security.dynamic_security.control import TOPIC as CONTROL_TOPIC
from mqttlite.security.dynamic_security.control import Port as ControlPort
from mqttlite.security.granted_topics import GrantedTopics
from mqttlite.security.http_authenticator import HttpAuthenticator, HttpAuthOptions
from mqttlite.security.identity import CertificateAuthenticator, identity_of
from mqttlite.security.jail import LoginJail
from mqttlite.security.live_rules import LiveRules
from mqttlite.security.password_file import PasswordFileError
from mqttlite.security.passwords import PasswordAuthenticator
from mqttlite.security.revocation import certificate_id
from mqttlite.security.rules import Rules
from mqttlite.security.tls import TlsConfigError, client_context
from mqttlite.security.token_keys import TokenConfigError, TokenOptions
from mqttlite.security.tokens import TokenAuthenticator
from mqttlite.security.topic_policies import TopicPolicies
from mqttlite.security.topic_records import FILE_NAME as TOPIC_FILE_NAME
from mqttlite.security.topic_records import TopicFileError, TopicRecord, policies_of
from mqttlite.security.topic_records import load as load_topics
from mqttlite.telemetry.alarms import Alarms
from mqttlite.telemetry.connection_log import ConnectionLog
from mqttlite.telemetry.counters import ConnectionCounters
from mqttlite.telemetry.dataset import Dataset
from mqttlite.telemetry.delivery_log import Options as DeliveryLogOptions
from mqttlite.telemetry.folder import make_directory
from mqttlite.telemetry.following import Following
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.observer import Observer
from mqttlite.telemetry.options import TelemetryError
from mqttlite.telemetry.presence import Presence
from mqttlite.telemetry.pseudonyms import Pseudonyms, pseudonyms_of
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.telemetry.push_figures import PushFigures
from mqttlite.telemetry.queue_figures import MAX_PUBLISHED, MAX_REPORTED, Growth, QueueFigures
from mqttlite.telemetry.recent_events import RecentEvents
from mqttlite.telemetry.rows import SessionRows
from mqttlite.telemetry.snapshot import Snapshots
from mqttlite.telemetry.sys_topics import SysTopics
from mqttlite.telemetry.timing import LoopLag, TimedStore
from mqttlite.telemetry.topic_presence import TopicPresence
from mqttlite.telemetry.wall import Wall

if TYPE_CHECKING:
    from mqttlite.gateway.gateway import Gateway

_TRANSPORT_NAMES: Final = {
    "tcp": "TCP",
    "tls": "TLS",
    "ws": "WebSocket",
    "wss": "WebSocket and TLS",
    "unix": "a Unix socket",
}

HTTP_LISTENER: Final = -1
"""The number of the gateway among the listeners: it is none of those in the config, and has no password file."""

KICKED_AT_ONCE: Final = 100
"""Connections that one iteration ends, where a change of permissions ends many."""

_log = logging.getLogger("mqttlite")


class Assembly:
    """The objects of one run. Made on the running loop; raises `ConfigError` for files that cannot be used.

    `auth_chain` is for listeners for which the config names no way to log in; `not_ready` says in a sentence why no
    clients may connect, and `reload` begins to read all files again.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        auth_chain: AuthChain,
        authorizer: Authorizer | None,
        not_ready: Callable[[], str],
        reload: Callable[[], None],
        *,
        tls_keylog: str | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._config: Final = config
        self._loop: Final = loop
        self.broker_id: Final = secrets.token_hex(8)
        self._wall: Final = Wall(loop.time())
        self.hub: Final = EventHub()
        self._filters: Final = Filters()
        limits = config.limits
        if not limits.max_memory_bytes:
            limits = replace(limits, max_memory_bytes=usable_memory() // 2)
        self.core: Final = Core(
            limits,
            f"mqttlite-{self.broker_id}-",
            {**config.share_policies},
            pages=store.pages,
            retained_expiry_s={key.encode(): seconds for key, seconds in config.retained_expiry_s.items()},
            wall_ahead_us=self._wall.ahead_us,
            filters=self._filters,
            overload_limits=config.overload,
        )
        if problems := [str(each) for each in push_problems(config)]:
            raise ConfigError(*problems)
        self._default_chain: Final = auth_chain
        self._granted_topics: GrantedTopics | None = None
        self._dynamic_security: Final = self._load_dynamic_security()
        if self._dynamic_security is not None and authorizer is not None:
            raise ConfigError("dynamic_security: the program gives the broker an authorizer; one of both")
        self._both_rules: BothRules | None = None
        self._topic_file: Final = Path(config.data_dir) / TOPIC_FILE_NAME if config.data_dir else None
        self._has_own_rules: Final = authorizer is not None
        self.topics: Final = self._load_topics()
        self.schemas: Final = _schema_registry(config)
        self._topic_schemas: Final = TopicSchemas(self.schemas)
        self.live_rules: Final = self._live_rules(authorizer)
        self._rules = self._default_rules(self._combined(self.live_rules.rules) if authorizer is None else authorizer)
        self.core.authorize(self._rules)
        self.core.permissions.on_denied = self.hub.on_denied
        self.queues: Final = Queues(
            *(self.core, config.queues, config.delivery, loop.time, self._wall.ahead_us, self._filters)
        )
        guard = Guard(config.push)
        self.queues.check_push = partial(check_push, guard)
        self._queues_api: Final = QueuesApi(self.queues, self.commit, lambda name: self.push.state(name))
        self.core.serve_queues(self.queues)
        for action in ACTIONS:
            control = QueueControl(self.queues, action)
            self.core.bind(control.topic_filter, control)
        try:
            self.core.restore(store.load(), loop.time())
        except QueueRecordError as error:
            raise ConfigError(f"data_dir: {config.data_dir}: {error}") from None
        timed_store = TimedStore(store, lambda failing, error: self.hub.on_alarm(STORE_FAILING, failing, error))
        self.loop_driver: Final = LoopDriver(
            self.core,
            timed_store,
            on_connected=self._on_connected,
            on_closed=self.hub.on_ended,
            on_question=self._on_question,
            on_memory_short=self._on_memory_short,
        )
        self.loop_driver.on_shed = self.hub.on_shed
        self.lag: Final = LoopLag(OverloadWatch(self.core, self.hub, self.loop_driver.wake, loop.time).on_lag)
        self._handshake_turns: Final = HandshakeTurns()
        self._frame_queue: Final = FrameQueue(self.core.effects, self.loop_driver.wake)
        self.questions: Final = AuthQuestions(self._answer, LoginJail(config.login_jail, self.hub.on_jailed, loop.time))
        self._queue_reader: Final = QueueReader(timed_store, self.loop_driver, self._answer)
        self.passwords: Final[list[PasswordAuthenticator]] = []
        self.tokens: Final = None if config.jwt is None else _tokens(config.jwt, loop)
        self.http_authenticator: Final = None if config.http_auth is None else _http(config.http_auth, loop)
        self._auth_chains: Final[dict[Listener, AuthChain]] = {}
        self._quotas: Final = BrokerQuotas(config.quotas, loop.time())
        self._tls_keylog: Final = tls_keylog
        self._certificate_files: Final[dict[Listener, CertificateFiles]] = {}
        self.listeners: Final = [
            self._listener(number, options, auth_chain) for number, options in enumerate(config.listeners)
        ]
        self.core.permissions.trusts_names = all(each.is_open for each in self._auth_chains.values())
        self.certificates: Final = CertificateWatch(self.core, self._certificate_files, self.loop_driver.run)
        self.counters: Final = ConnectionCounters(self.core)
        self.snapshots: Final = Snapshots(
            self.core, lambda: list(self.loop_driver.links.values()), self.counters, loop.time
        )
        self.admin: Final = Admin(
            self.core, self.loop_driver.links, self.loop_driver.run, loop.time, self._wall.at, self._queue_reader.page
        )
        self._push_latency: Final = Histogram()
        self.push: Final = Push(
            *(self.queues, guard),
            make_tls=partial(client_context, config.push.ca_file),
            committed=self.loop_driver.settled,
            wake=self.loop_driver.wake,
            clock=loop.time,
            latency=self._push_latency,
            subscription_of=subscription_name,
            on_alarm=partial(self.hub.on_alarm, PUSH_STOPPED),
        )
        self.explanations: Final = Explanations(self.core, self._logins, loop.time)
        self._admin_socket: Final = (
            AdminSocket(
                *(config.data_dir, self.admin, self.explanations, self._answerers()), tell=self.hub.on_administered
            )
            if config.data_dir
            else None
        )
        self._publish_queue: Final = PublishQueue(self.core, self.loop_driver.wake, loop.time)
        self._topic_presence: TopicPresence | None = None
        """None where no topic policy ever asked for it."""
        self.reports: Final = Reports(
            *(self.snapshots, self.listeners, self.certificates, timed_store, self.lag),
            following=Following(self._follow),
            broker_id=self.broker_id,
            not_ready=not_ready,
        )
        self.reports.schema_violations = self._topic_schemas.violations
        self._queue_growth: Final = Growth()
        self.reports.queues = self._queue_figures
        self.reports.push_latency = self._push_latency
        self.monitor: Final = None if config.metrics is None else Monitor(config.metrics, self.reports, self.admin)
        self._recent_events: Final = RecentEvents(lambda: self._wall.at(loop.time()))
        self.gateway: Final = self._gateway(not_ready, reload)
        if self.gateway is not None:
            self.reports.http = self.gateway.figures
        self._sys_topics: asyncio.Task[None] | None = None
        self._watches: list[asyncio.Task[None]] = []
        self.dataset: Dataset | None = None
        self._pseudonyms = Pseudonyms()
        self.observer: Observer | None = None
        self._follower: Observer | None = None
        """Traces what is followed at run time, where nothing else is traced."""

    # ------------------------------------------------------------------ open and close

    async def open(self, listeners: Iterable[event_hub.Listener]) -> None:
        """Open files and sockets; tell `listeners` what happens, too. Raises `ConfigError` and `CannotListen`."""
        await self._open_admin_socket()
        self._open_dataset()
        self.observer = self._observer()
        for listener in (*self._event_listeners(), *listeners):
            self.hub.register(listener)
        self._trace()
        self._tell_presence(self.live_rules.rules)
        self.lag.start()
        if self.monitor is not None:
            await self.monitor.start()
        if self._config.sys.interval_s:
            sys_topics = SysTopics(
                *(self.snapshots, self._publish_queue, self._config.sys.interval_s, self._loop.time()),
                certificates=self.certificates.ends_at,
                queues=lambda: self._queue_figures(MAX_PUBLISHED),
            )
            self._sys_topics = self._loop.create_task(sys_topics.run())
        self._watches.append(self._loop.create_task(self.live_rules.watch()))
        self._watches += [self._loop.create_task(each.watch(self._kick)) for each in self.passwords]
        if self._dynamic_security is not None:
            port = ControlPort(self._respond, self._on_dynamic_security, self._kick)
            self.core.bind(CONTROL_TOPIC, self._dynamic_security.control(port))
            self._on_dynamic_security()  # the file may have been changed while no broker ran
        self._loop.run_in_executor(None, self._filters.prepare)
        for problem in await asyncio.to_thread(self._topic_schemas.prepare):
            _log.warning("topic_policies: %s", problem)
        for each in self.listeners:
            await each.start()
        if self.gateway is not None:
            await self.gateway.start()
        self.push.start()
        self.certificates.start()

    def log_addresses(self) -> None:
        """Log where clients and people may connect."""
        if self.monitor is not None:
            for address in self.monitor.addresses:
                _log.info("metrics, health and status are at http://%s", address)
        if self.gateway is not None:
            for url in self.gateway.urls:
                _log.info("the HTTP gateway is at %s, its routes at %s/docs", url, url)
        if self._config.data_dir:
            sessions = len(self.core.sessions)
            _log.info("data directory: %s (%d sessions)", Path(self._config.data_dir).absolute(), sessions)
        for listener in self.listeners:
            kind = _TRANSPORT_NAMES[listener.transport]
            for address in listener.addresses:
                _log.info("listening for MQTT over %s on %s (%s)", kind, address, listener.name)

    async def close_admin_socket(self) -> None:
        """Let nobody change anything any more."""
        if self._admin_socket is not None:
            await self._admin_socket.stop()

    async def stop_reports(self) -> None:
        """Publish nothing more of the broker's own: what would be published now is the broker's own end. Read no more
        rules."""
        if self._topic_presence is not None:
            self._topic_presence.stop()
        tasks = [task for task in (self._sys_topics, *self._watches) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def close_commands(self) -> None:
        """Finish the commands of `$CONTROL` that are under way."""
        if self._dynamic_security is not None:
            await self._dynamic_security.stop()

    async def close_queues(self) -> None:
        """Read nothing more of long queues."""
        await self._queue_reader.stop()

    async def close_http_authenticator(self) -> None:
        """Close the connections to the server that is asked about logins."""
        if self.http_authenticator is not None:
            await self.http_authenticator.close()

    async def close_telemetry(self, within_s: float) -> None:
        """Write what is left of telemetry, once all connections are closed."""
        self._publish_queue.clear()
        self.core.watch(None)
        if self.observer is not None:
            await self.observer.stop()
        if self.dataset is not None:
            await asyncio.to_thread(self.dataset.close, within_s)

    async def close_monitor(self) -> None:
        """Serve nothing over HTTP any more."""
        if self.monitor is not None:
            await self.monitor.stop()
        self.reports.following.stop()
        self.lag.stop()
        await self.snapshots.stop()

    def _answerers(self) -> dict[str, Callable[[Request], Awaitable[Response]]]:
        """What answers on the admin socket beside `admin`, by the first level of the path."""
        queues = _queues_answerer(self._queues_api)
        registry = _registry_answerer(RegistryApi(self.schemas))
        return {"queues": queues, "snapshots": queues, "dead-letters": queues, "registry": registry}

    def _queue_figures(self, most: int = MAX_REPORTED) -> list[QueueFigures]:
        queues, now = self.queues, self._loop.time()
        names = queues.names
        self._queue_growth.keep(set(names))
        states = (queues.state(name) for name in heapq.nsmallest(most, names))
        return [
            QueueFigures(
                name=each.name,
                depth=each.depth,
                leased=each.leased,
                scheduled=each.scheduled,
                growth_per_s=self._queue_growth.note(each.name, each.depth, now),
                oldest_age_s=each.oldest_age_s,
                consumers=each.consumers,
                dead_letters=each.dead_letters,
                published=each.published,
                refused=each.refused,
                filtered=each.filtered,
                retained=each.retained,
                snapshots=each.snapshots,
                returned=each.returned,
                attempts=each.attempts,
                redeliveries=each.redeliveries,
                ends=each.ends,
                failures=each.failures,
                dead_letters_total=each.dead_letters_total,
                push=self._push_figures(each.name),
                dead_letter_causes=each.dead_letter_causes,
            )
            for each in states
        ]

    def _push_figures(self, name: str) -> PushFigures | None:
        state = self.push.state(name)
        if state is None:
            return None
        return PushFigures(state=state.state, open=state.open, window=state.window, requests=state.requests)

    async def commit(self) -> None:
        """Carry out what was changed from inside, and wait until it is committed."""
        self.loop_driver.run()
        await self.loop_driver.settled()

    async def _open_admin_socket(self) -> None:
        if self._admin_socket is not None:
            await self._admin_socket.start()

    # ------------------------------------------------------------------ listeners to events

    def _event_listeners(self) -> list[event_hub.Listener]:
        """All that hear what happens, in this order. A new one is one line here."""
        found: list[event_hub.Listener] = [self.questions, self.counters, self.admin, ConnectionLog(), self.reports]
        if self.gateway is not None:
            found.append(self._recent_events)
        if self.observer is not None:
            found.append(self.observer)
        if self.dataset is not None:
            found.append(SessionRows(self.dataset, self.broker_id, self._wall, self._pseudonyms))
        if self._config.sys.interval_s:
            found.append(Alarms(self._publish_queue, lambda: self._wall.at(self._loop.time())))
        if self._config.sys.presence:
            found.append(Presence(self.core, self._publish_queue, self._wall.offset))
        return found

    def _trace(self) -> None:
        """Have the core tell what only a tracer hears, if a listener wants it."""
        messages = self._follower if self.observer is None else self.observer
        if messages is not None or self.hub.needs_tracer:
            self.core.watch(CoreTracer(self.hub, NoMessages() if messages is None else messages))

    def _follow(self, filters: frozenset[bytes], clients: frozenset[str]) -> None:
        """Trace these filters and clients from now on; where nothing was traced, only as long as there are some."""
        if self.observer is not None:
            self.observer.follow(filters, clients)
            self.core.ask_tracer_again()
            return
        follower = self._follower = self._follower or self._new_observer(DeliveryLogOptions(sampled=False))
        follower.follow(filters, clients)
        self.hub.unregister(follower)
        if filters or clients:
            self.hub.register(follower)
            self._show(follower)
            self.core.watch(CoreTracer(self.hub, follower))
        else:
            self.core.watch(CoreTracer(self.hub, NoMessages()) if self.hub.needs_tracer else None)
            self.queues.watch(None)

    def _open_dataset(self) -> None:
        options = self._config.telemetry
        if options is not None:
            try:
                make_directory(options)
                self._pseudonyms = pseudonyms_of(options)
                self.dataset = Dataset(options, self.broker_id)
            except TelemetryError as error:
                raise ConfigError(f"telemetry.{error.option}: {error}") from None
        self.reports.dataset = self.dataset

    def _observer(self) -> Observer | None:
        """What traces messages; None where there is neither a dataset nor a delivery log."""
        delivery_log = self._config.delivery_log
        if self.dataset is None and delivery_log is None:
            return None
        observer = self._new_observer(delivery_log)
        self.reports.latency = lambda: observer.latency
        self.reports.oldest_unacknowledged_s = observer.oldest_unacknowledged_s
        self._show(observer)
        observer.start(sum(listener.max_connections for listener in self._config.listeners))
        return observer

    def _new_observer(self, delivery_log: DeliveryLogOptions | None) -> Observer:
        return Observer(
            *(self.core, self.loop_driver.links, self.broker_id, self._wall),
            clock=self._loop.time,
            options=self._config.telemetry,
            write=None if self.dataset is None else self.dataset.write,
            names=self._pseudonyms,
            delivery_log_options=delivery_log,
        )

    def _show(self, observer: Observer) -> None:
        """Tell an observer what is written and what becomes of deliveries of queues, and let it answer why."""
        self.loop_driver.on_written = observer.on_written
        self.queues.watch(observer.attempts)
        self.reports.answers = lambda: observer.answers

    def _on_memory_short(self, is_short: bool, detail: str) -> None:
        if is_short:
            _log.warning("%s are used (limits.max_memory_bytes): slow clients lose QoS 0 messages", detail)
        else:
            _log.warning("%s are used: there is enough again", detail)
        self.hub.on_alarm(MEMORY_SHORT, is_short, detail)

    # ------------------------------------------------------------------ network and security

    def _listener(self, number: int, options: ListenerOptions, default: AuthChain) -> Listener:
        auth_chain = self._auth_chain(number, options, default)
        if auth_chain.is_open and is_refused(self._config, options):
            raise ConfigError(*(str(each) for each in open_listeners(self._config)))
        name = self._config.listener_names()[number]
        files = None if options.tls is None else CertificateFiles(number, name, options, self._tls_keylog)
        listener = Listener(
            name,
            TcpEndpoint(options.host, options.port)
            if options.path is None
            else UnixEndpoint(options.path, options.mode),
            transport=options.transport(),
            websocket=options.websocket_options(),
            context=None if files is None else files.context,
            proxies=None if options.proxy_protocol is None else Proxies(options.proxy_protocol),
            max_connections=options.max_connections,
            max_half_open=options.half_open_limit(),
            handshake_timeout_s=options.handshake_timeout_s,
            must_authenticate=not auth_chain.is_open,
            methods=auth_chain.methods,
            capabilities=options.capabilities,
            mount_point=options.mount_point.encode(),
            identity_of=partial(identity_of, source=options.identity_from),
            quotas=self._quotas.of_listener(options.quotas),
            connect_limits=(options.connects or self._config.connects).limits(self._loop.time()),
            certificate_id_of=None if options.tls is None or options.tls.crl_file is None else certificate_id,
            revoked=frozenset() if files is None else files.revoked,
            broker=self.core,
            loop_driver=self.loop_driver,
            frame_queue=self._frame_queue,
            turns=self._handshake_turns,
        )
        self._auth_chains[listener] = auth_chain
        if files is not None:
            self._certificate_files[listener] = files
        return listener

    def _default_rules(self, authorizer: Authorizer | None) -> DefaultRules:
        """The rules that always hold around those of the program, and around the topics that credentials name."""
        config = self._config
        if (
            (config.jwt is not None and config.jwt.limits_topics)
            or config.http_auth is not None
            or not self._default_chain.is_open  # a program's authenticators may answer anything
        ):
            # `DefaultRules` makes two of each role
            authorizer = self._granted_topics = GrantedTopics(
                authorizer, lambda: {each.role // 2 for each in self.core.sessions.values()}
            )
        return DefaultRules(frozenset(config.sys.publishers), authorizer)

    def _auth_chain(self, number: int, options: ListenerOptions, default: AuthChain) -> AuthChain:
        """The authenticators of a listener."""
        methods = self._config.login_methods(options)
        if not methods:
            return default if options.authentication is None else AuthChain()
        passwords = self._passwords(number, options) if "password" in methods else None
        known: dict[LoginMethod, Authenticator | None] = {
            "password": passwords,
            "jwt": self.tokens,
            "dynamic_security": None if self._dynamic_security is None else self._dynamic_security.authenticator,
            "http": self.http_authenticator,
            "certificate": CertificateAuthenticator(),
        }
        asked = [each for each in (known[method] for method in methods) if each is not None]
        return AuthChain(FirstOf(asked), passwords, allow_anonymous=self._config.passwords_of(options)[1])

    def _gateway(self, not_ready: Callable[[], str], reload: Callable[[], None]) -> "Gateway | None":
        """The gateway, where the config has a section for it. Raises `ConfigError`."""
        config = self._config
        listener = config.http_listener()
        if config.http is None or listener is None:
            return None
        try:
            from mqttlite.gateway.context import GatewayContext  # needs the extra
            from mqttlite.gateway.gateway import Gateway
            from mqttlite.gateway.open_sessions import OpenSessions
            from mqttlite.gateway.topics import Topics
        except ImportError as error:
            name = (error.name or "").partition(".")[0]
            raise ConfigError(
                f"http: {name} is missing, which the gateway needs: pip install 'mqttlite[gateway]'"
            ) from None
        try:
            api_keys = ApiKeys(api_key_file(config), clock=self._loop.time)
        except ApiKeyFileError as error:
            raise ConfigError(f"http.api_key_file: {error}") from None
        auth_chain = self._auth_chain(HTTP_LISTENER, listener, self._default_chain)
        if auth_chain.is_open and (problems := [str(each) for each in open_gateway(config, bool(api_keys))]):
            raise ConfigError(*problems)
        may_be_anonymous = config.passwords_of(listener)[1] or (auth_chain.is_open and is_loopback(listener.host))
        for sentence in http_warnings(config, not may_be_anonymous):
            _log.warning("%s", sentence)
        return Gateway(
            GatewayContext(
                options=config.http,
                config=config,
                broker_id=self.broker_id,
                core=self.core,
                admin=self.admin,
                snapshots=self.snapshots,
                reports=self.reports,
                recent_events=self._recent_events,
                user_names=self._user_names,
                hub=self.hub,
                loop_driver=self.loop_driver,
                live_rules=self.live_rules,
                listeners=self.listeners,
                certificates=self.certificates,
                api_keys=api_keys,
                schemas=self.schemas,
                queues=self.queues,
                queues_api=self._queues_api,
                sessions=OpenSessions(),
                topics=Topics(
                    *(self.topics, self._topic_file),
                    None if self._has_own_rules else self.live_rules,
                ),
                login=partial(self.questions.login, chain=auth_chain),
                must_log_in=not may_be_anonymous,
                is_local=is_loopback(listener.host),
                quotas=self._quotas.of_listener(None),
                clock=self._loop.time,
                wall=self._wall.at,
                explanations=self.explanations,
                reload=reload,
                passwords=self.passwords,
                dynamic_security=self._dynamic_security,
                not_ready=not_ready,
            )
        )

    async def _user_names(self) -> set[str]:
        """The users that are known by name, wherever they are kept."""
        found: set[str] = set()
        for passwords in self.passwords:
            found |= (await passwords.users()).names()
        if self._dynamic_security is not None:
            found |= set(self._dynamic_security.rules.state.clients)
        rules = self.live_rules.rules
        if rules is not None:
            found |= rules.user_names()
        return found

    def _logins(self, user: str | None) -> Iterable[str]:
        """What each listener says to a user."""
        return logins(self._config, user, self._knows)

    def _knows(self, listener: ListenerOptions, method: LoginMethod, user: str) -> bool:
        if method == "dynamic_security":
            return self._dynamic_security is not None and self._dynamic_security.authenticator.knows(user)
        path, _ = self._config.passwords_of(listener)
        return path is not None and any(each.path == Path(path) and each.knows(user) for each in self.passwords)

    def _passwords(self, number: int, options: ListenerOptions) -> PasswordAuthenticator:
        path, _ = self._config.passwords_of(options)
        assert path is not None, "what the checks of the config find"
        try:
            passwords = PasswordAuthenticator(path, cache_s=self._config.password_cache_s)
        except PasswordFileError as error:
            key = "password_file" if options.password_file is None else f"listeners[{number}].password_file"
            raise ConfigError(f"{key}: {error}") from None
        self.passwords.append(passwords)
        return passwords

    def _live_rules(self, authorizer: Authorizer | None) -> LiveRules:
        config = self._config
        if authorizer is not None and config.has_rules:
            option = "topic_policies" if config.acl_file is None else "acl_file"
            raise ConfigError(f"{option}: the program gives the broker an authorizer; one of both")
        try:
            return LiveRules(
                *(config.acl_file, config.topic_policies, config.groups),
                on_rules=self._on_rules,
                roles_in_use=self._roles_in_use,
                max_roles=2 * config.limits.max_sessions,
                topics=[] if self._has_own_rules else policies_of(self.topics),
                check_of=self._topic_schemas.check,
            )
        except AclFileError as error:
            raise ConfigError(*(f"acl_file: {problem}" for problem in error.problems)) from None

    def _load_topics(self) -> list[TopicRecord]:
        """The topics that somebody made. Raises `ConfigError` for a file that cannot be used."""
        try:
            topics = load_topics(self._topic_file)
        except TopicFileError as error:
            raise ConfigError(f"data_dir: {error}") from None
        if self._has_own_rules and policies_of(topics):
            _log.warning("%s: its permissions do not hold, for other rules are in force", self._topic_file)
        return topics

    def _roles_in_use(self) -> set[int]:
        """The roles of the rules that sessions have."""
        numbers = self._config_roles_in_use()
        return numbers if self._both_rules is None else self._both_rules.roles_of_second(numbers)

    def _config_roles_in_use(self) -> set[int]:
        """The roles of what the configuration says that sessions have."""
        numbers = {session.role // 2 for session in self.core.sessions.values()}  # `DefaultRules` makes two of each
        return numbers if self._granted_topics is None else self._granted_topics.rules_roles(numbers)

    def _combined(self, rules: Rules | None) -> Authorizer | None:
        """The rules of files and policies, beside those of dynamic security if there are any."""
        self._both_rules = None
        if self._dynamic_security is None:
            return rules
        if rules is None:
            return self._dynamic_security.rules
        self._both_rules = BothRules(
            *(self._dynamic_security.rules, rules, self._config_roles_in_use, 2 * self._config.limits.max_sessions)
        )
        return self._both_rules

    def _on_rules(self, rules: Rules | None) -> None:
        self._rules = self._default_rules(self._combined(rules))
        self.core.authorize(self._rules)
        self.queues.on_new_rules()
        self._tell_presence(rules)
        self.loop_driver.wake()

    def _tell_presence(self, rules: Rules | None) -> None:
        """Tell who subscribes to the topics whose policies ask for it, from the first such policy on."""
        policies = TopicPolicies() if rules is None else rules.policies
        if self._topic_presence is None:
            if not policies.ask_for_presence:
                return
            self._topic_presence = TopicPresence(
                *(self.core, self._publish_queue, policies, self._loop.time, self._wall.at)
            )
            self.hub.register(self._topic_presence)
            self._trace()
            self.reports.presence = self._topic_presence.figures
        self._topic_presence.on_policies(policies)

    def _load_dynamic_security(self) -> DynamicSecurity | None:
        options = self._config.dynamic_security
        path = None if options is None else path_of(options, self._config.data_dir)
        if options is None:
            return None
        if path is None:
            raise ConfigError("dynamic_security.file is missing, and so is data_dir: name a file, or a data directory")
        try:
            return DynamicSecurity(path)
        except DynamicSecurityError as error:
            raise ConfigError(f"dynamic_security.file: {error}") from None

    def _on_dynamic_security(self) -> None:
        """Its users, groups or roles are others."""
        self.core.authorize(self._rules)
        self.core.check_subscriptions()
        self.queues.on_new_rules()
        self.loop_driver.wake()

    def _respond(self, client_id: str, topic: bytes, payload: bytes) -> bool:
        sent = self.core.send(client_id, topic, payload, self._loop.time())
        self.loop_driver.wake()
        return sent

    async def _kick(self, users: frozenset[str | None]) -> None:
        """End the connections of these users, some at a time; those of the program have no user and stay."""
        await self.loop_driver.settled()  # the response is written before its client's connection ends
        found = [
            link.connection.client_id
            for link in self.loop_driver.links.values()
            if link.connection.username in users and not link.connection.peer.is_trusted
        ]
        for number, client_id in enumerate(found, 1):
            self.core.kick(client_id, self._loop.time())
            if number % KICKED_AT_ONCE == 0:
                self.loop_driver.run()
                await asyncio.sleep(0)
        self.loop_driver.wake()

    def _on_connected(self, link: LinkPort) -> None:
        self._note_connect(link)
        self.hub.on_connected(link)

    def _note_connect(self, link: LinkPort) -> None:
        for listener in self.listeners:
            listener.note_connect(link)

    def _on_question(self, question: Question) -> None:
        if isinstance(question, LoadPage):
            self._queue_reader.read(question)
            return
        assert isinstance(question, Authenticate)
        link = self.loop_driver.links[question.number]
        self._note_connect(link)
        for listener, auth_chain in self._auth_chains.items():
            if listener.holds(link):  # else the link is gone
                self.questions.ask(link, question, auth_chain)

    def _answer(self, question_id: int, answer: object) -> None:
        self.core.answer(question_id, answer, self._loop.time())
        self.loop_driver.wake()


def _schema_registry(config: Config) -> SchemaRegistry:
    """Raises `ConfigError` for a file that cannot be used, and for topics with schemas that cannot be checked."""
    for number, policy in enumerate(config.topic_policies):
        if policy.schema and not is_installed():
            raise ConfigError(f"topic_policies[{number}].schema: {EXTRA_MISSING}")
    try:
        return SchemaRegistry(Path(config.data_dir, FILE_NAME) if config.data_dir else None)
    except RegistryFileError as error:
        raise ConfigError(f"data_dir: {error}") from None


def _queues_answerer(api: QueuesApi) -> Callable[[Request], Awaitable[Response]]:
    """Answers the requests for queues and dead letters."""

    async def answer(request: Request) -> Response:
        found = await api.answer(request.method, request.segments, request.query, request.body)
        return Response(found.status, found.body, JSON)

    return answer


def _registry_answerer(api: RegistryApi) -> Callable[[Request], Awaitable[Response]]:
    """Answers the requests below one path as the registry does."""

    async def answer(request: Request) -> Response:
        found = await api.answer(request.method, request.segments[1:], request.query, request.body)
        return Response(found.status, found.body, REGISTRY_JSON)

    return answer


def _tokens(options: TokenOptions, loop: asyncio.AbstractEventLoop) -> TokenAuthenticator:
    """Raises `ConfigError` for a file that cannot be used."""
    try:
        return TokenAuthenticator(options, loop_time=loop.time)
    except TokenConfigError as error:
        raise ConfigError(f"jwt.{error.option}: {error}") from None


def _http(options: HttpAuthOptions, loop: asyncio.AbstractEventLoop) -> HttpAuthenticator:
    """Raises `ConfigError` for a file that cannot be used."""
    try:
        return HttpAuthenticator(options, loop_time=loop.time)
    except TlsConfigError as error:
        raise ConfigError(f"http_auth.ca_file: {error}") from None
