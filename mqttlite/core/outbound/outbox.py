"""The outgoing half of a connection: the frames to write to one link, and the backlog while that link is blocked.

Sessions and the router put frames into an outbox; the loop driver writes them. Invariant: an outbox with frames to
write and an unblocked link is in `OutboxEffects.dirty`, or the loop driver has it.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.limits import DISCONNECT, DROP_NEWEST, DROP_OLDEST, MAX_ALIASED_TOPIC_BYTES, SENDING_BYTES, Limits
from mqttlite.core.memory import CHUNK_BYTES, FRAME_BYTES, PLACE_BYTES, MemoryAccount
from mqttlite.core.outbound.held_frame import NO_FRAME, HeldFrame
from mqttlite.core.outbound.pace import Pace
from mqttlite.core.outbound.topic_aliases import TopicAliases
from mqttlite.core.reasons import BUFFER_FULL, EXPIRED, PACKET_TOO_LARGE, RATE_LIMITED, count
from mqttlite.core.tracer import BACKPRESSURE, NOT_TRACED, Tracer
from mqttlite.wire.constants import V5
from mqttlite.wire.expiry import with_time_left


class OutboxEffects:
    """The part of `Effects` that an outbox knows."""

    __slots__ = ("dirty", "latest_frame", "memory", "now", "overflowed", "tracer")

    def __init__(self, memory: MemoryAccount) -> None:
        self.memory: Final = memory
        self.latest_frame: HeldFrame = NO_FRAME
        """The latest frame that a blocked outbox kept. The next outbox often keeps the same one."""
        self.tracer: Tracer | None = None
        """Gets reports of what happens; set by `Broker.watch`."""
        self.now: float = 0.0
        """The time of the latest input, in seconds of the loop's clock."""
        self.dirty: list[Outbox] = []
        """Outboxes with frames to write, each of them once."""
        self.overflowed: list[int] = []
        """Connections that reached a limit whose policy is `disconnect`. The broker closes them before it returns from
        the input."""


_NO_BACKLOG: Final[deque[HeldFrame]] = deque()
"""Never added to. Shared by links that were never blocked, because a deque takes 600 bytes."""

_ENTRY_BYTES: Final = 32
"""The bytes added to each backlog entry's own in limits: moving an entry takes as long as copying this many bytes."""


YIELDS: Final = "QoS 1 and 2 messages wait for the client, and QoS 0 gives way to them"
"""The detail of a drop, for an outbox that `yields`."""


@final
class Outbox:
    """The frames that wait for one link, and the counts of what was sent.

    While the link takes bytes, frames leave with the next flush. While the outbox is `blocked`, it keeps QoS 0 messages
    up to the limits and drops the excess by policy; QoS 1 and 2 messages stay in the session. It always keeps answers
    to the client's own packets, and disconnects a client whose answers alone exceed the limit.
    """

    __slots__ = (
        "_aliases",
        "_backlog",
        "_backlog_bytes",
        "_backlog_messages",
        "_chunk_bytes",
        "_limits",
        "_link_bytes",
        "_memory",
        "answer_bytes",
        "answers",
        "awaits_commit",
        "backlogged",
        "blocked",
        "bytes_sent",
        "chunks",
        "client_id",
        "dirty",
        "draining",
        "drops",
        "effects",
        "has_own_packets",
        "high_water_bytes",
        "high_water_messages",
        "link_blocked",
        "max_packet_bytes",
        "mount_point",
        "number",
        "pace",
        "sees_publishers",
        "sent_qos0",
        "sent_qos1",
        "sent_qos2",
        "tells",
        "topic_alias_maximum",
        "traced",
        "version",
        "yields",
    )

    def __init__(self, number: int, effects: OutboxEffects, limits: Limits) -> None:
        self.number: Final = number
        self.effects: Final = effects
        self._limits: Final = limits
        self._memory: Final = effects.memory
        self.version: int = 0
        self.max_packet_bytes: int = 0
        """The client's Maximum Packet Size; 0 means none."""
        self.has_own_packets: bool = False
        """Whether packets that were built for others must be checked or changed for this client."""
        self.tells: bool = False
        """Whether its messages carry their identity: see `told_properties`."""
        self.sees_publishers: bool = False
        """Whether they also name the publisher, whatever the topic's policy says."""
        self.mount_point: bytes = b""
        """The prefix that is removed from topics, so that the client does not see it."""
        self.topic_alias_maximum: int = 0
        """How many topic aliases the broker may use to the client [MQTT-3.1.2-27]; 0 before 5.0."""
        self._aliases: TopicAliases | None = None
        self.chunks: list[bytes] = []
        self._backlog = _NO_BACKLOG
        self._backlog_bytes = 0
        self._backlog_messages = 0
        self._chunk_bytes = 0
        self._link_bytes = 0
        self.blocked: bool = False
        """Whether new messages must wait: the link takes no bytes, or the backlog has not moved yet."""
        self.link_blocked: bool = False
        """Whether the link takes no bytes. If it does take them, a blocked outbox is draining, or waits for its
        pace."""
        self.pace: Pace | None = None
        """The rate limit for messages to the client; None: no limit."""
        self.draining: bool = False
        """Whether the link takes bytes again and the backlog moves in parts. `blocked` stays true until the last
        part."""
        self.yields: bool = False
        """Whether many QoS 1 and 2 messages wait for this blocked outbox. It then keeps no further QoS 0 messages."""
        self.dirty: bool = False
        self.awaits_commit: bool = False
        self.backlogged: bool = False
        """Whether it is in `Effects.backlogged`. It must be there only once, because each entry gets a share of an
        iteration."""
        self.sent_qos0: int = 0
        self.sent_qos1: int = 0
        self.sent_qos2: int = 0
        self.bytes_sent: int = 0
        self.answers: int = 0
        """Packets to the client other than messages and acknowledgements."""
        self.answer_bytes: int = 0
        self.high_water_bytes: int = 0
        self.high_water_messages: int = 0
        self.drops: dict[str, int] = {}
        self.client_id: str = ""
        """The client identifier, after CONNECT was accepted."""
        self.traced: bool = False
        """Whether it holds traced messages. The loop driver then reports when it writes them, and resets this."""

    @property
    def waiting_bytes(self) -> int:
        """The memory of the frames that wait because the outbox is blocked; 0 while it is not."""
        return self._backlog_bytes + self._chunk_bytes

    @property
    def is_paced(self) -> bool:
        """Whether it waits for its pace."""
        return self.pace is not None and self.pace.holds

    @property
    def messages_sent(self) -> int:
        return self.sent_qos0 + self.sent_qos1 + self.sent_qos2

    @property
    def backlog_bytes(self) -> int:
        """The part of `waiting_bytes` that `shed` would drop: QoS 0 messages."""
        return self._backlog_bytes

    @property
    def held_bytes(self) -> int:
        """`waiting_bytes`, plus the bytes that the blocked link holds unsent."""
        return self._backlog_bytes + self._chunk_bytes + self._link_bytes

    def offer(self, piece: bytes, messages: int, expires_at: float = 0.0, on_overflow: str = "") -> str:
        """Take a piece of `messages` QoS 0 messages of one size. While blocked, drop by policy what does not fit.

        `expires_at` 0.0 is never. An empty `on_overflow` stands for the policy of the limits. Return why the outbox
        dropped some of them; empty if it took all.
        """
        if self.blocked:
            return self._hold(piece, messages, NOT_TRACED, expires_at, on_overflow)
        self.chunks.append(piece)
        self.sent_qos0 += messages
        if not self.dirty:
            self.dirty = True
            self.effects.dirty.append(self)
        return ""

    def would_drop(self, size: int, on_overflow: str = "") -> str:
        """Why `offer` would not take a message of this size; empty if it would."""
        if not self.blocked:
            return ""
        if self._is_over_rate():
            return RATE_LIMITED
        on_overflow = on_overflow or self._limits.on_overflow
        if self._gives_way(on_overflow) or not self._room(size, on_overflow == DROP_OLDEST):
            return BUFFER_FULL
        return ""

    def offer_traced(self, piece: bytes, trace: int, expires_at: float = 0.0, on_overflow: str = "") -> str:
        """The same for one traced message."""
        if self.blocked:
            return self._hold(piece, 1, trace, expires_at, on_overflow)
        self.offer(piece, 1)
        self.tell_sent(trace, 0)
        return ""

    def tell_sent(self, trace: int, qos: int) -> None:
        """Report to the tracer that a traced message leaves with the next flush."""
        self.traced = True
        tracer = self.effects.tracer
        if tracer is not None:
            tracer.on_sent(trace, self.client_id, self.number, qos)

    def answer(self, frame: bytes) -> None:
        """Take a frame other than a message or an acknowledgement."""
        self.answers += 1
        self.answer_bytes += len(frame)
        self.send(frame)

    def send(self, frame: bytes) -> None:
        """Take a frame that is never dropped: an answer, or a QoS 1 or 2 message that its session accounts for.

        Answers do not wait for the session's quota [MQTT-3.3.4-10] [MQTT-4.9.0-3].
        """
        self.chunks.append(frame)
        if self.blocked:
            self._charge(len(frame) + CHUNK_BYTES)
            self._note_high_water()
            if self.waiting_bytes > self._limits.max_outbox_bytes:
                self._make_room()
            if self.link_blocked:
                return
        if not self.dirty:
            self.dirty = True
            self.effects.dirty.append(self)

    def limit_packets(self, max_packet_bytes: int) -> None:
        """Set the client's Maximum Packet Size; 0: none."""
        self.max_packet_bytes = max_packet_bytes
        self.has_own_packets |= max_packet_bytes > 0

    def mount(self, mount_point: bytes) -> None:
        """Set the mount point of the client."""
        self.mount_point = mount_point
        self.has_own_packets = True

    def tell(self, sees_publishers: bool) -> None:
        """Let the messages carry their identity."""
        self.tells, self.sees_publishers = True, sees_publishers
        self.has_own_packets = True

    def topic_alias(self, topic: bytes) -> int:
        """The alias to use for a topic: 0 is none; this message introduces a negative one.

        Each topic gets an alias while some are unused. After that, a topic that repeats takes over the aliases of other
        topics in turn. A blocked outbox gives no alias, because a message that may be dropped must not introduce one.
        """
        if self.blocked or len(topic) > MAX_ALIASED_TOPIC_BYTES:
            return 0
        if self._aliases is None:
            self._aliases = TopicAliases(self.topic_alias_maximum)
        return self._aliases.use(topic)

    def is_too_large(self, size: int) -> bool:
        """Whether a packet of this size exceeds the client's maximum [MQTT-3.1.2-24]."""
        return 0 < self.max_packet_bytes < size

    def drop_too_large(self, size: int, topic: bytes, trace: int) -> None:
        """Count a message whose packet is too large, and report it to the tracer [MQTT-3.1.2-25]."""
        count(self.drops, PACKET_TOO_LARGE, 1)
        tracer = self.effects.tracer
        if tracer is not None:
            detail = f"{size}/{self.max_packet_bytes} bytes"
            tracer.on_dropped(trace, self.client_id, topic, PACKET_TOO_LARGE, 1, detail)

    def take(self) -> bytes:
        """Take everything to write now, in one piece."""
        self.dirty = False
        chunks = self.chunks
        data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
        self.chunks = []
        self.bytes_sent += len(data)
        if self._chunk_bytes:
            self._charge(-self._chunk_bytes)
        if self.pace is not None and self.pace.charge(self.messages_sent, len(data), self.effects.now):
            self._hold_back()
        return data

    def take_first(self, frames: int) -> bytes:
        """Take the first `frames` frames in one piece. If frames remain, the outbox stays dirty."""
        rest = self.chunks[frames:]
        del self.chunks[frames:]
        data = self.take()
        if rest:
            self.chunks = rest
            self.dirty = True
            if self.blocked:
                self._charge(_memory_of(rest))
        return data

    def take_out(self, frame: bytes, before: int) -> tuple[int, int]:
        """Remove a frame wherever it waits. Return how often it occurred, and how often before position `before`."""
        kept: list[bytes] = []
        found = in_front = 0
        for at, chunk in enumerate(self.chunks):
            if chunk == frame:
                found += 1
                in_front += at < before
            else:
                kept.append(chunk)
        if found:
            self.chunks = kept
            self.bytes_sent += found * len(frame)
            if self.blocked:
                self._charge(-found * (len(frame) + CHUNK_BYTES))
        return found, in_front

    def block(self, unsent_bytes: int = 0) -> None:
        """The link stopped taking bytes, and still holds `unsent_bytes`.

        Harmless if the outbox is blocked already.
        """
        self.link_blocked = True
        self._hold_back()
        self._memory.used += unsent_bytes - self._link_bytes
        self._link_bytes = unsent_bytes

    def _hold_back(self) -> None:
        """Make new messages wait."""
        self.blocked = True
        self.draining = False
        self._charge(_memory_of(self.chunks) - self._chunk_bytes)

    def unblock_link(self) -> bool:
        """The link takes bytes again. Return whether the backlog may leave, or must wait for the outbox's pace."""
        self.link_blocked = False
        return not self.is_paced

    def unblock(self) -> None:
        """The link takes bytes again: release the whole backlog at once, in order. `drain` releases it in parts."""
        self.drain(self._backlog_bytes + (_ENTRY_BYTES + SENDING_BYTES) * self._backlog_messages)

    def drain(self, max_bytes: int) -> int:
        """The link takes bytes again: release about `max_bytes` of the backlog. Return how many it was.

        Expired messages are dropped [MQTT-3.3.2-5]. The outbox is `draining` until the backlog is empty, then
        unblocked.
        """
        self.link_blocked = False
        self._memory.used -= self._link_bytes
        self._link_bytes = 0
        now = self.effects.now
        backlog = self._backlog
        chunks = self.chunks
        moved = kept_bytes = moved_messages = sent = 0
        while backlog and moved < max_bytes:
            frame = backlog.popleft()
            piece, messages = frame.piece, frame.messages
            moved += len(piece) + _ENTRY_BYTES
            self._backlog_bytes -= self._memory.let_go_frame(frame)
            moved_messages += messages
            if frame.expires_at:
                if frame.expires_at <= now:
                    self._drop(frame, messages, EXPIRED, "")
                    continue
                if self.version == V5:
                    moved += messages * SENDING_BYTES
                    piece = with_time_left(piece, messages, max(1, int(frame.expires_at - now + 0.5)))
            chunks.append(piece)
            kept_bytes += len(piece) + CHUNK_BYTES
            sent += messages
            if frame.trace:
                self.tell_sent(frame.trace, 0)
        self._backlog_messages -= moved_messages
        self.sent_qos0 += sent
        self.draining = len(self._backlog) > 0
        if self.draining:
            self._charge(kept_bytes)
        else:
            self._backlog = _NO_BACKLOG
            self._charge(-self._chunk_bytes)
            self.blocked = False
        if self.chunks and not self.dirty:
            self.dirty = True
            self.effects.dirty.append(self)
        return moved

    def give_up(self) -> None:
        """The connection ends: drop and count the QoS 0 messages that wait for the link."""
        self._drop_kept("")

    def release(self) -> None:
        """The connection has ended: return its memory charges, even if the link still sends."""
        self.blocked = self.link_blocked = False
        self.pace = None
        self._charge(-self._chunk_bytes)
        self._memory.used -= self._link_bytes
        self._link_bytes = 0

    def shed(self) -> int:
        """Memory is short: drop the QoS 0 messages that wait for the link. Return how many."""
        messages = self._backlog_messages
        self._drop_kept(self._memory.detail())
        return messages

    def has_room(self, size: int) -> bool:
        """Whether a QoS 0 message of `size` bytes would be taken without dropping another."""
        if not self.blocked:
            return True
        return not self._is_over_rate() and self._room(size, False) > 0

    def _is_over_rate(self) -> bool:
        """Whether only the pace holds a blocked outbox back. It keeps no QoS 0 messages then."""
        return not self.link_blocked and self.is_paced

    def _gives_way(self, on_overflow: str) -> bool:
        """Whether a blocked outbox keeps no QoS 0 messages, because many of QoS 1 and 2 wait for the client."""
        return self.yields and on_overflow == DROP_NEWEST

    def _hold(self, piece: bytes, messages: int, trace: int, expires_at: float, on_overflow: str) -> str:
        """Keep the messages that there is room for. Return why some were dropped; empty if it kept all."""
        limits = self._limits
        on_overflow = on_overflow or limits.on_overflow
        frame = self.effects.latest_frame
        if frame.piece is not piece or frame.trace != trace:
            frame = self.effects.latest_frame = HeldFrame(piece, messages, trace, expires_at)
        if self._is_over_rate():
            self._drop(frame, messages, RATE_LIMITED, "")
            return RATE_LIMITED
        drop_oldest = on_overflow == DROP_OLDEST
        gives_way = self._gives_way(on_overflow)
        room = 0 if gives_way else self._room(frame.size, drop_oldest)
        all_taken = room >= messages
        if not all_taken:
            why = YIELDS if gives_way else self._why_full(messages, frame.size * messages)
            self._drop(frame, messages - room, BUFFER_FULL, why)
            if on_overflow == DISCONNECT:
                self.effects.overflowed.append(self.number)
            if room == 0:
                return BUFFER_FULL
            frame = frame.last(room) if drop_oldest else frame.first(room)
        if drop_oldest and all_taken:
            self._drop_oldest(PLACE_BYTES + frame.memory_bytes, messages)
        elif drop_oldest:  # some new messages are dropped, so all older kept ones are, too
            self._drop_kept(self._why_full(messages, frame.size * messages))
        self._keep(frame)
        if self._backlog is _NO_BACKLOG:
            self._backlog = deque()
        self._backlog.append(frame)
        self._note_high_water()
        tracer = self.effects.tracer
        if trace and tracer is not None:
            waiting, most = self._backlog_messages, limits.max_outbox_messages
            tracer.on_queued(trace, self.client_id, BACKPRESSURE, waiting, most)
        return "" if all_taken else BUFFER_FULL

    def _keep(self, frame: HeldFrame) -> None:
        self._backlog_bytes += self._memory.hold_frame(frame)
        self._backlog_messages += frame.messages

    def _let_go(self, frame: HeldFrame) -> None:
        self._backlog_bytes -= self._memory.let_go_frame(frame)
        self._backlog_messages -= frame.messages

    def _room(self, size: int, in_place_of_the_kept: bool) -> int:
        """How many messages of this size fit in addition to the kept ones, or in their place."""
        limits = self._limits
        free_bytes = self._free_bytes() - PLACE_BYTES - FRAME_BYTES
        free_messages = limits.max_outbox_messages - self._backlog_messages
        if in_place_of_the_kept:
            free_bytes += self._backlog_bytes
            free_messages += self._backlog_messages
        return max(0, min(free_bytes // size, free_messages))

    def _free_bytes(self) -> int:
        """How many more bytes may wait here."""
        held = self.held_bytes
        free = self._limits.max_outbox_bytes - held
        room = self._memory.room_for(held)
        return free if free < room else room

    def _charge(self, size: int) -> None:
        """Change the count of bytes that wait in answers by `size`."""
        self._chunk_bytes += size
        self._memory.used += size

    def _drop_kept(self, detail: str) -> None:
        for frame in self._backlog:
            self._drop(frame, frame.messages, BUFFER_FULL, detail)
            self._let_go(frame)
        self._backlog = _NO_BACKLOG

    def _drop_oldest(self, size: int, messages: int) -> None:
        """Drop kept messages, oldest first, until `messages` messages of `size` bytes in all fit or none is left."""
        while self._backlog:
            excess_bytes = size - self._free_bytes()
            excess_messages = self._backlog_messages + messages - self._limits.max_outbox_messages
            if excess_bytes <= 0 and excess_messages <= 0:
                return
            frame = self._backlog.popleft()
            dropped = min(frame.messages, max(excess_messages, (excess_bytes + frame.size - 1) // frame.size))
            self._drop(frame, dropped, BUFFER_FULL, self._why_full(messages, size))
            self._let_go(frame)
            if dropped < frame.messages:
                rest = frame.last(frame.messages - dropped)
                self._keep(rest)
                self._backlog.appendleft(rest)

    def _drop(self, frame: HeldFrame, messages: int, reason: str, detail: str) -> None:
        """Count dropped messages of a frame, and report them to the tracer."""
        count(self.drops, reason, messages)
        tracer = self.effects.tracer
        if tracer is not None:
            tracer.on_dropped(frame.trace, self.client_id, frame.topic(), reason, messages, detail)

    def _why_full(self, messages: int, size: int) -> str:
        """Which limit leaves no room for `messages` more, of `size` bytes in all."""
        limits = self._limits
        if self._backlog_messages + messages > limits.max_outbox_messages:
            return f"{self._backlog_messages}/{limits.max_outbox_messages}"
        held = self.held_bytes
        if self._memory.room_for(held) < limits.max_outbox_bytes - held:
            return self._memory.detail()
        return f"{held}+{size}/{limits.max_outbox_bytes} bytes"

    def _make_room(self) -> None:
        """Answers exceed the limit: drop QoS 0 messages, and disconnect the client if that is not enough."""
        self._drop_oldest(0, 0)
        if self.waiting_bytes > self._limits.max_outbox_bytes:
            self.effects.overflowed.append(self.number)

    def _note_high_water(self) -> None:
        waiting = self.waiting_bytes
        if waiting > self.high_water_bytes:
            self.high_water_bytes = waiting
        if self._backlog_messages > self.high_water_messages:
            self.high_water_messages = self._backlog_messages


def _memory_of(chunks: list[bytes]) -> int:
    size = CHUNK_BYTES * len(chunks)
    for chunk in chunks:
        size += len(chunk)
    return size


NO_OUTBOXES: Final[list[Outbox]] = []
"""Never added to. Most lists of outboxes are empty, and a list takes as much memory as a receiver."""
