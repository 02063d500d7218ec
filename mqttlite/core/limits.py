"""Every limit of the core that clients can reach, with its reason.

An operator sets `Limits`; the constants below it are fixed.
"""

from dataclasses import dataclass
from typing import Final

from mqttlite.topics.names import MAX_LEVELS
from mqttlite.wire.constants import MAX_REMAINING_LENGTH, MAX_STRING_BYTES, NEVER_EXPIRES

DROP_NEWEST: Final = "drop_newest"
DROP_OLDEST: Final = "drop_oldest"
DISCONNECT: Final = "disconnect"
OVERFLOW_POLICIES: Final = (DROP_NEWEST, DROP_OLDEST, DISCONNECT)
BLOCK: Final = "block"
REJECT: Final = "reject"
"""Beside those, for single topics: while a receiver has no room for a message, it waits or is refused, for all."""

REFUSE: Final = "refuse"


@dataclass(frozen=True)
class OverloadLimits:
    """When the broker counts as overloaded. Raises `ValueError` for values that contradict each other."""

    enabled: bool = True
    """Whether anything is done about it; if not, everybody waits for everybody."""
    target_lag_s: float = 0.001
    """How late the event loop may be, on average, before the clients that send most are read more slowly, for others to
    be answered soon. It is late by half of what its iterations take, but for the time in which it has nothing to do."""
    max_lag_s: float = 0.25
    """How late it may be before new connections are refused; at three fifths of that messages of low priority are
    dropped, at four fifths QoS 0 messages."""

    def __post_init__(self) -> None:
        for name in ("target_lag_s", "max_lag_s"):
            value = getattr(self, name)
            if not 0.0001 <= value <= 3_600.0:  # so written, it refuses NaN too
                raise ValueError(f"{name} is {value:g}: it may be 0.0001 to 3600 seconds")
        if self.target_lag_s >= self.max_lag_s:
            raise ValueError(f"target_lag_s is {self.target_lag_s:g}: below max_lag_s, which is {self.max_lag_s:g}")


@dataclass(frozen=True)
class Limits:
    """The limits of one client and of the broker. Raises `ValueError` for values that contradict each other."""

    max_packet_bytes: int = 1_048_576
    """A larger packet closes its connection (0x95): above a megabyte a message should carry a reference."""
    receive_maximum: int = 1_000
    """QoS 1 and 2 messages a 5.0 client may have unacknowledged with us: bounds the QoS 2 identifiers kept."""
    topic_alias_maximum: int = 64
    """Topic aliases a 5.0 client may introduce on a connection: each keeps a topic name."""
    max_topic_aliases: int = 32
    """Topic aliases to a 5.0 client, where its Topic Alias Maximum is not smaller: each keeps a topic name."""
    max_topic_levels: int = 201
    """Levels in a topic of a client, name or filter: each takes a node of the tree of subscriptions. With more a
    PUBLISH is refused with 0x90, a topic filter with 0x8F."""
    max_topic_bytes: int = 65_535
    """Bytes in such a topic; with more it is refused with the same codes. The standard has fields for no more."""
    max_payload_bytes: int = 0
    """Bytes in the payload of a client's message, where `max_packet_bytes` leaves room for too many. 0: as many as
    fit."""
    on_large_payload: str = REFUSE
    """The policy for a larger payload: `refuse` drops the message with 0x97 in its acknowledgement, `disconnect` closes
    the connection with 0x95."""
    max_inflight: int = 1_000
    """QoS 1 and 2 messages unacknowledged by a client, where its own Receive Maximum is not smaller."""
    max_inflight_bytes: int = 64 * 1_048_576
    """The same in bytes of memory, for one client; with more than that unacknowledged, the next messages wait."""
    max_queued_messages: int = 10_000
    """QoS 1 and 2 messages waiting for one session, offline or behind its window: bounds what a client that never comes
    back may cost. Each takes sixteen bytes beside the message, which sessions share, so there may be millions."""
    max_queued_bytes: int = 64 * 1_048_576
    """The same in bytes of memory, so that large messages do not get 10 000 places. A message takes about 300 bytes
    beside its topic and payload."""
    max_outbox_bytes: int = 4 * 1_048_576
    """Bytes of memory waiting for a client whose socket takes none, with what its socket has not sent: what a frozen
    subscriber may cost. A QoS 0 message
    that came alone takes about 115 bytes beside its packet."""
    max_outbox_messages: int = 100_000
    """QoS 0 messages waiting for such a client."""
    on_overflow: str = DROP_NEWEST
    """The policy at the two limits above and at the queue's: `drop_newest`, `drop_oldest` or `disconnect`."""
    max_block_s: float = 5.0
    """How long a publisher waits for room where a topic policy says `block`, before its message is refused with 0x97:
    one receiver that is away must not stop it for ever. As long at most it waits for one that reads."""
    min_drain_rate: int = 1_000
    """Publishers wait, with `drop_newest`, while the queue of a connected client is full that takes as many QoS 1 and 2
    messages a second. A slower one costs them nothing and loses messages. 0: they wait for nobody."""
    max_subscriptions: int = 100_000
    """Topic filters of one session; one more is refused with 0x97."""
    max_shared_subscriptions: int = 100
    """Those of them that are shared: overlapping filters get one copy of a message together, but each group gets its
    own, so that one client in many groups of `#` makes a message cost as much as for as many clients."""
    max_filtered_subscriptions: int = 1_000
    """Those of them that have a filter; one more is refused with 0x97. A message is compared with each that its topic
    matches, which takes a microsecond or so."""
    max_sessions: int = 1_000_000
    """Sessions, connected or not; a client that would begin one more is refused with 0x97."""
    max_retained_messages: int = 1_000_000
    """Retained messages; one more is delivered, not retained, and acknowledged with 0x97."""
    max_retained_bytes: int = 256 * 1_048_576
    """The same in bytes of memory. A message takes about 500 bytes beside its payload and twice its topic."""
    max_delayed_messages: int = 100_000
    """Messages published to `$delayed/…` that are not due yet: any client may delay some for weeks. One more is refused
    with 0x97."""
    max_delayed_bytes: int = 64 * 1_048_576
    """The same in bytes of memory. A message takes about 700 bytes beside its topic and payload."""
    max_memory_bytes: int = 0
    """The memory for everything that waits or is kept for clients. When seven eighths are used, the clients that read
    least lose their QoS 0 messages; when all is used, new messages to queues and new sessions, subscriptions and
    retained messages are refused with 0x97. 0: the server takes half of the memory that its process may use."""
    max_route_cache_bytes: int = 64 * 1_048_576
    """About how much memory the cache of routes may use. When it is full, the next new topic empties it."""
    connect_timeout_s: float = 10.0
    """From the connection's opening to its whole CONNECT, and its authentication: half-open connections end here."""
    server_keep_alive_s: int = 0
    """Longest keep-alive, for clients that ask for more or for none. CONNACK tells 5.0 clients; older clients that are
    silent for longer are cut off without having been told. 0: what the client asks."""
    max_session_expiry_s: int = 0xFFFF_FFFF
    """Longest time a session outlives its connection; 0xFFFFFFFF is for good."""

    def __post_init__(self) -> None:
        if self.on_overflow not in OVERFLOW_POLICIES:
            raise ValueError(f"on_overflow is {self.on_overflow!r}: it may be {', '.join(OVERFLOW_POLICIES)}")
        if self.on_large_payload not in (REFUSE, DISCONNECT):
            raise ValueError(f"on_large_payload is {self.on_large_payload!r}: it may be {REFUSE} or {DISCONNECT}")
        if not self.connect_timeout_s >= 0.001:  # so written, it refuses NaN too
            raise ValueError(f"connect_timeout_s is {self.connect_timeout_s:g}: 0.001 at least")
        if not 0.0 <= self.max_block_s <= 3_600.0:
            raise ValueError(f"max_block_s is {self.max_block_s:g}: it may be 0 to 3600 seconds")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: {least} at least")
        for name, most in _MOST.items():
            if getattr(self, name) > most:
                raise ValueError(f"{name} is {getattr(self, name)}: {most} at most")


_LEAST: Final[dict[str, int]] = {
    "max_packet_bytes": 128,
    "receive_maximum": 1,
    "topic_alias_maximum": 0,
    "max_topic_aliases": 0,
    "max_topic_levels": 1,
    "max_topic_bytes": 1,
    "max_payload_bytes": 0,
    "max_inflight": 1,
    "max_inflight_bytes": 0,
    "max_queued_messages": 0,
    "max_queued_bytes": 0,
    "min_drain_rate": 0,
    "max_outbox_bytes": 1_024,
    "max_outbox_messages": 1,
    "max_subscriptions": 1,
    "max_shared_subscriptions": 0,
    "max_filtered_subscriptions": 0,
    "max_sessions": 1,
    "max_retained_messages": 0,
    "max_retained_bytes": 0,
    "max_delayed_messages": 0,
    "max_delayed_bytes": 0,
    "max_memory_bytes": 0,
    "max_route_cache_bytes": 0,
    "server_keep_alive_s": 0,
    "max_session_expiry_s": 0,
}

_MOST: Final[dict[str, int]] = {
    "max_packet_bytes": MAX_REMAINING_LENGTH + 5,
    "receive_maximum": 65_535,
    "topic_alias_maximum": 65_535,
    "max_topic_levels": MAX_LEVELS,
    "max_topic_bytes": MAX_STRING_BYTES,
    "max_inflight": 65_535,
    "server_keep_alive_s": 65_535,
    "max_session_expiry_s": NEVER_EXPIRES,
}
"""The largest values that the standard's fields can hold; `MAX_LEVELS` is the broker's own limit."""

FILL_BYTES: Final = 262_144
"""How many bytes one session sends from its queue in one pass: a long backlog leaves room for the others."""

SHORT_FILL_BYTES: Final = FILL_BYTES // 8
"""The same while iterations are to be short: some hundred short messages, which take half a millisecond."""

KEPT_MESSAGES: Final = 250
KEPT_BYTES: Final = 262_144
"""How much of a long queue stays in memory while its client is away or slow, if the store has the rest: enough to send
at once when the client is back, and little enough for thousands of sessions with long queues."""

PAGE_MESSAGES: Final = 4_000
"""How many messages are read from the store at a time when the client takes them; half of that is left when the next
page is asked for, which takes some milliseconds."""

MAX_PAGES_AT_ONCE: Final = 8
"""Pages that are read at a time, of all sessions: each takes some megabytes until its client has it."""

LONG_PACKET_BYTES: Final = 1_000
"""A packet of which more than that is still to come keeps its connection alive by its pieces: on a slow line it may
take longer than the keep-alive allows between packets."""

ITERATION_BYTES: Final = 1_048_576
"""How many bytes all sessions together send from their queues in one pass: SUBSCRIBEs in one chunk may ask for far
more."""

ITERATION_WORK: Final = 8_192
"""The work budget of one loop iteration for all links and jobs, in units of about a microsecond of the pure build. The
rest waits for the next iteration: a chunk, or a fan-out, may hold seconds of work."""

LEAST_SHARE: Final = ITERATION_WORK // 4
"""The part of that budget that each of these has, whatever the others used: links, jobs, sessions with a backlog,
deadlines. None of them starves another; an iteration with all of them takes at most 7/4 of `ITERATION_WORK`."""

SHORT_PACKET_WORK: Final = 1
CHUNK_BYTES_PER_WORK_UNIT: Final = 1_024
"""The work of a packet or batch that is handled in place, and the bytes of a chunk that cost one unit."""

DEADLINE_WORK: Final = 8
"""The work of a due deadline: after a network cut, or a restart with many sessions, 100,000 may be due in a second."""

CONNECT_WORK: Final = 32
"""The work of accepting a client: the event, its listeners and the CONNACK. Thousands may connect at once."""

CLOSE_WORK: Final = 16
"""The work of ending a connection."""

SCANNED_PER_WORK_UNIT: Final = 16
"""Subscriptions of an ended session to look at for those that are shared; each of these costs a unit."""

DUE_WORK: Final = 16
"""The work of a will, or of a delayed message that is due, without its route and its receivers."""

DUE_PATIENCE_S: Final = 0.1
"""How long they wait for links that become blocked while many of them are published: they do not overrun a client that
reads, and a client that has stopped reading does not hold them back."""

DELAY_WORK: Final = 8
"""The work of delaying a message: a chunk may hold thousands of QoS 0 messages to delay."""

CHECK_WORK: Final = 4
CHECKED_BYTES_PER_WORK_UNIT: Final = 32
"""The work of checking a payload against the schema of its topic, and how many of its bytes cost one unit more."""

FILL_BYTES_PER_WORK_UNIT: Final = 128
"""How much of its queue a session sends for one unit of work."""

FILTER_WORK: Final = 8
FILTERS_PER_STEP: Final = 32
"""The work of one filter of a SUBSCRIBE or UNSUBSCRIBE, and how many are handled between two looks at the budget."""

EXPRESSIONS_PER_STEP: Final = 4
CHARACTERS_PER_WORK_UNIT: Final = 1
"""The same where each topic filter may have a filter of its own behind it, and what it costs to compile one: some
milliseconds for the longest."""

FILTERED_RECEIVERS: Final = 256
"""Receivers with the same filter that get a message in one go: the budget is looked at between such groups."""

JSON_BYTES_PER_WORK_UNIT: Final = 128
"""How many bytes of a payload cost one unit when a message filter reads it: it may be the first to decode it."""

MAX_COMBINATIONS: Final = 64
"""Combinations of a session's overlapping filters for which a route keeps what the session gets."""

INLINE_FILTERS_BYTES: Final = 2_048
"""A longer SUBSCRIBE or UNSUBSCRIBE is a job: a megabyte of filters takes more than a second."""

ROOM_LOOK_S: Final = 0.02
"""How often it is looked whether there is room for a message that waits for it: sooner, it would cost more than the
message, and later, a receiver that reads could have nothing to read."""

READER_LOOK_S: Final = 0.01
READER_GOES_ON_S: Final = 0.0005
SLOW_LOOK_S: Final = 1.0
"""The same for publishers that wait for a client that reads, all of them together; how soon the next of them go on
where there is room for more than one look takes; and how often it is looked whether a slow client has become faster."""

LOOK_WORK: Final = 1_024
"""The work of one iteration to let them go on: there may be thousands, whose messages come one by one."""

PACE_S: Final = 1.0
"""Over how long the pace of a client is measured whose queue fills up: that long publishers wait at most for one that
does not read. Shorter, it could be that of a client which acknowledges many messages at a time."""

TURN_MESSAGES: Final = 32
"""How many messages a publisher that waited for such a client may publish before the next publisher has its turn."""

MAX_ROOM_LOOKS: Final = 1_000
"""Receivers that are looked at for one message, about a microsecond each. Where a topic has more, each of them drops
what it has no room for, and nobody waits."""

OVERLOAD_INTERVAL_S: Final = 0.1
"""How often the load is looked at: a tenth of a second of overload is nothing that a person notices."""

OVERLOAD_SMOOTHING: Final = 0.3
LATENESS_SMOOTHING: Final = 0.5
MOST_LOAD: Final = 1.5
MOST_LATENESS: Final = 3.0
"""How much the latest lag counts beside the earlier ones, and as what multiple of `max_lag_s` and of `target_lag_s` the
longest: so one pause, of however many seconds, is no overload (0.3 of 1.5 is below the first stage), but two in a row
are. To see what clients cost is cheap, and begins with one."""

OVERLOAD_STAGE_S: Final = 0.25
"""How long a stage has to help before the next begins: the links that it holds had sent something before."""

SHORT_SHARE: Final = ITERATION_WORK // 64
"""The same as `LEAST_SHARE` while the loop is late for clients that send much, and others send, too: the less an
iteration does, the sooner come those who have little to do. It costs some of the throughput."""

INTERVAL_WORK: Final = 1_000_000.0 * OVERLOAD_INTERVAL_S
"""All that there is to spend in an interval, about. Where many clients send, none is promised more than its share."""

LEAST_CREDIT: Final = 250.0
MOST_CREDIT: Final = 10_000_000.0
"""The least and the most credit of a client in an interval: some 40 messages of QoS 1, so that a client that sends some
hundred a second is never slowed while fewer than 400 do, and more than an interval has room for."""

CREDIT_SHRINKS: Final = 0.7
CREDIT_GROWS: Final = 1.2
"""By how much the credit changes in an interval: down in half a second from all to a fifth, and up again in one."""

MAX_DEBT: Final = 10
"""For how many intervals' credit a client is held at most, which is a second: a debt beyond that is forgiven. For as
long, or twice that, it counts as one that sends much."""

CREDIT_CALM_S: Final = 1.0
"""How long no client was slowed before the overload is over, for it would only begin anew."""

LIGHTEST_BYTES: Final = 256
LIGHT_BYTES: Final = 4_096
"""While the broker is overloaded, clients with fewer bytes than this to handle are served before the others: first
those with a message or two, for there may be hundreds of the others."""

OVERLOADED_BYTES: Final = 16_384
"""While the broker is overloaded, a link with more bytes than this that wait for their turn is not read. To read a
thousand links whose bytes only wait would take most of each iteration."""

MAX_OPEN_QUESTIONS: Final = 65_536
"""Questions that wait for an answer, one for each connection that authenticates: when the authenticator hangs, more
clients than this are told to come again (0x89)."""

BATCH_MESSAGES: Final = 1_024
"""Messages handled as one batch. A receiver gets a batch in one go, and may have to take each message by itself: some
milliseconds for that many."""

BATCHES_IN_A_QUEUE: Final = 4
"""As many batches of QoS 1 and 2 fill the queue of a session at least: it is full not before it was half full."""

DELIVERY_WORK: Final = 4
"""The work of handing a message to one session or sink."""

OUTBOXES_PER_WORK_UNIT: Final = 4
"""Outboxes that take the bytes of a QoS 0 message as they came."""

CROWD: Final = 64
"""If a message lets more outboxes than that be written, the others are written first: 64 writes take a millisecond."""

PACKET_WORK: Final = 4
ROUTE_WORK: Final = 8
"""The work of decoding a packet, with a unit more for each `BYTES_PER_WORK_UNIT`, and the work of making a route, with
a unit more for each `STEPS_PER_WORK_UNIT` in the tree of subscriptions and `FOUND_WORK` for each subscription found."""

BYTES_PER_WORK_UNIT: Final = 8
STEPS_PER_WORK_UNIT: Final = 16
FOUND_WORK: Final = 2

MAX_PENDING_BYTES: Final = 64 * 1_048_576
"""Packets also wait when more bytes than this wait to be written, counting shared bytes once for each holder: short
messages of two topics in turn, for thousands of receivers, would fill gigabytes of memory."""

MAX_RAW_PROPERTIES_BYTES: Final = 127
"""Bytes of properties that a connection keeps of its latest message, which the next often has too; their length is one
byte then. Longer ones are decoded."""

RETAINED_SWEEP_S: Final = 60.0
"""How often, at most, a full retained store is searched for expired messages: the search looks at each message."""

RETAINED_WAITING: Final = 1_000
"""Retained messages that wait for one session before those of further new subscriptions are not made ready at once, but
searched for when it is their turn: filters that overlap find a message many times."""

RETAINED_LOOKED_AT: Final = 100
"""Retained messages to compare with a filter before the next look at the room that the iteration has."""

RETAINED_LOOKED_INTO: Final = 8
"""The same where a filter looks into their payloads: of the longest that takes some milliseconds."""

LOOKING_BYTES: Final = 100
SENDING_BYTES: Final = 200
"""The bytes that count in `FILL_BYTES` and `ITERATION_BYTES` for looking at a retained message, and for sending one
beside its size, because each takes as long as to send this many: a pass holds some thousands, in some milliseconds."""

MAX_CLIENT_ID_CHARACTERS: Final = 1_024
"""Characters in a client identifier, which is in many tables and log lines. A `str` takes four bytes for each character
if one of them is an emoji: 65,535 bytes would take 262 kB. The standard asks for 23 [MQTT-3.1.3-5]."""

MAX_AUTHENTICATION_STEPS: Final = 8
"""Packets of a client in one authentication, its CONNECT among them: SCRAM has two, and an exchange must end."""

MAX_RETAINED_EXPIRIES: Final = 100
"""Topic filters in `retained_expiry_s`: a retained message is compared with one after the other, up to a microsecond
each."""

MAX_OWN_RETAINED: Final = 13_000
"""Retained messages of the broker's own, which do not count as anybody's: who subscribes to up to 10,000 topics, a
hundred figures, up to two dozen of each of a hundred queues, and what those publish who may below `$SYS/analytics`."""

TOPICS_COMPARED: Final = 500
"""Cached topics to compare with one changed wildcard filter, some hundred microseconds. Where it may match more, the
whole cache of routes is dropped, and each route is made anew when its topic is next published."""

COMPARED_PER_ITERATION: Final = 5_000
"""Cached topics to compare with all filters that change in one iteration: some milliseconds. If there are more, as when
a session with 100 000 filters comes, goes or subscribes, the whole cache is dropped as well."""

MAX_VERDICTS: Final = 10_000
VERDICT_TOPIC_BYTES: Final = 256
"""Verdicts that are kept of what a role may receive, for topics up to that long: some megabytes. When there are more,
all are dropped and asked for again, which takes some microseconds each."""

MAX_ROUTE_VERDICTS: Final = 16
"""Roles of which a route knows whether they may publish, about a kilobyte. Where there are more it forgets all
others: roles are few, for a role is a set of permissions."""

DENIALS_TOLD_PER_S: Final = 20
"""Denials that are told to the log and to programs; the others are counted. Each takes the rules to find a reason, and
a client that is denied everything may publish a hundred thousand messages a second."""

MEMBERS_ASKED: Final = 100
"""Members of a share group to look at for one message, from the next in its order on: ten microseconds at best, some
hundred when all are full. The member with the fewest unacknowledged messages is chosen among that many, too."""

MEMBER_MOVE_WORK: Final = 1
MEMBERS_PER_WORK_UNIT: Final = 4
"""The work of moving a member of a share group to those in another state, and how many members can be looked at for a
unit: thousands may have lost their connections, or have filled their queues, since the latest message."""

KEEP_ALIVE_FACTOR: Final = 1.5
"""A client may be silent for one and a half keep-alive intervals [MQTT-3.1.2-22]."""

MAX_ALIASED_TOPIC_BYTES: Final = 1_024
"""A longer topic gets no topic alias from the broker, which would keep five times the maximum of such topics for each
connection."""

ONCE_SEEN: Final = 4
"""How many topics a connection remembers for each topic alias: a topic that comes again gets an alias."""
