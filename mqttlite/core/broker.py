"""The broker: the inputs of the core, and the parts that handle them.

The inputs are `open feed close · publish · answer tick`, with `block` and `unblock` for a link's back-pressure and
`shut_down`; the output is `effects`. Follow a message: `feed` → `PacketLoop.walk` → `PacketHandler.publish_in_place` →
`Router.run`. Invariant: a `PeerError` ends the connection that caused it and reaches no other.
"""

from collections.abc import Callable, Iterable
from typing import Final, final

from mqttlite.core.authentication import Grants
from mqttlite.core.authorizer import Authorizer
from mqttlite.core.changes import Change
from mqttlite.core.connect.admission import Admission
from mqttlite.core.connect.closing import Closing
from mqttlite.core.connect.connecting import Connecting
from mqttlite.core.connect.connection import CLOSED, NOTHING, Connection, Peer
from mqttlite.core.deadlines import Deadlines
from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.hook import HookAnswer, HookFinder, SubscriptionHook
from mqttlite.core.inbound.back_pressure import BackPressure
from mqttlite.core.inbound.held_message import HeldMessage
from mqttlite.core.inbound.inbound import Inbound, Ticket
from mqttlite.core.inbound.packet_handler import PacketHandler
from mqttlite.core.inbound.packet_loop import PacketLoop
from mqttlite.core.interest import HeldSuback, Interest
from mqttlite.core.jobs import Jobs
from mqttlite.core.limits import (
    CHUNK_BYTES_PER_WORK_UNIT,
    DEADLINE_WORK,
    ITERATION_WORK,
    LONG_PACKET_BYTES,
    MAX_PENDING_BYTES,
    SMALLEST_PUBLISH_BYTES,
    Limits,
    OverloadLimits,
)
from mqttlite.core.load.overload import Overload
from mqttlite.core.load.rate_limits import Buckets
from mqttlite.core.load.throttling import Throttling
from mqttlite.core.memory import CONNECTION_BYTES
from mqttlite.core.message import Delivery, Message
from mqttlite.core.message_filter import FilterCompiler, NoFilters
from mqttlite.core.namespace import Namespace
from mqttlite.core.ports import BanOf
from mqttlite.core.questions import Questions
from mqttlite.core.reasons import CloseReason
from mqttlite.core.restore import restore
from mqttlite.core.retained.expiry_caps import ExpiryCaps
from mqttlite.core.retained.retained_store import RetainedStore
from mqttlite.core.route.delayed_messages import DelayedMessages
from mqttlite.core.route.due_messages import DueMessages
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.plan import Planner
from mqttlite.core.route.relayed import RETAINED_COPY
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.subscribe import Subscriptions, suback
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.route.subscription_check import SubscriptionCheck
from mqttlite.core.route.tally import DROPPED, Tally
from mqttlite.core.route.topic_limits import TopicLimits
from mqttlite.core.route.traffic import Traffic
from mqttlite.core.session.backlogs import Backlogs
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.core.session.session import Session
from mqttlite.core.session.sessions import Sessions
from mqttlite.core.sink import Sink
from mqttlite.core.source import NO_BUCKETS, THE_BROKER, THE_PROGRAM, Publisher, Source
from mqttlite.core.tracer import NO_SAMPLES, Tracer
from mqttlite.topics.names import matches
from mqttlite.topics.namespaces import Namespaces
from mqttlite.wire.encode import encode
from mqttlite.wire.errors import PeerError, QuotaExceeded
from mqttlite.wire.framer import packet_size
from mqttlite.wire.packets import Publish
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import ReasonCode


@final
class Broker:
    """All state of one broker. Not thread-safe: one event loop owns it.

    Assigned client ids begin with `client_id_prefix`. `pages` says that the store can read queues page by page
    (`LoadPage`); most of a long queue is then only in the store. `retained_expiry_s` maps a topic filter to the longest
    time that retained messages are kept. The wall clock is `wall_ahead_us` microseconds ahead of the `now` that the
    broker is given. `filters` compiles the filters of subscriptions; without it no subscription may have one.
    `newest_retained` says that retained messages are compared with those of other brokers (`PublishOrder`).
    """

    def __init__(
        self,
        limits: Limits,
        client_id_prefix: str = "auto-",
        share_policies: dict[str, str] | None = None,
        pages: bool = False,
        retained_expiry_s: dict[bytes, int] | None = None,
        wall_ahead_us: int = 0,
        filters: FilterCompiler | None = None,
        overload_limits: OverloadLimits | None = None,
        namespaces: Namespaces | None = None,
        newest_retained: bool = False,
    ) -> None:
        self.namespaces: Final = Namespaces() if namespaces is None else namespaces
        effects = Effects(limits.max_memory_bytes, wall_ahead_us, self.namespaces)
        self._filters: Final[FilterCompiler] = NoFilters() if filters is None else filters
        sessions: dict[str, Session] = {}
        connections: dict[int, Connection] = {}
        online: dict[str, Connection] = {}
        deadlines = Deadlines()
        jobs = Jobs(effects)
        self.limits: Final = limits
        self.effects: Final = effects
        self.connections: Final = connections
        self.jobs: Final = jobs
        self.questions: Final = Questions(effects)
        self.opened: int = 0
        """How many connections were opened since the start."""
        self._online: Final = online
        self.deadlines: Final = deadlines
        drops = Drops(effects)
        self.permissions: Final = Permissions(effects, drops)
        self._routes: Final = Routes(
            sessions, limits.max_route_cache_bytes, share_policies or {}, self.permissions, effects
        )
        expiry = ExpiryCaps(retained_expiry_s) if retained_expiry_s else None
        retained = RetainedStore(effects, limits, expiry, newest_retained)
        self.router: Final = Router(self._routes, retained, drops, effects, jobs)
        self._due_messages: Final = DueMessages(deadlines, jobs, effects)
        self.delayed: Final = DelayedMessages(
            sessions, self._routes, self.router, self._due_messages, deadlines, effects, limits
        )
        self.router.delays = self.delayed
        self._backlogs: Final = Backlogs(connections, self._due_messages, effects)
        self.page_reads: Final = QueuePages(self.questions, self._routes)
        self.has_pages: Final = pages
        """Whether most of a long queue is only in the store."""
        self.sessions: Final = Sessions(
            sessions,
            self._routes,
            self.router,
            self._due_messages,
            deadlines,
            jobs,
            effects,
            limits,
            self.page_reads if pages else None,
            self.permissions,
        )
        self._closing: Final = Closing(
            connections, online, self.sessions, self._due_messages, self.questions, deadlines, jobs, effects, limits
        )
        self.overload: Final = Overload(effects, deadlines, overload_limits or OverloadLimits())
        self.throttling: Final = Throttling(self._closing, deadlines, effects)
        self._connecting: Final = Connecting(
            connections,
            online,
            self.sessions,
            self._routes,
            self._closing,
            deadlines,
            effects,
            limits,
            client_id_prefix,
            self.throttling,
            self._backlogs,
            self.overload,
            retained.order,
        )
        subscriptions = Subscriptions(self._routes, self.router, self._closing, jobs, effects, limits, self._filters)
        self._subscriptions: Final = subscriptions
        self._check: SubscriptionCheck | None = None
        back_pressure = BackPressure(self._routes, self.router, deadlines, effects, limits)
        self.inbound: Final = Inbound(self._routes, self.router, back_pressure, self.router.drops, effects)
        self.sessions.inbound = self.inbound
        handler = PacketHandler(self._routes, self.router, self.inbound, back_pressure, effects, limits)
        self.planner: Final = Planner(
            online, self.sessions, self._routes, self.router, subscriptions, back_pressure, effects, limits
        )
        self._admission: Final = Admission(
            connections, self._connecting, self._closing, self.questions, deadlines, effects, limits
        )
        self._packet_loop: Final = PacketLoop(handler, subscriptions, self._admission, self._closing, effects)

    def restore(self, batches: Iterable[list[Change]], now: float) -> None:
        """Restore the state that a store kept, as `Store.load` gives it. Call it before the first input."""
        self.effects.now = now
        served = self._routes.served
        restore(batches, self.sessions, self.router, self.delayed, self.effects.numbers, now, self._filters, served)
        for namespace in served:
            namespace.restored()
        if self.effects.tracer is not None:
            self._routes.observe(self._routes.traffic)

    def authorize(self, authorizer: Authorizer) -> None:
        """Replace the authorizer, also for connected clients.

        This drops all cached routes and verdicts, and the roles are asked for again when they are needed. Subscriptions
        stay, and get the messages that the new rules allow. Messages already in an outbox are sent.
        """
        self._routes.authorize(authorizer)
        self.jobs.on_new_rules(self.permissions)

    def check_subscriptions(self) -> None:
        """Start a job that ends the subscriptions that the rules in force would refuse.

        Needed when rules restrict subscribing more than receiving: `authorize` alone already stops messages that a
        client may not receive.
        """
        if self._check is None or self._check.is_done:  # a check that still runs restarted when the rules changed
            self._check = SubscriptionCheck(self.sessions, self._subscriptions, self.permissions, self.effects)
            self.jobs.start(self._check)

    def ban_by(self, ban_of: BanOf | None) -> None:
        """Set the function that says why a client is banned. None: no client is banned."""
        self._connecting.ban_of = self.inbound.ban_of = ban_of

    def bind(
        self,
        topic_filter: bytes,
        sink: Sink,
        *,
        hears_others: bool = False,
        tells_others: bool = True,
        is_alone: bool = False,
    ) -> None:
        """Deliver every message that matches a topic filter to a sink, until `unbind`. With `hears_others` also those
        that were published at other brokers, which send them if it `tells_others`. With `is_alone`, no other sink gets
        messages of a namespace with members.

        Raises `TopicFilterInvalid`, and `ValueError` for a sink that has this filter already.
        """
        self._routes.bind(topic_filter, sink, hears_others=hears_others, tells_others=tells_others, is_alone=is_alone)

    def unbind(self, topic_filter: bytes, sink: Sink) -> None:
        """The opposite of `bind`. Raises `KeyError` for a sink that does not have this filter."""
        self._routes.unbind(topic_filter, sink)

    def name(self, name: bytes, sink: Sink) -> None:
        """Let other brokers name a sink (`route.relayed.numbers_of`), in place of one that had the name before."""
        self._routes.name(name, sink)

    def unname(self, name: bytes, sink: Sink) -> None:
        """They name it no longer. Harmless if another sink has the name by now."""
        self._routes.unname(name, sink)

    def serve(self, namespace: Namespace) -> None:
        """Let clients become members of a namespace. Call it before `restore` and the first input; or later with one
        that passes everything on to the former one."""
        self._routes.serve(namespace)

    @property
    def served(self) -> list[Namespace]:
        """The namespaces with members."""
        return self._routes.served

    def hook_with(self, hooks: HookFinder) -> None:
        """Have hooks see messages before they are published. Called again when there are others."""
        self._routes.hook_with(hooks)

    def on_hooked(self, held: object, answer: HookAnswer, now: float) -> None:
        """The late answer of a hook about the message that it was given as `held`."""
        self.effects.now = now
        assert isinstance(held, HeldMessage), "what `Hook.ask` was given"
        self.inbound.on_hooked(held, answer)
        if self.effects.overflowed:
            self._closing.end_overflowed()

    def ask_about_clients(self) -> None:
        """From now on ask an `Authenticate` question about each client with a socket, also where no login is needed."""
        self._connecting.asks_always = True

    def locate_sessions(self) -> None:
        """From now on ask a `Locate` question about each client that has a socket and a client identifier."""
        self._admission.locates = True

    def locate_unnamed(self, is_asked: bool) -> None:
        """Whether `Locate` is asked about clients without a client identifier, too."""
        self._admission.locates_unnamed = is_asked

    def give_up(self, connection: Connection, now: float) -> bytes:
        """Let go of a connection whose `Locate` question is open, because another broker has the session, or is to
        begin it. Return what its client has sent."""
        self.effects.now = now
        packet = connection.connect
        assert packet is not None, "its CONNECT waits for the answer"
        sent = encode(packet, packet.version) + connection.framer.take()
        self._closing.end(connection, CloseReason.PASSED_ON, 0, "")
        return sent

    def ask_about_subscriptions(self, hook: SubscriptionHook) -> None:
        """Have a hook asked about each subscription but the program's own before it is granted."""
        self._subscriptions.hook = hook

    def tell_interest(self, interest: Interest) -> None:
        """Count in `interest` what is subscribed, and keep each SUBACK there. Called once, after `restore`."""
        self._routes.tell(interest)

    def acknowledge_subscriptions(self, held: list[HeldSuback], now: float) -> None:
        """Send SUBACKs that waited in `interest`, each when the changes until now are committed."""
        self.effects.now = now
        for each in held:
            connection = self.connections.get(each.number)
            if connection is not None and connection.state != CLOSED:
                session = connection.session
                outbox = connection.outbox
                outbox.awaits_commit = outbox.awaits_commit or (session is not None and session.durable)
                outbox.answer(suback(connection, each.packet_id, bytes(each.codes), each.reason))
                if session is not None and each.members:
                    session.held_subacks -= 1
                    session.fill()
                if session is not None and (replays := self._subscriptions.replays(each.wanted)):
                    session.deliver_retained(replays)

    def copy_retained(self, on_retained: Callable[[Message], None]) -> None:
        """Have a function called with each message that is retained here, or removes one. Called once."""
        self.router.on_retained = on_retained

    def send_copies(self, client_id: str, now: float) -> None:
        """Send all retained messages, and removals of such, to a session as copies, little by little."""
        self.effects.now = now
        session = self.sessions.get(client_id)
        if session is not None:
            session.deliver_retained([self.router.retained.copies(RETAINED_COPY)])

    def send_copy(self, client_id: str, message: Message) -> bool:
        """Send a retained message to a connected session as a copy; false if it is dropped. For the function of
        `copy_retained`."""
        session = self.sessions.get(client_id)
        if session is None or session.outbox is None:
            return False
        delivery = Delivery(message, message.qos, True, (RETAINED_COPY,))
        return session.deliver(delivery) != DROPPED if delivery.qos else not session.deliver_qos0(delivery)

    def watch(self, tracer: Tracer | None) -> None:
        """Set the tracer; None removes it. Call it between two inputs.

        This visits each session and drops all cached routes. It does not change what clients receive.
        """
        self.effects.tracer = tracer
        self.effects.until_sample = NO_SAMPLES if tracer is None else tracer.next_sample()
        self._routes.observe(self._routes.traffic)

    def ask_tracer_again(self) -> None:
        """Ask the tracer again which topics and clients it traces. Costs what `watch` costs."""
        self._routes.observe(self._routes.traffic)

    def count_traffic(self, max_topics: int) -> Traffic:
        """Start to count published messages by topic, in the `Traffic` returned. Call it between two inputs.

        Raises `ValueError` for a number below 1.
        """
        traffic = Traffic(max_topics)
        self._routes.observe(traffic)
        return traffic

    # ------------------------------------------------------------------ inputs

    def open(self, peer: Peer, now: float) -> Connection:
        """A link opened. It has `connect_timeout_s` to send its CONNECT."""
        self.effects.now = now
        self.opened += 1
        connection = Connection(self.opened, peer, self.effects, self.limits, now)
        self.connections[connection.number] = connection
        connection.charge(CONNECTION_BYTES + peer.tls_bytes)
        self._connecting.await_connect(connection)
        return connection

    def feed(self, connection: Connection, chunk: bytes, now: float) -> None:
        """Bytes arrived, cut at any place. An empty chunk continues a connection that was in `Effects.deferred`."""
        if connection.state == CLOSED:
            return  # [MQTT-3.1.4-6]
        effects = self.effects
        effects.now = now
        connection.bytes_received += len(chunk)
        framer = connection.framer
        if connection.deferred:
            if chunk:
                framer.put(chunk)
                self._charge_input(connection)
                return
            if connection.waits_for != NOTHING:
                return  # the job it waits for will defer it again
            if connection.throttle is not None and connection.throttle.is_held:
                return  # it goes on when it is released
            if effects.work >= ITERATION_WORK or effects.pending_bytes > MAX_PENDING_BYTES:
                effects.deferred.append(connection.number)
                return
            connection.deferred = False
        work_before = effects.work
        effects.work += len(chunk) // CHUNK_BYTES_PER_WORK_UNIT
        try:
            data = framer.join(chunk)
            if connection.peer.quotas is None:
                at = self._packet_loop.walk(connection, data)
            else:
                at = self._walk_in_parts(connection, data)
            if not chunk:
                effects.work += at // CHUNK_BYTES_PER_WORK_UNIT
            if at < len(data) and connection.state != CLOSED:
                if connection.deferred:
                    framer.put(data[at:])
                else:
                    framer.keep(data, at)
            if at or framer.missing_bytes > LONG_PACKET_BYTES:
                connection.last_heard = now
            if not connection.deferred and framer.kept_bytes > self.limits.max_packet_bytes + len(chunk):
                raise QuotaExceeded("too much was sent before CONNACK")
        except PeerError as error:
            self._closing.fail(connection, error)
        if framer.kept_bytes != connection.input_bytes:
            self._charge_input(connection)
        if connection.throttle is not None:
            self.throttling.charge(connection, connection.throttle)
        if effects.meters_senders:
            self.overload.credits.charge(connection, effects.work - work_before)
        if effects.overflowed:
            self._closing.end_overflowed()

    def close(self, connection: Connection, now: float, detail: str = "") -> None:
        """The link is gone. Harmless for a connection that the broker closed."""
        self.effects.now = now
        self._closing.lose(connection, detail)
        if self.effects.overflowed:  # by its will
            self._closing.end_overflowed()

    def publish(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        now: float,
        properties: Properties = NONE,
        source: Source = THE_PROGRAM,
    ) -> Ticket:
        """Publish from inside the process. The tally's code is that of a PUBACK, and final once the ticket is done.

        Raises `TopicNameInvalid`, also for a namespace that the broker does not serve.
        """
        self.effects.now = now
        expiry = properties.message_expiry_interval
        message = Message(topic, payload, qos, retain, properties, 0.0 if expiry is None else now + expiry)
        self.namespaces.check_is_served(topic)
        ticket = self.inbound.offer(message, source)
        if self.effects.overflowed:
            self._closing.end_overflowed()
        return ticket

    def publisher(
        self,
        client_id: str,
        username: str | None,
        grants: Grants,
        own: TopicLimits | None = None,
        address: str = "",
        buckets: list[tuple[str, Buckets]] = NO_BUCKETS,
    ) -> Publisher:
        """A source for `publish` that is not a session, for example an HTTP caller at `address`. Its permissions are
        those of a client with that name; `own` are the limits of its user, if it has any, and `buckets` its quotas.
        Make a new one after its credentials were checked again."""
        return self._connecting.publisher(client_id, username, grants, own, address, buckets)

    def admit(self, source: Source, messages: int, size: int, now: float) -> Tally | None:
        """Why a source may publish nothing now; None if it may, and the messages are counted against its quotas.
        `publish` asks for each message. Use it for messages that are charged together, and publish them with the
        source `for_request`."""
        self.effects.now = now
        return self.inbound.admit(source, messages, size)

    def publish_own(self, message: Message) -> Ticket:
        """Publish one of the broker's own messages while an input is handled."""
        return self.inbound.offer(message, THE_BROKER)

    def answer(self, question_id: int, answer: object, now: float) -> None:
        """The answer to a question of `Effects.questions`. Harmless when the question was dropped."""
        self.effects.now = now
        self.questions.answer(question_id, answer)
        if self.effects.overflowed:  # by the will of a connection taken over
            self._closing.end_overflowed()

    def shed(self, now: float) -> list[tuple[int, int, int]]:
        """Memory is short: drop waiting QoS 0 messages, largest outbox first, until there is enough. Return (connection
        number, bytes, messages) for each outbox, largest first."""
        self.effects.now = now
        return self._backlogs.shed()

    def weigh(self, lag_s: float, iteration_s: float, now: float) -> None:
        """Update the load from how late the event loop was for a timer, and the mean processor time of its iterations.
        Called every `OVERLOAD_INTERVAL_S`."""
        self.effects.now = now
        self.overload.update(lag_s, iteration_s, now)

    def tick(self, now: float) -> float | None:
        """Do the work that is due, within the budget of this iteration. Return `due_at()`.

        Jobs, sessions with a backlog, deadlines and then links each have a guaranteed share of the budget.
        """
        effects = self.effects
        effects.now = now
        used_before = effects.work
        self._leave_share()
        self.jobs.run()
        self._leave_share()
        self._backlogs.fill()
        self._leave_share()
        self._run_deadlines(now)
        if effects.overflowed:
            self._closing.end_overflowed()
        self._leave_share()
        effects.work = max(effects.work, used_before)
        return self.due_at()

    def follow_wall(self, stepped_s: float) -> None:
        """The wall clock stepped: sessions, will delays and delayed messages are due by its new time."""
        self.deadlines.follow_wall(stepped_s)

    def due_at(self) -> float | None:
        """When to call `tick` next; None: not before another input."""
        if self.effects.backlogged or len(self.jobs):
            return self.effects.now
        return self.deadlines.next_at()

    def block(self, connection: Connection, now: float, unsent_bytes: int = 0) -> None:
        """The link stopped taking bytes, and still holds `unsent_bytes`."""
        self.effects.now = now
        if connection.state == CLOSED:
            return
        begins = connection.blocked_at == 0.0
        connection.outbox.block(unsent_bytes)
        if begins:
            connection.blocked_at = now
            connection.backpressure_count += 1
            self._due_messages.on_blocked(connection.number)
            if self.effects.tracer is not None:
                self.effects.tracer.on_blocked(connection.number)

    def unblock(self, connection: Connection, now: float) -> None:
        """The link takes bytes again. A long backlog is sent in parts; back-pressure ends with the last part."""
        self.effects.now = now
        if connection.state != CLOSED and connection.outbox.blocked and connection.outbox.unblock_link():
            self._backlogs.drain(connection)

    def send_away(self, connection: Connection, server_reference: str, now: float) -> None:
        """Close a connection with 0x9C and the server to use instead, or with 0x8B if none is named."""
        self.effects.now = now
        self._closing.server_reference = server_reference
        code = ReasonCode.USE_ANOTHER_SERVER if server_reference else ReasonCode.SERVER_SHUTTING_DOWN
        self._closing.end(connection, CloseReason.SERVER_SHUTDOWN, code, "the server is about to shut down")
        if self.effects.overflowed:
            self._closing.end_overflowed()

    def kick(self, client_id: str, now: float) -> bool:
        """Close the connection of a client with 0x98; false if it has none."""
        self.effects.now = now
        connection = self._online.get(client_id)
        if connection is None:
            return False
        detail = "an administrator closed the connection"
        self._closing.end(connection, CloseReason.ADMINISTRATIVE, ReasonCode.ADMINISTRATIVE_ACTION, detail)
        if self.effects.overflowed:  # by its will
            self._closing.end_overflowed()
        return True

    def hand_over(self, client_id: str, packet: Publish, now: float) -> bool:
        """Give a session a message that waited for its client at another broker, past rules and subscriptions. False
        if there is no such session."""
        self.effects.now = now
        session = self.sessions.get(client_id)
        if session is None:
            return False
        properties = packet.properties
        identifiers = tuple(properties.subscription_identifiers)
        if identifiers:
            properties.subscription_identifiers = []
        expiry = properties.message_expiry_interval
        topic = session.identity.mount_point + packet.topic
        expires_at = 0.0 if expiry is None else now + expiry
        message = Message(topic, packet.payload, packet.qos, False, properties, expires_at)
        self.effects.identify(message)
        session.deliver(Delivery(message, packet.qos, packet.retain, identifiers))
        if self.effects.overflowed:
            self._closing.end_overflowed()
        return True

    def displace(self, client_id: str, now: float) -> None:
        """Close the connection of a client with 0x8E, because it is connected to another broker now."""
        self.effects.now = now
        connection = self._online.get(client_id)
        if connection is not None:
            detail = "another connection uses this client identifier"
            self._closing.end(connection, CloseReason.TAKEN_OVER, ReasonCode.SESSION_TAKEN_OVER, detail)
            if self.effects.overflowed:  # by its will
                self._closing.end_overflowed()

    def send(self, client_id: str, topic: bytes, payload: bytes, now: float) -> bool:
        """Send a QoS 0 message to one client, past rules and other subscribers.

        False unless it is connected and one of its subscriptions, not a shared one, matches the topic.
        """
        self.effects.now = now
        connection = self._online.get(client_id)
        if connection is None:
            return False
        session = connection.session
        assert session is not None, "the client is connected"
        if not any(matches(name, topic) for name in session.subscriptions):
            return False
        return session.deliver_qos0(Delivery(Message(topic, payload, 0, False, NONE, 0.0), 0, False)) == ""

    def end_unauthorized(self, connection: Connection, detail: str, now: float) -> None:
        """Close a connection with 0x87, because its client's credentials are no longer valid. Harmless if it has
        ended."""
        self.effects.now = now
        self._closing.end(connection, CloseReason.NOT_AUTHORIZED, ReasonCode.NOT_AUTHORIZED, detail)
        if self.effects.overflowed:  # by its will
            self._closing.end_overflowed()

    def end_session(self, client_id: str, now: float) -> bool:
        """Close the connection of a client with 0x98 and end its session; false if it has neither."""
        kicked = self.kick(client_id, now)
        session = self.sessions.get(client_id)
        if session is None:
            return kicked
        self.sessions.end(session)
        if self.effects.overflowed:  # by a will that was delayed
            self._closing.end_overflowed()
        return True

    def unsubscribe(self, client_id: str, topic_filter: bytes, now: float) -> bool:
        """End one subscription of a session, by its filter with mount point; false if there is none. Messages that
        wait for it stay, as after UNSUBSCRIBE."""
        self.effects.now = now
        session = self.sessions.get(client_id)
        return session is not None and self._subscriptions.unsubscribe(session, topic_filter) == 0

    def purge(self, client_id: str, most: int, now: float) -> int:
        """Drop up to `most` messages of a session's queue; returns how many were dropped."""
        self.effects.now = now
        session = self.sessions.get(client_id)
        return 0 if session is None else session.purge(most)

    def cancel_delayed(self, number: int, now: float) -> bool:
        """Drop a delayed message. False if the number is unknown or the message is already due."""
        self.effects.now = now
        return self.delayed.cancel(number)

    def shut_down(self, now: float) -> None:
        """Close every connection with 0x8B and finish all jobs; sessions and retained messages stay."""
        self.effects.now = now
        for connection in list(self.connections.values()):
            detail = "the server shuts down"
            self._closing.end(connection, CloseReason.SERVER_SHUTDOWN, ReasonCode.SERVER_SHUTTING_DOWN, detail)
        self._due_messages.release()
        self.jobs.finish()
        self.effects.overflowed.clear()

    # ------------------------------------------------------------------ figures

    @property
    def online(self) -> int:
        """Clients that are connected."""
        return len(self._online)

    @property
    def subscriptions(self) -> int:
        """Subscriptions of all sessions, without the shared ones."""
        return self._routes.subscriptions

    @property
    def shared_subscriptions(self) -> int:
        return self._routes.shared_subscriptions

    def subscribers(self, topic: bytes) -> tuple[list[Subscription], int]:
        """The subscriptions by which clients may get messages of a topic, one for each client, with those of members of
        shared subscriptions; and the number of other sinks, such as queues. Raises `TopicNameInvalid`."""
        return self._routes.subscribers(topic)

    def has_subscribers(self, topic: bytes) -> bool:
        """Whether one of the broker's own messages would have a receiver. Raises `TopicNameInvalid`."""
        return self._routes.reaches(topic)

    # ------------------------------------------------------------------ the parts of a feed and a tick

    def _charge_input(self, connection: Connection) -> None:
        try:
            connection.charge_input()
        except PeerError as error:
            self._closing.fail(connection, error)

    def _walk_in_parts(self, connection: Connection, data: bytes) -> int:
        """As `PacketLoop.walk`, for a client with quotas: handle some messages, charge them, and so on. Once the client
        is held, the rest of the data waits for its release. So one chunk brings little more than the burst."""
        at = 0
        while connection.state != CLOSED:
            size = packet_size(data, at) if len(data) - at >= 2 else 0
            if size == 0 or at + size > len(data):
                return at + self._packet_loop.walk(connection, data[at:])  # it checks what there is of the packet
            throttle = connection.throttle
            room = 1 if throttle is None else throttle.room(self.effects.now)
            handled = self._packet_loop.walk(connection, data[at : at + max(size, room * SMALLEST_PUBLISH_BYTES)])
            at += handled
            if throttle is not None:
                self.throttling.charge(connection, throttle)
                if throttle.is_held and at < len(data) and connection.state != CLOSED and not connection.deferred:
                    connection.deferred = True
                    self.effects.deferred.append(connection.number)
            if not handled or connection.deferred:
                return at
        return len(data)

    def _leave_share(self) -> None:
        """Guarantee the next user of the budget its least share."""
        self.effects.work = min(self.effects.work, self.effects.share_from)

    def _run_deadlines(self, now: float) -> None:
        """Run the deadlines that are due, in order, within the budget. The rest stays due."""
        effects = self.effects
        while effects.work < ITERATION_WORK:
            deadline = self.deadlines.pop(now)
            if deadline is None:
                return
            effects.work += DEADLINE_WORK
            deadline.on_due()
