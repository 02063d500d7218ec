"""The groups of objects of one run, in the order in which they are built, opened and closed.

`server` decides when to open and close them.
"""

import asyncio
import contextlib
import gc
import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqttlite import event_hub
from mqttlite.assembly.administration import Administration
from mqttlite.assembly.delivery import Delivery
from mqttlite.assembly.extensions import Extensions
from mqttlite.assembly.http_gateway import build_gateway
from mqttlite.assembly.logins import Logins
from mqttlite.assembly.network import Network
from mqttlite.assembly.permissions import Permissions
from mqttlite.assembly.runtime import Runtime
from mqttlite.assembly.telemetry import Telemetry
from mqttlite.config import Config, ConfigError
from mqttlite.core.authorizer import Authorizer
from mqttlite.core.namespace import RecordError
from mqttlite.core.ports import Store
from mqttlite.core.question import Authenticate, Locate
from mqttlite.event_hub import BRIDGE_AWAY, DOCUMENTS_DIFFER, NODE_AWAY
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.net.link import LinkPort
from mqttlite.operations.surroundings import Surroundings
from mqttlite.security.auth_chain import AuthChain
from mqttlite.security.topic_policies import TopicPolicies

if TYPE_CHECKING:
    from mqttlite.extensions.bridge.bridges import Bridges
    from mqttlite.extensions.nodes.blobs import Load
    from mqttlite.extensions.nodes.nodes import Nodes
    from mqttlite.extensions.nodes.shared import SharedDocuments
    from mqttlite.extensions.queues.service import Queues
    from mqttlite.extensions.schemas.schemas import Schemas
    from mqttlite.extensions.streams.archive import Archive
    from mqttlite.extensions.streams.service import Streams
    from mqttlite.extensions.streams.stream_commands import StreamCommands

_LOAD_AGE_S: Final = 5.0
"""How old the figures may be that other nodes are told: a snapshot visits all clients."""

_log = logging.getLogger("mqttlite")


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """What is restored is no garbage: to look through all of it again and again takes as long as to make it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Assembly:
    """The objects of one run. Made on the running loop; raises `ConfigError` for files that cannot be used.

    `auth_chain` is for listeners without a login method in the config. `not_ready` returns a sentence that says why no
    clients may connect. `reload` starts to read all files again. `surroundings` run around the broker, if it is not
    alone.
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
        extensions: Extensions,
        tls_keylog: str | None = None,
        surroundings: Surroundings | None = None,
    ) -> None:
        self._config: Final = config
        self._not_ready: Final = not_ready
        runtime = Runtime(
            *(config, store),
            on_connected=self._on_connected,
            authenticate=self._authenticate,
            locate=self._locate,
        )
        self._runtime: Final = runtime
        self.core: Final = runtime.core
        self.hub: Final = runtime.hub
        self.loop_driver: Final = runtime.loop_driver
        self.broker_id: Final = runtime.broker_id
        self.commit: Final = runtime.commit
        self.schemas: Final = _schemas(config)
        self.permissions: Final = Permissions(
            *(runtime, authorizer),
            may_grant_topics=not auth_chain.is_open,
            check_of=None if self.schemas is None else self.schemas.of_topics.check,
            on_changed=self._on_permissions,
            on_policies=self._on_policies,
        )
        self._delivery: Final = Delivery(runtime)
        self.queueing: Final = self._delivery.queueing
        self.push: Final = self._delivery.push
        self.streams: Final = _streams(runtime)
        self._stream_commands: Final = None if self.streams is None else _stream_commands(runtime, self.streams)
        self.bridges: Final = _bridges(runtime)
        try:
            with _no_garbage_collection():
                self.core.restore(store.load(), runtime.clock())
        except RecordError as error:
            raise ConfigError(f"data_dir: {config.data_dir}: {error}") from None
        self.nodes: Final = _nodes(runtime, None if self.queueing is None else self.queueing.queues, self.streams)
        self._archive: Final = _archive(runtime, self.streams)
        self._archiving: asyncio.Task[None] | None = None
        self._extensions: Final = extensions
        extensions.build(runtime)
        self.logins: Final = Logins(runtime, self.permissions, auth_chain)
        self.questions: Final = self.logins.questions
        self.questions.hooks = lambda: extensions.connect_hooks
        self.network: Final = Network(runtime, self.logins, tls_keylog)
        self.listeners: Final = self.network.listeners
        if self.nodes is not None:
            self.nodes.serve_at(config.listeners, self.listeners)
            self.nodes.spending.share(self.network.quotas.of_users)
        self.telemetry: Final = Telemetry(
            *(runtime, self._delivery, self.schemas, self.streams, self._archive, self.network, self._why_not_ready),
            node=self._name(surroundings),
            is_node=lambda name: self.nodes is not None and self.nodes.knows(name),
        )
        self.telemetry.reports.hook_failures = extensions.failures
        if extensions.routes is not None:
            self.telemetry.reports.of_extensions.show(BUILT_IN["routes"].figures, extensions.routes.figures)
        if self.bridges is not None:
            self.telemetry.reports.of_extensions.show(BUILT_IN["bridge"].figures, self.bridges.figures)
        if self.nodes is not None:
            self.nodes.load = self._load
        self.administration: Final = Administration(
            *(runtime, self.logins, self._delivery, self.schemas, self.streams, self.bridges, self.nodes),
            reports=self.telemetry.reports,
            reload=reload,
            surroundings=surroundings,
            gateway=lambda: self.gateway,
        )
        self.gateway: Final = build_gateway(
            *(runtime, self.schemas, self.permissions, self.logins, self.network, self.telemetry, self.administration),
            not_ready=self._why_not_ready,
            extension_pages=extensions.pages.by_name,
        )
        self.shared: Final = self._share_documents()
        if surroundings is not None:
            figures = BUILT_IN[surroundings.extension].figures
            self.telemetry.reports.of_extensions.show(figures, surroundings.values, surroundings.sys_values)
        self._watches: list[asyncio.Task[None]] = []
        """The tasks that reload changed files."""

    def _name(self, surroundings: Surroundings | None) -> str | None:
        """That of this machine of a cluster, or of this one of several nodes; None for a broker alone."""
        if surroundings is not None:
            return surroundings.machine
        return None if self.nodes is None else self.nodes.node

    def _share_documents(self) -> "SharedDocuments | None":
        """What operators change at run time is the same at all nodes. Raises `ConfigError`."""
        options, nodes = self._config.nodes, self.nodes
        if options is None or nodes is None:
            return None
        from mqttlite.extensions.nodes.connect import engine_of
        from mqttlite.extensions.nodes.shared import SharedDocuments

        documents = [self.administration.admin.shared_bans.document, *self.permissions.documents]
        documents += self.logins.password_documents.values()
        if self.schemas is not None:
            documents.append(self.schemas.registry.document)
        if self.gateway is not None:
            documents += self.gateway.documents
        shared = SharedDocuments(
            *(nodes.node, documents, engine_of(options), self._config.data_dir),
            on_alarm=partial(self._runtime.hub.on_alarm, DOCUMENTS_DIFFER),
        )
        nodes.documents = shared.states
        self.telemetry.reports.of_extensions.show(
            BUILT_IN["nodes"].figures, lambda: {**nodes.figures(), **shared.figures()}, nodes.sys_values
        )
        return shared

    async def open(self, listeners: Iterable[event_hub.Listener]) -> None:
        """Open files and sockets, and add `listeners` to the event hub. Raises `ConfigError` and `CannotListen`."""
        runtime, telemetry = self._runtime, self.telemetry
        await self.administration.open_socket()
        telemetry.tracing.open()
        own = (self.questions, self.administration.admin, *telemetry.event_listeners())
        for listener in (*own, *listeners):
            self.hub.register(listener)
        telemetry.tracing.trace()
        telemetry.on_policies(self.permissions.policies)
        runtime.lag.start()
        runtime.clock_watch.start()
        await self.administration.start_monitor()
        telemetry.start_sys_topics()
        for watch in (self.permissions.live_rules.watch(), *self.logins.watches()):
            self._watches.append(runtime.loop.create_task(watch))
        self.permissions.open(self.logins.kick, self.administration.admin.addresses_of)
        runtime.loop.run_in_executor(None, runtime.filters.prepare)
        if self.schemas is not None:
            await self.schemas.open()
        await self._extensions.start()
        if self.bridges is not None:
            self.bridges.start()
        if self.shared is not None:
            await self.shared.start()
        if self.nodes is not None:
            await self.nodes.start()
        for each in self.listeners:
            await each.start()
        if self.gateway is not None:
            await self.gateway.start()
        if self.push is not None:
            self.push.start()
        if self._archive is not None:
            self._archiving = runtime.loop.create_task(self._archive.run())
        self.network.certificates.start()
        runtime.loop_driver.commits.probe()

    def log_addresses(self) -> None:
        """Log the addresses of all listeners."""
        self.administration.log_addresses()
        if self.gateway is not None:
            for url in self.gateway.urls:
                _log.info("the HTTP gateway is at %s, its routes at %s/docs", url, url)
        if self._config.data_dir:
            sessions = len(self.core.sessions)
            _log.info("data directory: %s (%d sessions)", Path(self._config.data_dir).absolute(), sessions)
        self.network.log_addresses()

    async def close_inputs(self) -> None:
        """Close the inputs for changes, stop to reload files, and stop the broker's own messages."""
        await self.administration.close_socket()
        await self.network.certificates.stop()
        await self.telemetry.stop_publishing()
        if self._archiving is not None:
            self._watches.append(self._archiving)
        for task in self._watches:
            task.cancel()
        if self._watches:
            await asyncio.wait(self._watches)
        if self.bridges is not None:
            await self.bridges.stop()
        if self.nodes is not None:
            await self.nodes.stop()
        if self.shared is not None:
            await self.shared.stop()
        await self.permissions.close()
        if self.queueing is not None:
            await self.queueing.close_inputs()
        if self._stream_commands is not None:
            await self._stream_commands.sink.stop()

    async def close_extensions(self) -> None:
        """After the clients were sent away: a publisher is then not told that its message was refused, and sends it
        again."""
        await self._extensions.stop()

    async def close_readers(self) -> None:
        """After all connections are closed: stop to read the store and to ask other servers."""
        await self._runtime.queue_reader.stop()
        await self.logins.close()

    async def close_monitor(self) -> None:
        """Stop the metrics port and the measurements."""
        await self.administration.stop_monitor()
        await self.telemetry.stop_reports()

    async def _load(self) -> "Load":
        """What this node has to do."""
        from mqttlite.extensions.nodes.blobs import Load

        snapshot = await self.telemetry.snapshots.take(_LOAD_AGE_S)
        growth, interval_s = snapshot.growth, snapshot.interval_s
        return Load(
            *(snapshot.online, snapshot.sessions),
            received_per_s=round(growth["messages_received"] / interval_s),
            sent_per_s=round(growth["messages_sent"] / interval_s),
            is_full=self._runtime.core.sessions.is_full,
        )

    def _why_not_ready(self) -> str:
        return self._not_ready() or ("" if self.nodes is None else self.nodes.drain.not_ready)

    def _on_connected(self, link: LinkPort) -> None:
        self.network.note_connect(link)
        self.hub.on_connected(link)

    def _authenticate(self, question: Authenticate) -> None:
        self.network.authenticate(question)

    def _locate(self, question: Locate) -> None:
        assert self.nodes is not None, "only they have it asked"
        self.network.note_connect(self.loop_driver.links[question.number])
        self.nodes.locating.locate(question)

    def _on_permissions(self) -> None:
        if self.queueing is not None:
            self.queueing.queues.on_new_rules()
        if self.streams is not None:
            self.streams.on_new_rules()
        if self.nodes is not None:
            self.nodes.far.check()
        self.loop_driver.wake()

    def _on_policies(self, policies: TopicPolicies) -> None:
        self.telemetry.on_policies(policies)


def _bridges(runtime: Runtime) -> "Bridges | None":
    if "bridge" not in BUILT_IN:
        return None
    from mqttlite.extensions.bridge.bridges import Bridges

    return Bridges(
        *(runtime.config.bridges, runtime.core, runtime.loop_driver, runtime.config.data_dir),
        on_alarm=partial(runtime.hub.on_alarm, BRIDGE_AWAY),
    )


def _nodes(runtime: Runtime, queues: "Queues | None", streams: "Streams | None") -> "Nodes | None":
    """Raises `ConfigError`."""
    options = runtime.config.nodes
    if options is None:
        if "nodes" in BUILT_IN:
            from mqttlite.extensions.nodes.sessions import end_sessions_of_nodes

            end_sessions_of_nodes(runtime.core, runtime.clock())
        return None
    from mqttlite.engine.addresses import default_node
    from mqttlite.extensions.nodes.connect import carrier_of
    from mqttlite.extensions.nodes.nodes import Nodes

    node = options.node or default_node(socket.gethostname())
    return Nodes(
        *(node, options.keep_s, runtime.core, runtime.loop_driver, carrier_of(options)),
        on_alarm=partial(runtime.hub.on_alarm, NODE_AWAY),
        address=options.address,
        drain_s=runtime.config.lame_duck.deadline_s,
        is_machine=runtime.config.cluster is not None,
        features=[each for each in (queues, streams) if each is not None],
    )


def _schemas(config: Config) -> "Schemas | None":
    if "schemas" not in BUILT_IN:
        return None
    from mqttlite.extensions.schemas.schemas import Schemas

    return Schemas(config.topic_policies, config.data_dir)


def _streams(runtime: Runtime) -> "Streams | None":
    """Before the store is loaded: they take what it has of streams."""
    if "streams" not in BUILT_IN:
        return None
    from mqttlite.extensions.streams.service import Streams

    streams = Streams(runtime.core, runtime.config.streams, runtime.clock, runtime.wall.ahead_us, runtime.filters)
    runtime.core.serve(streams)
    return streams


def _stream_commands(runtime: Runtime, streams: "Streams") -> "StreamCommands":
    from mqttlite.extensions.streams.stream_commands import StreamCommands

    core = runtime.core
    commands = StreamCommands(
        *(streams, runtime.queue_reader.entries, runtime.commit, core, runtime.clock),
        wake=runtime.loop_driver.wake,
        tell=runtime.hub.on_administered,
    )
    for topic_filter in commands.sink.topic_filters:
        core.bind(topic_filter, commands.sink, hears_others=True)
    return commands


def _archive(runtime: Runtime, streams: "Streams | None") -> "Archive | None":
    """Raises `ConfigError` where this machine cannot have it."""
    options = runtime.config.stream_archive
    if streams is None or options is None:
        return None
    from mqttlite.extensions.streams.archive import Archive
    from mqttlite.extensions.streams.problems import problems

    for problem in problems(runtime.config):
        raise ConfigError(str(problem))
    entries = runtime.queue_reader.entries
    return Archive(options, streams, entries, lambda: int(runtime.utc_now().timestamp() * 1_000_000))
