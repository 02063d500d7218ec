"""One network connection as the core sees it: its state, the values agreed at CONNECT, and the counters of its input.

Its outgoing half is the `Outbox`. This module decides only which packets a state allows. Invariant: a connection that
waits (`waits_for`) handles no packet, and keeps the bytes that arrive meanwhile.
"""

from typing import Final, final

from mqttlite.core.authentication import NO_GRANTS, Exchange, Grants
from mqttlite.core.connect.capabilities import EVERYTHING, Capabilities
from mqttlite.core.connect.connect_limits import ConnectLimits
from mqttlite.core.deadlines import Deadline
from mqttlite.core.effects import Effects
from mqttlite.core.identity import ANONYMOUS, Identity
from mqttlite.core.limits import LIGHT_BYTES, LONG_PACKET_BYTES, Limits
from mqttlite.core.load.quotas import Quotas, Throttle
from mqttlite.core.message import NO_PROPERTIES, RawProperties
from mqttlite.core.outbound.outbox import Outbox
from mqttlite.core.reasons import CloseReason
from mqttlite.core.route.topic_limits import NO_TOPIC_LIMITS, TopicLimits
from mqttlite.core.session.session import Session
from mqttlite.wire.constants import (
    AUTH,
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    SUBSCRIBE,
    UNSUBSCRIBE,
)
from mqttlite.wire.errors import PacketTooLarge, QuotaExceeded
from mqttlite.wire.framer import Framer
from mqttlite.wire.packets import Connect

AWAITING_CONNECT: Final = 0
AUTHENTICATING: Final = 1
CONNECTED: Final = 2
CLOSED: Final = 3

STATE_NAMES: Final = ("awaiting CONNECT", "authenticating", "connected", "closed")

NOTHING: Final = 0
AN_ANSWER: Final = 1
ITS_FILTERS: Final = 2
ITS_END: Final = 3
A_FAN_OUT: Final = 4
ROOM: Final = 5
"""Why a connection handles no packet: it waits for the answer to a question, the end of a long SUBSCRIBE or
UNSUBSCRIBE, its own end (the link is gone and the budget is used up), the end of a fan-out, or room at the receivers of
its message."""

WAITS_FOR_NAMES: Final = (
    "",
    ", waits for an answer",
    ", waits for its filters",
    ", waits for its end",
    ", waits for a fan-out",
    ", waits for room at receivers",
)

WELCOME: Final[dict[int, frozenset[int]]] = {
    AWAITING_CONNECT: frozenset({CONNECT}),
    AUTHENTICATING: frozenset({AUTH, DISCONNECT}),
    CONNECTED: frozenset({PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, UNSUBSCRIBE, PINGREQ, DISCONNECT, AUTH}),
    CLOSED: frozenset(),
}
"""Which packets a client may send in which state [MQTT-3.1.0-1] [MQTT-3.1.0-2] [MQTT-3.1.2-30].

A client without an authentication method may send packets before CONNACK (§3.1.4): its connection waits for an answer.
"""


@final
class Peer:
    """What the listener knows about the remote end.

    `identity` has the name in a verified client certificate, if there is one; `methods` are the authentication methods
    that a client may use; `tls_bytes` is the memory that TLS takes. `is_inside` marks all that need no socket, such as
    callers over HTTP, whose logins were judged there. `quotas` limit the traffic of the listener's clients,
    `connect_limits` how often they connect. With `sees_publishers`, messages may name their publishers to it, whatever
    the topic policies say.
    """

    __slots__ = (
        "capabilities",
        "connect_limits",
        "identity",
        "is_inside",
        "methods",
        "must_authenticate",
        "quotas",
        "sees_publishers",
        "tls_bytes",
    )

    def __init__(
        self,
        identity: Identity = ANONYMOUS,
        must_authenticate: bool = False,
        capabilities: Capabilities = EVERYTHING,
        methods: frozenset[str] = frozenset(),
        tls_bytes: int = 0,
        quotas: Quotas | None = None,
        connect_limits: ConnectLimits | None = None,
        sees_publishers: bool = False,
        is_inside: bool = False,
    ) -> None:
        self.sees_publishers: Final = sees_publishers
        self.is_inside: Final = is_inside
        self.identity: Final = identity
        self.must_authenticate: Final = must_authenticate
        self.capabilities: Final = capabilities
        self.methods: Final = methods
        self.tls_bytes: Final = tls_bytes
        self.quotas: Final = quotas
        self.connect_limits: Final = connect_limits


@final
class Connection:
    """`Broker.open` creates it. The link that owns the socket passes it to the broker with each input."""

    __slots__ = (
        "_charged_bytes",
        "_memory",
        "address",
        "aliases",
        "backpressure_count",
        "backpressure_s",
        "blocked_at",
        "bytes_received",
        "clean_start",
        "client_id",
        "close_detail",
        "close_reason",
        "connect",
        "connected_at",
        "deadline",
        "deferred",
        "drops",
        "ended_at",
        "exchange",
        "expiry",
        "framer",
        "grants",
        "hold_reasons",
        "identity",
        "in_place_bytes",
        "inflight_high_water",
        "input_bytes",
        "is_bridge",
        "is_located",
        "keep_alive_s",
        "last_heard",
        "much_bytes",
        "number",
        "opened_at",
        "outbox",
        "peer",
        "problem_information",
        "question_id",
        "queue_high_water",
        "quota_address",
        "raw",
        "reason_code",
        "received_qos0",
        "received_qos1",
        "received_qos2",
        "request_bytes",
        "requests",
        "session",
        "session_expiry_s",
        "session_present",
        "state",
        "subscriptions",
        "throttle",
        "topic_limits",
        "transport_work",
        "version",
        "waits_for",
        "will_published",
    )

    def __init__(self, number: int, peer: Peer, effects: Effects, limits: Limits, now: float) -> None:
        self.number: Final = number
        self.peer: Final = peer
        self.outbox: Final = Outbox(number, effects, limits)
        self.framer: Final = Framer(limits.max_packet_bytes)
        self._memory: Final = effects.memory
        self._charged_bytes = 0
        self.input_bytes: int = 0
        """The bytes of unhandled packets, as charged to the memory account."""
        self.state: int = AWAITING_CONNECT
        self.waits_for: int = NOTHING
        self.question_id: int = 0
        """The id of its open question; 0: none."""
        self.version: int = 0
        """`V31`, `V311` or `V5`, from CONNECT; 0 before it."""
        self.is_bridge: bool = False
        """Whether its client is a bridge before 5.0, whose subscriptions all have No Local and Retain As Published."""
        self.session: Session | None = None
        self.connect: Connect | None = None
        """The CONNECT that waits for a verdict."""
        self.exchange: Exchange | None = None
        """Set if the client uses an authentication method, and only then [MQTT-4.12.0-6]."""
        self.client_id: str = ""
        self.identity: Identity = peer.identity
        """With the user that the client says it is, once its CONNECT has come, or the one who logged in."""
        self.address: str = ""
        """`address:port` of the remote end, set by the listener; empty if it has none."""
        self.quota_address: str = ""
        """The key of its address in the listener's quotas, if quotas count by address; set by the listener."""
        self.grants: Grants = NO_GRANTS
        """The grants of the client's latest authentication."""
        self.expiry: Deadline | None = None
        """Due when its credentials expire; None if they do not."""
        self.is_located: bool = False
        """Whether another broker passes it on, because the client's session is here."""
        self.clean_start: bool = True
        self.session_present: bool = False
        self.session_expiry_s: int = 0
        self.keep_alive_s: int = 0
        self.problem_information: bool = True
        """Whether packets that report a failure may carry a reason string [MQTT-3.1.2-29]."""
        self.topic_limits: TopicLimits = NO_TOPIC_LIMITS
        """The limits of the client's topics; set at CONNECT."""
        self.in_place_bytes: int = limits.max_packet_bytes
        """The longest PUBLISH that may be handled in place; set at CONNECT. A longer one is decoded, because its
        payload may be too long. 0: decode all, because the client is below a mount point."""
        self.aliases: dict[int, bytes] = {}
        """The client's topic aliases, for as long as it is connected [MQTT-3.3.2-7]."""
        self.raw: RawProperties = NO_PROPERTIES
        """The properties of its latest message, if they are short and may be forwarded as they are. The next message
        often has the same ones."""
        self.deadline: Deadline | None = None
        self.deferred: bool = False
        """Whether the framer keeps whole packets, until the next iteration or while the connection waits for its
        filters."""
        self.throttle: Throttle | None = None
        """The quotas for the client's messages, once it is accepted; None: no quotas."""
        self.hold_reasons: int = 0
        """Why its link is not read, as a mask of `HoldReason`. While it is not 0, silence does not count for
        keep-alive."""
        self.much_bytes: int = LIGHT_BYTES
        """After a chunk of more bytes than this, its link may have to wait for its turn to be read again."""
        self.transport_work: int = 0
        """The work of a WebSocket to decode its frames, since the client was last charged for its messages."""
        self.opened_at: Final = now
        self.last_heard: float = now
        """When the client last sent a packet, was accepted, or its link was read again, by the loop's clock."""
        self.connected_at: float = 0.0
        self.ended_at: float = 0.0
        self.close_reason: CloseReason = CloseReason.CONNECTION_LOST
        self.close_detail: str = ""
        self.reason_code: int = 0
        self.will_published: bool = False
        self.bytes_received: int = 0
        self.received_qos0: int = 0
        self.received_qos1: int = 0
        self.received_qos2: int = 0
        self.requests: int = 0
        """Packets from the client other than messages and acknowledgements."""
        self.request_bytes: int = 0
        self.blocked_at: float = 0.0
        """When its link stopped taking bytes; 0.0 while it takes them."""
        self.backpressure_s: float = 0.0
        self.backpressure_count: int = 0
        # Copied from the session when the connection ends.
        self.drops: dict[str, int] = {}
        self.queue_high_water: int = 0
        self.inflight_high_water: int = 0
        self.subscriptions: int = 0

    @property
    def username(self) -> str | None:
        """The user that the client belongs to; None if there is none."""
        return self.identity.username

    @property
    def accepted(self) -> bool:
        """Whether its CONNECT was accepted; stays true after the end."""
        return self.connected_at > 0.0

    @property
    def said_goodbye(self) -> bool:
        """Whether the client sent DISCONNECT, and so expects no more packets."""
        return self.close_reason in (CloseReason.CLIENT_DISCONNECTED, CloseReason.CLIENT_DISCONNECTED_WITH_WILL)

    def charge(self, size: int) -> None:
        """Charge memory until the connection ends."""
        self._charged_bytes += size
        self._memory.used += size

    def charge_input(self) -> None:
        """Charge the bytes that the framer keeps. Raises `QuotaExceeded` if they are many and memory is short."""
        kept = self.framer.kept_bytes
        more = kept - self.input_bytes
        if kept > LONG_PACKET_BYTES and more > self._memory.room_for(self.input_bytes):
            raise QuotaExceeded(f"the broker has no memory left for a packet of {kept} bytes")
        self.input_bytes = kept
        self._memory.used += more

    def release(self) -> None:
        """Return its memory charges at its end."""
        self.outbox.release()
        self._memory.used -= self._charged_bytes + self.input_bytes
        self._charged_bytes = self.input_bytes = 0
        self.framer.clear()
        self.aliases.clear()

    def check_size(self, frame: bytes, name: str) -> None:
        """Raises `PacketTooLarge`, which closes the connection, if a required response exceeds the client's Maximum
        Packet Size."""
        if self.outbox.is_too_large(len(frame)):
            raise PacketTooLarge(
                f"{name} takes {len(frame)} bytes, and Maximum Packet Size is {self.outbox.max_packet_bytes} "
                "[MQTT-3.1.2-24]"
            )

    def __repr__(self) -> str:
        state = STATE_NAMES[self.state] + WAITS_FOR_NAMES[self.waits_for]
        return (
            f"Connection({self.number}, {self.client_id!r}, {state}, version={self.version}, "
            f"identity={self.peer.identity.username!r})"
        )
