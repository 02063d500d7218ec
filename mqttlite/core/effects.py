"""What the core wants done: a `Effects`. And the `Outbox`, the outgoing half of a connection.

The shell around the core takes a turn after each pass of its loop: it commits the changes, writes the dirty outboxes,
asks the questions, closes what is to be closed. Invariant: an outbox that has something to write and whose link is not
blocked is in `Effects.dirty`.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.changes import Change
from mqttlite.core.limits import DISCONNECT, DROP_OLDEST, ONCE_SEEN, Limits
from mqttlite.core.question import Question
from mqttlite.core.reasons import BUFFER_FULL, EXPIRED, PACKET_TOO_LARGE, count
from mqttlite.core.tracer import BACKPRESSURE, NO_SAMPLES, NOT_TRACED, Tracer
from mqttlite.wire.constants import V5
from mqttlite.wire.expiry import with_time_left


@final
class Effects:
    """What has come up since the shell last looked. Connections are named by their numbers."""

    __slots__ = (
        "backlogged",
        "changes",
        "closed",
        "connected",
        "deferred",
        "dirty",
        "now",
        "overflowed",
        "pending_bytes",
        "questions",
        "tracer",
        "until_sample",
        "work",
    )

    def __init__(self) -> None:
        self.tracer: Tracer | None = None
        """Who is told what happens; set by `Broker.watch`."""
        self.until_sample = NO_SAMPLES
        """How many messages to let pass until one is followed, whatever its topic."""
        self.now = 0.0
        """The time of the latest input, in seconds of the shell's clock."""
        self.dirty: list[Outbox] = []
        """Outboxes with frames to write."""
        self.changes: list[Change] = []
        """To be made durable before those dirty outboxes that say `awaits_commit` are written."""
        self.questions: list[Question] = []
        self.connected: list[int] = []
        """Connections whose CONNECT was accepted."""
        self.closed: list[int] = []
        """Connections to close after a last write."""
        self.backlogged: list[int] = []
        """Connections whose session has more to send than one pass should: `Broker.tick` goes on with them."""
        self.deferred: list[int] = []
        """Connections of which more has come than was looked at: `Broker.feed` is to be given no bytes for them once
        the others had their turn, until they are not in here again. What comes meanwhile is kept behind that."""
        self.work = 0
        """What this iteration of the loop cost until now, as in `ITERATION_WORK`; the loop driver sets it back to 0."""
        self.overflowed: list[int] = []
        """Connections that reached a limit whose policy is to disconnect; seen to before the turn leaves the core."""
        self.pending_bytes = 0
        """About how much the dirty outboxes hold, counting shared bytes once for each holder."""


@final
class TopicAliases:
    """Which topics have which alias on one connection (5.0 §3.3.2.3.4)."""

    __slots__ = ("_alias_of", "_maximum", "_next", "_once", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum: Final = maximum
        self._alias_of: Final[dict[bytes, int]] = {}
        self._topics: Final[list[bytes]] = []  # by alias, from 1
        self._once: Final[set[bytes]] = set()  # seen once since all aliases were taken
        self._next = 0

    def use(self, topic: bytes) -> int:
        """As `Outbox.topic_alias`: from 1 to the maximum [MQTT-3.1.2-26] [MQTT-3.3.2-8] [MQTT-3.3.2-11]."""
        alias = self._alias_of.get(topic, 0)
        if alias:
            return alias
        if len(self._topics) < self._maximum:
            self._topics.append(topic)
            alias = len(self._topics)
        elif topic in self._once:
            self._once.discard(topic)
            alias = self._next + 1
            self._next = alias % self._maximum
            del self._alias_of[self._topics[alias - 1]]
            self._topics[alias - 1] = topic
        else:
            if len(self._once) >= ONCE_SEEN * self._maximum:
                self._once.clear()
            self._once.add(topic)
            return 0
        self._alias_of[topic] = alias
        return -alias


_NO_BACKLOG: Final[deque[tuple[bytes, int, int, float]]] = deque()
"""Never added to: it stands for that of a link that was never blocked, for a deque of its own takes 600 bytes."""


@final
class Outbox:
    """The frames that wait to be written to one link, and the count of what went through.

    While the link takes bytes they leave with the next flush. While it is `blocked`, QoS 0 messages are kept up to the
    limits and then dropped by policy; QoS 1 and 2 messages stay in the session; answers to the client's own packets
    are always kept, and a client that sends without reading until they fill the limit is cut off.
    """

    __slots__ = (
        "_aliases",
        "_backlog",
        "_backlog_bytes",
        "_backlog_messages",
        "_limits",
        "_waiting_bytes",
        "answer_bytes",
        "answers",
        "awaits_commit",
        "backlogged",
        "blocked",
        "bytes_sent",
        "chunks",
        "client_id",
        "dirty",
        "drops",
        "effects",
        "high_water_bytes",
        "high_water_messages",
        "max_packet_bytes",
        "number",
        "sent_qos0",
        "sent_qos1",
        "sent_qos2",
        "topic_alias_maximum",
        "traced",
        "version",
    )

    def __init__(self, number: int, effects: Effects, limits: Limits) -> None:
        self.number: Final = number
        self.effects: Final = effects
        self._limits: Final = limits
        self.version = 0
        self.max_packet_bytes = 0
        """The client's Maximum Packet Size; 0: none."""
        self.topic_alias_maximum = 0
        """How many topic aliases the client takes, and we give [MQTT-3.1.2-27]; 0 to any that is not 5.0."""
        self._aliases: TopicAliases | None = None
        self.chunks: list[bytes] = []
        # Pieces, their messages, the trace of one, and when they expire.
        self._backlog: deque[tuple[bytes, int, int, float]] = _NO_BACKLOG
        self._backlog_bytes = 0
        self._backlog_messages = 0
        self._waiting_bytes = 0
        self.blocked = False
        self.dirty = False
        self.awaits_commit = False
        self.backlogged = False
        """Whether it is in `Effects.backlogged`, which holds nobody twice: each call would win its session another
        turn."""
        self.sent_qos0 = 0
        self.sent_qos1 = 0
        self.sent_qos2 = 0
        self.bytes_sent = 0
        self.answers = 0
        """Packets to the client that are neither messages nor acknowledgements."""
        self.answer_bytes = 0
        self.high_water_bytes = 0
        self.high_water_messages = 0
        self.drops: dict[str, int] = {}
        self.client_id = ""
        """Whose it is, once CONNECT was accepted."""
        self.traced = False
        """Whether somebody wants to know when it is written, for messages in it are followed; he sets it back."""

    @property
    def waiting_bytes(self) -> int:
        """What is kept for a link that takes no bytes for now; 0 for one that does."""
        return self._waiting_bytes

    def offer(self, piece: bytes, messages: int, expires_at: float = 0.0) -> bool:
        """Take a piece of so many QoS 0 messages of one size, or drop by policy what a blocked link has no room for.

        They expire at that time; 0.0 is never. False: not all of them were taken.
        """
        if self.blocked:
            return self._hold(piece, messages, NOT_TRACED, expires_at)
        self.chunks.append(piece)
        self.sent_qos0 += messages
        if not self.dirty:
            self.dirty = True
            self.effects.dirty.append(self)
        return True

    def offer_traced(self, piece: bytes, trace: int, expires_at: float = 0.0) -> bool:
        """The same for one message that is followed."""
        if self.blocked:
            return self._hold(piece, 1, trace, expires_at)
        self.offer(piece, 1)
        self.tell_sent(trace, 0)
        return True

    def tell_sent(self, trace: int, qos: int) -> None:
        """A message that is followed was taken, and leaves with the next flush."""
        self.traced = True
        tracer = self.effects.tracer
        if tracer is not None:
            tracer.on_sent(trace, self.client_id, self.number, qos)

    def answer(self, frame: bytes) -> None:
        """Take a frame that is neither a message nor an acknowledgement."""
        self.answers += 1
        self.answer_bytes += len(frame)
        self.send(frame)

    def send(self, frame: bytes) -> None:
        """Take a frame that is not dropped: an answer, or a QoS 1 or 2 message that its session accounts for.

        The session's quota holds no answer back [MQTT-3.3.4-10] [MQTT-4.9.0-3].
        """
        self.chunks.append(frame)
        if self.blocked:
            self._waiting_bytes += len(frame)
            self._note_high_water()
            if self._waiting_bytes > self._limits.max_outbox_bytes:
                self._make_room()
        elif not self.dirty:
            self.dirty = True
            self.effects.dirty.append(self)

    def topic_alias(self, topic: bytes) -> int:
        """The alias to use for a topic now: 0 for none, negative where this message introduces it.

        While there are aliases left each topic gets one; then a topic that comes again takes over another's, in turn.
        A blocked link gets none: a message that may yet be dropped must not be the one that introduces an alias.
        """
        if self.blocked:
            return 0
        if self._aliases is None:
            self._aliases = TopicAliases(self.topic_alias_maximum)
        return self._aliases.use(topic)

    def too_large(self, size: int) -> bool:
        """Whether the client refuses a packet of that size; counted as dropped if so [MQTT-3.1.2-24]."""
        if 0 < self.max_packet_bytes < size:
            count(self.drops, PACKET_TOO_LARGE, 1)
            return True
        return False

    def take(self) -> bytes:
        """All that is to be written now, in one piece."""
        self.dirty = False
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.chunks = []
        self.bytes_sent += len(data)
        if self.blocked:
            self._waiting_bytes -= len(data)
        return data

    def take_first(self, frames: int) -> bytes:
        """The first so many frames in one piece; with others behind them the outbox stays dirty."""
        rest = self.chunks[frames:]
        del self.chunks[frames:]
        data = self.take()
        if rest:
            self.chunks = rest
            self.dirty = True
        return data

    def block(self) -> None:
        """The link takes no more for now."""
        self.blocked = True
        self._waiting_bytes = 0
        for chunk in self.chunks:
            self._waiting_bytes += len(chunk)

    def unblock(self) -> None:
        """The link takes bytes again: what was kept leaves, in its order, but for what expired [MQTT-3.3.2-5]."""
        self.blocked = False
        now = self.effects.now
        for piece, messages, trace, expires_at in self._backlog:
            if 0.0 < expires_at <= now:
                self._drop_expired(piece, messages, trace)
                continue
            if expires_at and self.version == V5:
                piece = with_time_left(piece, messages, max(1, int(expires_at - now + 0.5)))
            self.chunks.append(piece)
            self.sent_qos0 += messages
            if trace:
                self.tell_sent(trace, 0)
        self._backlog = _NO_BACKLOG
        self._backlog_bytes = 0
        self._backlog_messages = 0
        self._waiting_bytes = 0
        if self.chunks and not self.dirty:
            self.dirty = True
            self.effects.dirty.append(self)

    def give_up(self) -> None:
        """The connection ends: QoS 0 messages that still wait for the link are dropped, and counted."""
        self._drop_kept(is_full=False)

    def _drop_expired(self, piece: bytes, messages: int, trace: int) -> None:
        count(self.drops, EXPIRED, messages)
        tracer = self.effects.tracer
        if tracer is not None:
            tracer.on_dropped(trace, self.client_id, _topic_in(piece), EXPIRED, messages, "")

    def _hold(self, piece: bytes, messages: int, trace: int, expires_at: float) -> bool:
        limits = self._limits
        size = len(piece) // messages
        drop_oldest = limits.on_overflow == DROP_OLDEST
        room = self._room(size, drop_oldest)
        all_taken = room >= messages
        if not all_taken:
            self._drop(piece, messages - room, trace)
            if limits.on_overflow == DISCONNECT:
                self.effects.overflowed.append(self.number)
            piece = piece[(messages - room) * size :] if drop_oldest else piece[: room * size]
            messages = room
        if messages:
            if drop_oldest and all_taken:
                self._drop_oldest(len(piece), messages)
            elif drop_oldest:  # some of those that came just now are dropped, and all that are kept are older
                self._drop_kept(is_full=True)
            if self._backlog is _NO_BACKLOG:
                self._backlog = deque()
            self._backlog.append((piece, messages, trace, expires_at))
            self._backlog_bytes += len(piece)
            self._backlog_messages += messages
            self._waiting_bytes += len(piece)
            self._note_high_water()
            tracer = self.effects.tracer
            if trace and tracer is not None:
                waiting, most = self._backlog_messages, limits.max_outbox_messages
                tracer.on_queued(trace, self.client_id, BACKPRESSURE, waiting, most)
        return all_taken

    def _room(self, size: int, in_place_of_the_kept: bool) -> int:
        """How many messages of that size still fit, beside those that are kept or in their place."""
        limits = self._limits
        free_bytes = limits.max_outbox_bytes - self._waiting_bytes
        free_messages = limits.max_outbox_messages - self._backlog_messages
        if in_place_of_the_kept:
            free_bytes += self._backlog_bytes
            free_messages += self._backlog_messages
        return max(0, min(free_bytes // size, free_messages))

    def _drop_kept(self, is_full: bool) -> None:
        for piece, messages, trace, _expires_at in self._backlog:
            self._drop(piece, messages, trace, is_full)
        self._waiting_bytes -= self._backlog_bytes
        self._backlog = _NO_BACKLOG
        self._backlog_bytes = 0
        self._backlog_messages = 0

    def _drop_oldest(self, size: int, messages: int) -> None:
        """Drop kept messages, the oldest first and no more than needed, until so many of `size` bytes in all fit.

        Or until none is left.
        """
        limits = self._limits
        while self._backlog:
            excess_bytes = self._waiting_bytes + size - limits.max_outbox_bytes
            excess_messages = self._backlog_messages + messages - limits.max_outbox_messages
            if excess_bytes <= 0 and excess_messages <= 0:
                return
            piece, kept, trace, expires_at = self._backlog.popleft()
            each = len(piece) // kept
            dropped = min(kept, max(excess_messages, (excess_bytes + each - 1) // each))
            self._drop(piece, dropped, trace)
            self._backlog_bytes -= dropped * each
            self._backlog_messages -= dropped
            self._waiting_bytes -= dropped * each
            if dropped < kept:
                self._backlog.appendleft((piece[dropped * each :], kept - dropped, trace, expires_at))

    def _drop(self, piece: bytes, messages: int, trace: int, is_full: bool = True) -> None:
        """So many messages of a piece find no room, or nobody any more to whom they could be sent."""
        count(self.drops, BUFFER_FULL, messages)
        tracer = self.effects.tracer
        if tracer is not None:
            limits = self._limits
            detail = ""
            if is_full and self._backlog_messages + messages > limits.max_outbox_messages:
                detail = f"{self._backlog_messages}/{limits.max_outbox_messages}"
            elif is_full:
                detail = f"{self._waiting_bytes}/{limits.max_outbox_bytes} bytes"
            tracer.on_dropped(trace, self.client_id, _topic_in(piece), BUFFER_FULL, messages, detail)

    def _make_room(self) -> None:
        """Answers outgrew the limit: QoS 0 messages give way, and if there are none the client is cut off."""
        self._drop_oldest(0, 0)
        if self._waiting_bytes > self._limits.max_outbox_bytes:
            self.effects.overflowed.append(self.number)

    def _note_high_water(self) -> None:
        if self._waiting_bytes > self.high_water_bytes:
            self.high_water_bytes = self._waiting_bytes
        if self._backlog_messages > self.high_water_messages:
            self.high_water_messages = self._backlog_messages


def _topic_in(packets: bytes) -> bytes:
    """The topic of the first of these PUBLISH packets."""
    at = 1
    while packets[at] > 127:
        at += 1
    at += 3
    return packets[at : at + (packets[at - 2] << 8 | packets[at - 1])]


NO_OUTBOXES: Final[list[Outbox]] = []
"""Never added to: most lists of outboxes are empty, and a list of its own takes as much as a receiver."""
