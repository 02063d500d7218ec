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
"""Two more policies, for single topics only: while one receiver has no room for a message, the message waits, or is
refused, for all receivers."""

REFUSE: Final = "refuse"


@dataclass(frozen=True)
class OverloadLimits:
    """When the broker counts as overloaded. Raises `ValueError` for values that contradict each other."""

    enabled: bool = True
    """Whether the broker reacts to overload. If not, all clients are slowed alike."""
    target_lag_s: float = 0.001
    """How late the event loop may be, on average, before the clients that send most are read more slowly, so that the
    others get quick answers. A busy loop is late by half the length of its iterations, on average."""
    max_lag_s: float = 0.25
    """How late the event loop may be before new connections are refused. At three fifths of it, low-priority messages
    are dropped; at four fifths, QoS 0 messages."""

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
    """A larger packet closes its connection (0x95). Larger content should be sent by reference."""
    receive_maximum: int = 1_000
    """QoS 1 and 2 messages from a 5.0 client that may be unacknowledged: bounds the QoS 2 identifiers kept."""
    topic_alias_maximum: int = 64
    """Topic aliases a 5.0 client may introduce on a connection: each keeps a topic name."""
    max_topic_aliases: int = 32
    """Topic aliases that the broker uses to a 5.0 client, unless its Topic Alias Maximum is smaller."""
    max_topic_levels: int = 201
    """Levels in a client's topic name or filter: each may take a node of the subscription tree. A PUBLISH with more is
    refused with 0x90, a topic filter with 0x8F."""
    max_topic_bytes: int = 65_535
    """Bytes in a client's topic name or filter, refused with the same codes. The default is the standard's maximum."""
    max_payload_bytes: int = 0
    """Bytes in the payload of a client's message. 0: no limit but `max_packet_bytes`."""
    on_large_payload: str = REFUSE
    """The policy for a larger payload: `refuse` drops the message with 0x97 in its acknowledgement, `disconnect` closes
    the connection with 0x95."""
    max_inflight: int = 1_000
    """QoS 1 and 2 messages to a client that may be unacknowledged, unless its Receive Maximum is smaller."""
    max_inflight_bytes: int = 64 * 1_048_576
    """The same in bytes of memory. While a client has more than this unacknowledged, the next messages wait."""
    max_queued_messages: int = 10_000
    """QoS 1 and 2 messages waiting for one session, offline or behind its window: bounds the cost of a client that
    never comes back. Sessions share the message itself; each waiting place takes sixteen bytes, so there may be
    millions."""
    max_queued_bytes: int = 64 * 1_048_576
    """The same in bytes of memory, for large messages. A message takes about 300 bytes beside its topic and payload."""
    max_outbox_bytes: int = 4 * 1_048_576
    """Bytes of memory waiting for a client whose socket takes no bytes, including the socket's unsent bytes: bounds the
    cost of a frozen subscriber. A single QoS 0 message takes about 115 bytes beside its packet."""
    max_outbox_messages: int = 100_000
    """QoS 0 messages waiting for a client whose socket takes no bytes."""
    on_overflow: str = DROP_NEWEST
    """The policy at the two limits above and at the queue's: `drop_newest`, `drop_oldest` or `disconnect`."""
    max_block_s: float = 5.0
    """How long a publisher waits for room under the topic policy `block`, before its message is refused with 0x97: an
    absent receiver must not stop a publisher for ever. It is also the longest wait for a receiver that reads."""
    min_drain_rate: int = 1_000
    """With `drop_newest`, publishers wait for a connected client with a full queue if it takes at least this many QoS 1
    and 2 messages a second. They do not wait for a slower client, which loses messages. 0: publishers never wait."""
    max_subscriptions: int = 100_000
    """Topic filters of one session; one more is refused with 0x97."""
    max_shared_subscriptions: int = 100
    """Shared subscriptions of one session. Overlapping filters of a session get one copy of a message together, but
    each share group gets its own: a client in many groups of `#` makes a message as expensive as many clients do."""
    max_filtered_subscriptions: int = 1_000
    """Subscriptions of one session with a message filter; one more is refused with 0x97. Each matching one takes about
    a microsecond for every message."""
    max_sessions: int = 1_000_000
    """Sessions, connected or not. A client that would begin one more is refused with 0x97."""
    max_retained_messages: int = 1_000_000
    """Retained messages. One more is delivered, but not retained, and acknowledged with 0x97."""
    max_retained_bytes: int = 256 * 1_048_576
    """The same in bytes of memory. A message takes about 500 bytes beside its payload and twice its topic."""
    max_delayed_messages: int = 100_000
    """Messages published to `$delayed/…` that are not due yet, possibly for weeks. One more is refused with 0x97."""
    max_delayed_bytes: int = 64 * 1_048_576
    """The same in bytes of memory. A message takes about 700 bytes beside its topic and payload."""
    max_memory_bytes: int = 0
    """The memory for all client state and all waiting data. When seven eighths are used, the clients that read least
    lose their QoS 0 messages. When all is used, the broker refuses new queue entries, sessions, subscriptions and
    retained messages with 0x97. 0: the server takes half of the memory that its process may use."""
    max_route_cache_bytes: int = 64 * 1_048_576
    """About how much memory the cache of routes may use. When it is full, the next new topic empties it."""
    connect_timeout_s: float = 10.0
    """From the opening of a connection to its complete CONNECT and authentication. Ends half-open connections."""
    server_keep_alive_s: int = 0
    """Longest keep-alive, also for clients that ask for none. CONNACK tells 5.0 clients; older clients cannot be told,
    and are closed all the same when they are silent for longer. 0: the client's own."""
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
"""The largest values that the standard's fields can hold. `MAX_LEVELS` is the broker's own limit."""

FILL_BYTES: Final = 262_144
"""How many bytes one session sends from its queue in an iteration, so that a long backlog leaves room for others."""

SHORT_FILL_BYTES: Final = FILL_BYTES // 8
"""The same while iterations are short: some hundred short messages, about half a millisecond."""

KEPT_MESSAGES: Final = 250
KEPT_BYTES: Final = 262_144
"""How much of a long queue stays in memory while its client is away or slow and the store has the rest. Enough to start
sending at once when the client is back; little enough for thousands of sessions with long queues."""

PAGE_MESSAGES: Final = 4_000
"""How many messages are read from the store at a time. The next page is requested when half of them are left; reading
one takes some milliseconds."""

MAX_PAGES_AT_ONCE: Final = 8
"""Pages being read at the same time, for all sessions: each takes some megabytes until its client has it."""

LONG_PACKET_BYTES: Final = 1_000
"""While more than this of a packet is missing, each piece of it counts as activity for keep-alive: on a slow line one
packet may take longer than the keep-alive."""

ITERATION_BYTES: Final = 1_048_576
"""How many bytes all sessions together send from their queues in an iteration. The SUBSCRIBEs of one chunk may ask for
far more."""

ITERATION_WORK: Final = 8_192
"""The work budget of one loop iteration for all links and jobs, in units of about a microsecond of the pure build. Work
beyond it waits for the next iteration: a chunk or a fan-out may hold seconds of work."""

LEAST_SHARE: Final = ITERATION_WORK // 4
"""The part of the budget guaranteed to each of links, jobs, sessions with a backlog and deadlines, so that none starves
another. An iteration with all of them takes at most 7/4 of `ITERATION_WORK`."""

SHORT_PACKET_WORK: Final = 1
SMALLEST_PUBLISH_BYTES: Final = 5
"""A PUBLISH of 3.1.1 at QoS 0 with one character of topic and no payload."""

CHUNK_BYTES_PER_WORK_UNIT: Final = 1_024
"""The work of a packet or batch that is handled in place, and the bytes of a chunk that cost one unit."""

DEADLINE_WORK: Final = 8
"""The work of a due deadline. After a network cut or a restart 100,000 may be due in a second."""

CONNECT_WORK: Final = 32
"""The work of accepting a client: the event, its listeners and the CONNACK. Thousands may connect at once."""

CLOSE_WORK: Final = 16
"""The work of ending a connection."""

SCANNED_PER_WORK_UNIT: Final = 16
"""How many subscriptions of an ended session cost one unit to scan for shared ones. Each shared one costs a unit
more."""

WILL_GRACE_S: Final = 5.0
"""How long after a restart the will of a client that was connected waits for it to come back: clients try again within
some seconds."""

DUE_WORK: Final = 16
"""The work of a due will or delayed message, without its route and receivers."""

DUE_PATIENCE_S: Final = 0.1
"""How long due messages wait for links that become blocked. Long enough for a client that reads; a client that has
stopped reading delays them only this long."""

DELAY_WORK: Final = 8
"""The work of delaying a message. A chunk may hold thousands of QoS 0 messages to delay."""

CHECK_WORK: Final = 4
CHECKED_BYTES_PER_WORK_UNIT: Final = 32
"""The work of checking a payload against a schema, and how many of its bytes cost one unit more."""

FILL_BYTES_PER_WORK_UNIT: Final = 128
"""How many bytes a session sends from its queue for one unit of work."""

QUEUED_MESSAGE_WORK: Final = 4
"""The work of sending a message from a queue, without its bytes. Thousands of clients with full queues may come back at
once."""

FORGOTTEN_PER_WORK_UNIT: Final = 4
"""How many messages of a page in memory are forgotten for one unit, because their client is gone."""

FILTER_WORK: Final = 8
FILTERS_PER_STEP: Final = 32
"""The work of one filter of a SUBSCRIBE or UNSUBSCRIBE, and how many are handled between two checks of the budget."""

EXPRESSIONS_PER_STEP: Final = 4
CHARACTERS_PER_WORK_UNIT: Final = 1
"""How many filters are handled between two checks where each may bring its own message filter, and the characters of a
message filter that cost one unit to compile. Compiling the longest takes some milliseconds."""

FILTERED_RECEIVERS: Final = 256
"""Receivers with the same filter that get a message between two checks of the budget."""

JSON_BYTES_PER_WORK_UNIT: Final = 128
"""How many bytes of a payload cost one unit when a message filter reads it, which may include decoding JSON."""

MAX_COMBINATIONS: Final = 64
"""Combinations of a session's overlapping filters for which a route caches the receiver."""

INLINE_FILTERS_BYTES: Final = 2_048
"""A longer SUBSCRIBE or UNSUBSCRIBE is a job: a megabyte of filters takes more than a second."""

ROOM_LOOK_S: Final = 0.02
"""The interval between checks for room for a waiting message. A shorter one would cost more than the message; with a
longer one, a receiver that reads could run dry."""

READER_LOOK_S: Final = 0.01
READER_GOES_ON_S: Final = 0.0005
SLOW_LOOK_S: Final = 1.0
"""The interval between checks for all publishers that wait for a client that reads, and between checks whether a slow
client has become faster. When one check cannot release all waiting publishers, the next comes after this time too."""

LOOK_WORK: Final = 1_024
"""The most work of one check to release waiting publishers. There may be thousands, with one message each."""

PACE_S: Final = 1.0
"""The period over which the pace of a client with a filling queue is measured. Publishers wait at most this long for a
client that does not read. A shorter period would misjudge clients that acknowledge many messages at a time."""

TURN_MESSAGES: Final = 32
"""How many messages a publisher that waited may publish before the next publisher's turn."""

MAX_WAITING_INSIDE: Final = 10_000
"""How many messages of HTTP callers and of the program may wait for receivers. A connection has one at most; a program
could start any number."""

MAX_ROOM_LOOKS: Final = 1_000
"""The most receivers to check for room for one message, about a microsecond each. If a topic has more, no publisher
waits, and each receiver drops what it has no room for."""

OVERLOAD_INTERVAL_S: Final = 0.1
"""The interval between updates of the load. A tenth of a second of overload is not noticeable."""

OVERLOAD_SMOOTHING: Final = 0.3
LATENESS_SMOOTHING: Final = 0.5
MOST_LOAD: Final = 1.5
MOST_LATENESS: Final = 3.0
"""The weight of the latest lag in the smoothed one, and the caps on a single lag as multiples of `max_lag_s` and
`target_lag_s`. One pause of any length is therefore not an overload (0.3 of 1.5 is below the first stage), but two in a
row are. Measuring clients is cheap, and begins after one."""

OVERLOAD_STAGE_S: Final = 0.25
"""How long a stage has to take effect before the next begins: held links may have sent data before."""

SHORT_SHARE: Final = ITERATION_WORK // 64
"""Replaces `LEAST_SHARE` while iterations are short, because some clients send much and others little. Short iterations
serve light clients sooner, at the cost of some throughput."""

INTERVAL_WORK: Final = 1_000_000.0 * OVERLOAD_INTERVAL_S
"""About all the work that fits into an interval. When many clients send, none is guaranteed more than its share."""

LEAST_CREDIT: Final = 250.0
MOST_CREDIT: Final = 10_000_000.0
"""The least and the most credit of a client in an interval. The least is some 40 QoS 1 messages, so that a client that
sends some hundred a second is never slowed while fewer than 400 do. The most exceeds a whole interval."""

CREDIT_SHRINKS: Final = 0.7
CREDIT_GROWS: Final = 1.2
"""The factors of change per interval: from full credit to a fifth in half a second, and back in one second."""

MAX_DEBT: Final = 10
"""The largest debt, in intervals of credit: a client is held for at most a second. It counts as a heavy sender for one
to two such periods."""

CREDIT_CALM_S: Final = 1.0
"""How long no client must have been slowed before the overload ends, because it could soon begin again."""

LIGHTEST_BYTES: Final = 256
LIGHT_BYTES: Final = 4_096
"""During overload, clients with fewer unhandled bytes than this are served before the others, which may be hundreds."""

OVERLOADED_BYTES: Final = 16_384
"""During overload, a link with more unhandled bytes than this is not read: reading a thousand links whose bytes only
wait would take most of each iteration."""

MAX_OPEN_QUESTIONS: Final = 65_536
"""Open questions, one for each connection that authenticates. If the authenticator hangs, further clients are refused
with 0x89."""

BATCH_MESSAGES: Final = 1_024
"""Messages handled as one batch. A receiver that has to take the messages one by one needs some milliseconds for it."""

BATCHES_IN_A_QUEUE: Final = 4
"""A session's queue has room for at least this many batches of QoS 1 and 2, so that it is half full before it is
full."""

DELIVERY_WORK: Final = 4
"""The work of handing a message to one session or sink."""

OUTBOXES_PER_WORK_UNIT: Final = 4
"""How many outboxes cost one unit when they take the bytes of a QoS 0 message unchanged."""

MOST_WHOLE: Final = 64
"""A QoS 2 message of a kept session for up to this many receivers is delivered in one iteration, whatever the budget,
and so committed together with its packet identifier. Batches have at most `BATCH_MESSAGES` deliveries: half of a
budget."""

CROWD: Final = 64
"""If one message makes more outboxes than this dirty, other outboxes are written first. 64 writes take a
millisecond."""

PACKET_WORK: Final = 4
ROUTE_WORK: Final = 8
"""The work of decoding a packet, plus a unit for each `BYTES_PER_WORK_UNIT`; and the work of making a route, plus a
unit for each `STEPS_PER_WORK_UNIT` in the subscription tree and `FOUND_WORK` for each subscription found."""

BYTES_PER_WORK_UNIT: Final = 8
STEPS_PER_WORK_UNIT: Final = 16
FOUND_WORK: Final = 2

MAX_PENDING_BYTES: Final = 64 * 1_048_576
"""Packets wait while more bytes than this are to be written; shared bytes count once for each holder. Without it, short
messages to two topics in turn, with thousands of receivers, would fill gigabytes of memory."""

MAX_RAW_PROPERTIES_BYTES: Final = 127
"""The longest properties of its latest message that a connection keeps, because the next message often has the same
ones; up to this size their length is one byte. Longer ones are decoded."""

RETAINED_SWEEP_S: Final = 60.0
"""The least interval between searches of a full retained store for expired messages. A search visits each message."""

RETAINED_WAITING: Final = 1_000
"""When this many retained messages wait for a session, those of further new subscriptions are searched for only at
their turn: overlapping filters find a message many times."""

RETAINED_LOOKED_AT: Final = 100
"""Retained messages to compare with a topic filter between two checks of the budget."""

RETAINED_LOOKED_INTO: Final = 8
"""The same for a message filter that reads payloads: a long payload takes some milliseconds."""

LOOKING_BYTES: Final = 100
SENDING_BYTES: Final = 200
"""The bytes that finding a retained message, and sending one beside its size, each count in `FILL_BYTES` and
`ITERATION_BYTES`: it takes as long as sending this many bytes. An iteration has room for some thousands, in some
milliseconds."""

MAX_CLIENT_ID_CHARACTERS: Final = 1_024
"""Characters in a client identifier, which is in many tables and log lines. A `str` with an emoji takes four bytes for
each character, so 65,535 bytes could take 262 kB. The standard requires 23 [MQTT-3.1.3-5]."""

MAX_AUTHENTICATION_STEPS: Final = 8
"""Packets from a client in one authentication, including CONNECT. SCRAM needs two; an exchange must end."""

MAX_RETAINED_EXPIRIES: Final = 100
"""Topic filters in `retained_expiry_s`. Each retained message is compared with all of them, up to a microsecond
each."""

TOMBSTONE_S: Final = 86_400
"""How long the removal of a retained message is remembered, so that an older message of another broker does not come
back. A broker that was cut off for longer may bring one back."""

MAX_TOMBSTONES: Final = 100_000
"""Removals that are remembered, at most; with one more, the oldest one is forgotten. They count as retained messages,
too, and give way to them."""

MAX_VAIN_TOMBSTONES: Final = 1_000
"""Those of them that found no message to remove. Any client may send them for topics that never were, so they must not
displace the others."""

TOMBSTONES_SWEPT: Final = 100
"""How many expired ones are forgotten with each message to be retained: all of a day ago may expire together."""

MAX_CLOCK_AHEAD_S: Final = 60.0
"""How far ahead the clock of another broker may be for the publish times of its retained messages to hold. Without it,
one wrong clock, or one client, could keep a topic from changing for years."""

MAX_SHARES_TOLD: Final = 50_000
"""The most shared subscriptions with members here that other brokers are told. Members of a further one share only what
is published here."""

MAX_SHARES_TOLD_BYTES: Final = 16 * 1_048_576
"""The same for the bytes of their names."""

MAX_HELD_SUBACKS: Final = 100_000
"""SUBACKs that wait until other brokers know what is subscribed. Each takes a hundred bytes, and they wait for a second
at most; a further one goes out at once."""

MAX_OWN_RETAINED: Final = 13_000
"""The broker's own retained messages: the presence of up to 10,000 topics, a hundred broker metrics, up to two dozen
metrics for each of a hundred queues, and messages of analysts below `$SYS/analytics`."""

TOPICS_COMPARED: Final = 500
"""Cached topics to compare with one changed wildcard filter, some hundred microseconds. If it may match more, the whole
route cache is dropped, and each route is made again when it is next used."""

COMPARED_PER_ITERATION: Final = 5_000
"""Cached topics to compare with all filters that change in one iteration, some milliseconds. If there are more, for
example when a session with 100,000 filters connects, ends or subscribes, the whole cache is dropped as well."""

MAX_VERDICTS: Final = 10_000
VERDICT_TOPIC_BYTES: Final = 256
"""Cached verdicts on what a role may receive, for topics up to `VERDICT_TOPIC_BYTES`: some megabytes. When there are
more, all are dropped and asked for again, which takes some microseconds each."""

MAX_ROUTE_VERDICTS: Final = 16
"""Roles for which a route caches whether they may publish, about a kilobyte. With more roles it drops the others. Roles
are few, because a role is a set of permissions."""

DENIALS_TOLD_PER_S: Final = 20
"""Denials reported to the log and to programs each second; the others are only counted. Finding the reason for a denial
takes time, and a client that is denied everything may publish a hundred thousand messages a second."""

MEMBERS_ASKED: Final = 100
"""Members of a share group to consider for one message, starting with the next in order: ten microseconds at best, some
hundred when all are full. `least_inflight` also chooses among this many."""

MEMBER_MOVE_WORK: Final = 1
MEMBERS_PER_WORK_UNIT: Final = 4
"""How many members of a share group cost one unit to examine. Moving a member to the ring of another state costs
`MEMBER_MOVE_WORK`. Thousands may have disconnected or filled their queues since the latest message."""

KEEP_ALIVE_FACTOR: Final = 1.5
"""A client may be silent for one and a half keep-alive intervals [MQTT-3.1.2-22]."""

MAX_ALIASED_TOPIC_BYTES: Final = 1_024
"""A longer topic gets no topic alias from the broker, which keeps up to five times Topic Alias Maximum topics for each
connection."""

ONCE_SEEN: Final = 4
"""How many recent topics a connection remembers for each topic alias. A topic that repeats gets an alias."""
