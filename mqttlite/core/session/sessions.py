"""The table of all sessions: begins, resumes, leaves and expires them, and keeps delayed wills.

Invariant: a session without a connection has an expiry deadline, or never expires.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.changes import IF_LOST, EndSession, Enqueue, RemoveWill, SaveSession, SaveWill
from mqttlite.core.deadlines import Deadline, Deadlines
from mqttlite.core.effects import Effects
from mqttlite.core.identity import ANONYMOUS, Identity
from mqttlite.core.inbound.inbound import Inbound
from mqttlite.core.jobs import Jobs
from mqttlite.core.limits import WILL_GRACE_S, Limits
from mqttlite.core.message import Message
from mqttlite.core.reasons import count
from mqttlite.core.route.due_messages import DueMessages
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.route.router import Router
from mqttlite.core.route.routes import Routes
from mqttlite.core.route.subscription import Subscription
from mqttlite.core.session.due_will import DueWill, HeldWill
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.core.session.session import Session
from mqttlite.core.session.session_end import SessionEnd
from mqttlite.wire.constants import NEVER_EXPIRES, V5
from mqttlite.wire.errors import PeerError, QuotaExceeded, UseAnotherServer
from mqttlite.wire.packets import Will
from mqttlite.wire.properties import NONE, Properties


@final
class Sessions:
    __slots__ = (
        "_by_client_id",
        "_deadlines",
        "_due_messages",
        "_effects",
        "_jobs",
        "_limits",
        "_lost",
        "_pages",
        "_permissions",
        "_router",
        "_routes",
        "_stored",
        "begun",
        "elsewhere",
        "expired",
        "inbound",
    )

    def __init__(
        self,
        by_client_id: dict[str, Session],
        routes: Routes,
        publisher: Router,
        due_messages: DueMessages,
        deadlines: Deadlines,
        jobs: Jobs,
        effects: Effects,
        limits: Limits,
        pages: QueuePages | None = None,
        permissions: Permissions | None = None,
    ) -> None:
        self._permissions: Final = permissions
        self._by_client_id: Final = by_client_id
        self._routes: Final = routes
        self._router: Final = publisher
        self._due_messages: Final = due_messages
        self._stored: Final[dict[str, Session]] = {}
        """Ended sessions that are still in the store, by client."""
        self._lost: Final[dict[str, Session]] = {}
        """Sessions with the wills of clients that were connected when the broker stopped without a goodbye, until their
        wills are due or the clients are back."""
        self._deadlines: Final = deadlines
        self._jobs: Final = jobs
        self._effects: Final = effects
        self._limits: Final = limits
        self._pages: Final = pages
        self.begun: int = 0
        """How many sessions began since the start, including restored ones."""
        self.expired: int = 0
        """How many sessions expired."""
        self.inbound: Inbound | None = None
        """Asks hooks about wills; set once, before the first."""
        self.elsewhere: Callable[[], str] = str
        """A server that has room for a client when this one has none (`host:port`); empty: none is known."""

    def __len__(self) -> int:
        return len(self._by_client_id)

    def values(self) -> list[Session]:
        """All sessions now."""
        return list(self._by_client_id.values())

    def latest(self, most: int) -> list[str]:
        """The client identifiers of the `most` newest sessions."""
        found: list[str] = []
        for client_id in reversed(self._by_client_id):
            if len(found) >= most:
                break
            found.append(client_id)
        return found

    def get(self, client_id: str) -> Session | None:
        return self._by_client_id.get(client_id)

    def known(self, client_id: str) -> Session | None:
        """The same, or a session that ended with its connection in a crash, of which the will is left."""
        return self._by_client_id.get(client_id) or self._lost.get(client_id)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another session."""
        return (
            len(self._by_client_id) >= self._limits.max_sessions
            or self._effects.memory.is_full()
            or self._effects.refuses_connects
        )

    def no_room(self, error: PeerError) -> PeerError:
        """The error for a client for which there is no room, or one that says which other server has some (§4.11)."""
        server = self.elsewhere()
        if not server:
            return error
        referral = UseAnotherServer(f"{error}: use {server}")
        referral.server_reference = server
        return referral

    def open(
        self,
        client_id: str,
        clean_start: bool,
        expiry_interval: int,
        identity: Identity = ANONYMOUS,
        version: int = V5,
    ) -> tuple[Session, bool]:
        """The session of a client that connects, and whether it existed before [MQTT-3.1.3-2] [MQTT-3.1.4-4].

        A clean start ends an existing session [MQTT-3.1.2-4] [MQTT-3.2.2-2], and so does another mount point, because
        the client has other topics there. Otherwise the session continues [MQTT-3.1.2-5] [MQTT-3.2.2-3], or a new one
        begins [MQTT-3.1.2-6]. Its former connection must have ended. Raises `QuotaExceeded` or `UseAnotherServer` when
        there are too many sessions.
        """
        session = self._by_client_id.get(client_id)
        self._find_again(client_id)
        if session is not None and (clean_start or session.identity.mount_point != identity.mount_point):
            self.end(session)
            session = None
        present = session is not None
        if session is None:
            if len(self._by_client_id) >= self._limits.max_sessions:
                raise self.no_room(QuotaExceeded(f"there are {len(self._by_client_id)} sessions, which is the limit"))
            if self._effects.memory.is_full():
                raise self.no_room(QuotaExceeded("the broker has no memory left for another session"))
            session = self.begin(client_id, expiry_interval)
        if session.will_delay is not None:  # the client is back in time: its will is not sent [MQTT-3.1.3-9]
            self._drop_will(session)
        self._cancel_deadlines(session)
        was_durable = session.durable
        session.expiry_interval = expiry_interval
        session.identify(identity, version)
        session.ends_with_connection = False
        if was_durable and not session.durable and session.queue.stored:
            # Some waiting messages are only in the store: keep the session there until the connection, or a crash, ends
            # it.
            session.expiry_interval = 1
            session.ends_with_connection = True
            self._save(session, self._effects.now)
        elif session.durable:
            self._save(session, 0.0)
        elif was_durable and present:
            self._effects.record(EndSession(client_id))
        return session, present

    def begin(self, client_id: str, expiry_interval: int) -> Session:
        """Begin a session for a client that has none. In the store it replaces one whose end is unfinished."""
        if self._stored.pop(client_id, None) is not None:
            self._effects.record(EndSession(client_id))
        self.begun += 1
        session = self._by_client_id[client_id] = self._new(client_id, expiry_interval)
        return session

    def _new(self, client_id: str, expiry_interval: int) -> Session:
        return Session(client_id, expiry_interval, self._effects, self._limits, self._pages, self._permissions)

    def leave(self, session: Session, publish_will: bool) -> None:
        """The connection ended: keep the session for its expiry interval, or end it, and handle the will
        [MQTT-3.1.2-8].

        While connected, the session exists regardless of its expiry interval [MQTT-4.1.0-1] [3.1.1 MQTT-4.1.0-2]. Now
        the interval applies [MQTT-3.1.2-23], or clean session [3.1.1 MQTT-3.1.2-4] [3.1.1 MQTT-3.1.2-6].
        """
        session.detach()
        self._routes.forget_session(session)
        will = session.will
        now = self._effects.now
        if will is not None and not publish_will:
            self._drop_will(session)  # [MQTT-3.1.2-10] [3.1.1 MQTT-3.1.2-10]
        elif will is not None:  # [3.1.1 MQTT-3.1.2-12]
            session.take_will()
            delay = min(will.properties.will_delay_interval or 0, session.expiry_interval)
            if delay:
                session.keep_will(will)
                session.will_delay = WillDelay(self, session.client_id)
                self._deadlines.arm(session.will_delay, now + delay)
                self._save_will(session, will, now + delay)
            else:
                self._publish_will(session, will)
        if not session.durable or session.ends_with_connection:
            self.end(session)
        elif session.expiry_interval < NEVER_EXPIRES:
            expires_at = now + session.expiry_interval
            session.expiry = SessionExpiry(self, session.client_id)
            self._deadlines.arm(session.expiry, expires_at)
            self._save(session, expires_at)

    def save_will(self, session: Session) -> None:
        """A client with a will has connected: save the will, for the case that the broker stops without a goodbye.

        Not if the will has QoS 0 and the session ends with the connection.
        """
        will = session.will
        assert will is not None
        if not session.durable:
            if will.qos == 0:
                return
            self._stored[session.client_id] = session
            self._save(session, 0.0)
        self._save_will(session, will, IF_LOST)

    def _save_will(self, session: Session, will: Will, due_at: float) -> None:
        session.saved_will = will
        self._effects.record(SaveWill(session.client_id, will, due_at))

    def _find_again(self, client_id: str) -> None:
        """A client connects: if it was connected when the broker stopped without a goodbye, its will is dropped."""
        session = self._lost.pop(client_id, None)
        if session is not None:
            self._cancel_will(session)
            self._drop_will(session)
            self._end_lost(session)

    def _end_lost(self, session: Session) -> None:
        """End a session that was restored for its will alone."""
        if not session.durable:
            session.is_over = True
            session.release()
            self._effects.record(EndSession(session.client_id))

    def _drop_will(self, session: Session) -> None:
        """The will is not published."""
        session.take_will()
        if session.saved_will is not None:
            session.saved_will = None
            self._effects.record(RemoveWill(session.client_id))

    def restore(self, saved: SaveSession, now: float) -> None:
        """Restore a session from a store. If it was still connected, its expiry interval starts now."""
        client_id = saved.client_id
        if saved.expiry_interval:
            session = self.begin(client_id, saved.expiry_interval)
        else:
            session = self._lost[client_id] = self._new(client_id, 0)
        session.identify(saved.identity, saved.version)
        if 0 < saved.expiry_interval < NEVER_EXPIRES:
            session.expiry = SessionExpiry(self, client_id)
            self._deadlines.arm(session.expiry, saved.expires_at or now + saved.expiry_interval)

    def restore_will(self, saved: SaveWill, now: float) -> None:
        """Restore a will. A delayed one that is already due is published by the next `tick`. That of a client that was
        connected is due after its delay, which begins now, and not before the client had time to come back."""
        client_id, will = saved.client_id, saved.will
        session = self._by_client_id.get(client_id) or self._lost[client_id]
        session.keep_will(will)
        session.saved_will = will
        session.will_delay = WillDelay(self, client_id)
        due_at = saved.due_at
        if due_at == IF_LOST:
            self._lost[client_id] = session
            delay = min(will.properties.will_delay_interval or 0, session.expiry_interval)
            due_at = now + max(delay, WILL_GRACE_S)
        self._deadlines.arm(session.will_delay, due_at)

    def restore_message(self, session: Session, saved: Enqueue) -> None:
        """Restore a message with its shared subscription as the origin."""
        session.restore_message(saved.sequence, self._routes.with_origin(saved.delivery), saved.packet_id)

    def restore_subscription(self, subscription: Subscription) -> None:
        self._by_client_id[subscription.client_id].add_subscription(subscription, None)
        self._routes.add(subscription, None)

    def change_expiry(self, session: Session, expiry_interval: int) -> None:
        """Change the expiry interval at DISCONNECT (5.0 §3.14.2.2.2), just before the connection ends."""
        was_durable, changed = session.durable, session.expiry_interval != expiry_interval
        session.expiry_interval = expiry_interval
        if was_durable and not session.durable:
            self._stored[session.client_id] = session
        elif changed:
            self._save(session, 0.0)

    def end(self, session: Session) -> None:
        """End a session with its subscriptions and messages, and publish a will that still waits.

        It leaves the table at once; a job cleans up the rest in parts. Messages that it retained stay
        [3.1.1 MQTT-3.1.2-7].
        """
        session.is_over = True
        pages = self._pages if self._routes.groups_of(session) else None
        self._cancel_deadlines(session)
        del self._by_client_id[session.client_id]
        self._lost.pop(session.client_id, None)
        self._routes.end_session(session)
        for reason, messages in session.drops.items():
            count(self._router.drops.by_reason, reason, messages)
        if session.durable:
            self._stored[session.client_id] = session
        will = session.take_will()
        end = SessionEnd(session, self._routes, self._router, self._effects, self._stored, self._jobs, pages)
        self._jobs.start(end)
        if session.client_id in self._stored:  # an earlier end is unfinished
            now = self._effects.now
            self._effects.record(SaveSession(session.client_id, 1, now, session.identity, session.version))
        if will is not None:  # the end of the session overrides the delay [MQTT-3.1.3-9]
            self._publish_will(session, will)

    def on_will_delay(self, client_id: str) -> None:
        """A will delay is over."""
        session = self._lost.pop(client_id, None) or self._by_client_id[client_id]
        session.will_delay = None
        will = session.take_will()
        assert will is not None
        self._publish_will(session, will)
        self._end_lost(session)

    def on_expiry(self, client_id: str) -> None:
        """A session's expiry interval is over [MQTT-4.1.0-2]."""
        session = self._by_client_id[client_id]
        session.expiry = None
        self.expired += 1
        self.end(session)

    def _save(self, session: Session, expires_at: float) -> None:
        self._effects.record(
            SaveSession(session.client_id, session.expiry_interval, expires_at, session.identity, session.version)
        )

    def _cancel_deadlines(self, session: Session) -> None:
        if session.expiry is not None:
            self._deadlines.cancel(session.expiry)
            session.expiry = None
        self._cancel_will(session)

    def _cancel_will(self, session: Session) -> None:
        if session.will_delay is not None:
            self._deadlines.cancel(session.will_delay)
            session.will_delay = None

    def _publish_will(self, session: Session, will: Will) -> None:
        properties = will.properties
        expires_at = 0.0
        if properties is not NONE:
            if properties.message_expiry_interval is not None:
                expires_at = self._effects.now + properties.message_expiry_interval
            properties = Properties(
                payload_format_indicator=properties.payload_format_indicator,
                content_type=properties.content_type,
                response_topic=properties.response_topic,
                correlation_data=properties.correlation_data,
                user_properties=properties.user_properties,  # [MQTT-3.1.3-10]
            )
        # [MQTT-3.1.2-14] [MQTT-3.1.2-15] [3.1.1 MQTT-3.1.2-9]
        message = Message(will.topic, will.payload, will.qos, will.retain, properties, expires_at)
        due = DueWill(message, session, will, self._routes, self._router, self._effects)
        route = self._routes.find(will.topic)
        if route.hook is None or self.inbound is None:
            self._due_messages.publish(due)
            return
        held = HeldWill(due, self._due_messages)
        if self.inbound.takes(held, route):
            held.publish()


@final
class SessionExpiry(Deadline):
    """Due when the session of an absent client expires."""

    __slots__ = ("_client_id", "_sessions")

    def __init__(self, sessions: Sessions, client_id: str) -> None:
        super().__init__()
        self._sessions: Final = sessions
        self._client_id: Final = client_id

    def on_due(self) -> None:
        self._sessions.on_expiry(self._client_id)

    def follows_wall(self) -> bool:
        return True


@final
class WillDelay(Deadline):
    """Due when the delayed will of an absent client must be published."""

    __slots__ = ("_client_id", "_sessions")

    def __init__(self, sessions: Sessions, client_id: str) -> None:
        super().__init__()
        self._sessions: Final = sessions
        self._client_id: Final = client_id

    def on_due(self) -> None:
        self._sessions.on_will_delay(self._client_id)

    def follows_wall(self) -> bool:
        return True
