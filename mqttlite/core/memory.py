"""The memory account: how much memory all waiting and kept data of clients takes.

Queues, windows, outboxes, retained messages, subscriptions, sessions and connections charge the real cost of an entry
here, including its objects. A message or frame with many holders is charged once. Invariant: `used` is the sum of all
current charges. It is accurate to about a tenth; a test compares it with the allocator.
"""

from typing import Final, final

from mqttlite.wire.packets import Connect, Will

NO_LIMIT: Final = 1 << 62

MESSAGE_BYTES: Final = 364
"""A message without the bytes of its topic and payload: its objects, and the delivery that most receivers share."""

BATCH_BYTES: Final = 280
"""The same for a batch."""

ENTRY_BYTES: Final = 16
"""The memory of an entry of a queue without the message: a reference here and one in the memory store."""

PLACE_BYTES: Final = 8
"""The memory of an entry in a blocked outbox, without the frame."""

INFLIGHT_BYTES: Final = 130
"""The memory of the window's entry for an unacknowledged message, without the message."""

FRAME_BYTES: Final = 105
"""The memory of a frame of QoS 0 messages that waits in an outbox, without its bytes: its two objects."""

CHUNK_BYTES: Final = 41
"""The same for an answer, which waits as plain bytes."""

CONNECTION_BYTES: Final = 2_500
"""A connection with its socket, transport and outbox."""

TLS_BYTES: Final = 60_000
"""The memory that TLS adds to a connection."""

SESSION_BYTES: Final = 1_400
"""A session without messages and subscriptions."""

SUBSCRIPTION_BYTES: Final = 160
"""A subscription with its part of the tree. One and a half times the topic filter is added."""

RETAINED_BYTES: Final = 160
BUCKET_BYTES: Final = 280
"""The memory of a retained message's table entries, without its topic (stored twice), and of a topic prefix."""

WRITER_BYTES: Final = 100
"""The memory of the writer of retained messages, without its names."""

DELAYED_BYTES: Final = 400
"""The memory of a delayed message's deadline, and of its table entries in the broker and the store."""


class Holdable:
    """Data that several sessions may hold at the same time: its memory in bytes, and the number of holders."""

    __slots__ = ("holders", "memory_bytes")

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes: Final = memory_bytes
        self.holders: int = 0


@final
class MemoryAccount:
    """`limit` is in bytes; 0: none."""

    __slots__ = ("droppable", "enough_below", "half", "limit", "shared", "shed_above", "sheds", "used")

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit or NO_LIMIT
        self.shared: Final = self.limit // 16 * 15
        """How many bytes queues, outboxes and other holders may use together."""
        self.half: Final = self.shared // 2
        """While at most this much is used, every holder has room."""
        self.shed_above: Final = self.limit // 8 * 7
        """When more is used, the largest outboxes lose their QoS 0 messages, so that new clients find memory."""
        self.enough_below: Final = self.limit // 4 * 3
        """When less is used, a shortage is over."""
        self.used: int = 0
        self.droppable: int = 0
        """The part of `used` for QoS 0 messages in outboxes."""
        self.sheds: int = 0
        """How often a client lost its waiting QoS 0 messages because memory was short."""

    def room_for(self, held: int) -> int:
        """How many more bytes a holder that has `held` bytes may take.

        The limit for one holder is the amount of free memory (the dynamic threshold of Choudhury and Hahne, 1998). The
        less is free, the sooner large holders are refused, while small ones still find room. A sixteenth is reserved
        for new connections and sessions.
        """
        return self.shared - self.used - held

    def is_full(self) -> bool:
        return self.used >= self.limit

    def detail(self) -> str:
        """The detail for a drop reason: how short memory is."""
        return f"memory: {self.used}/{self.limit} bytes"

    def hold(self, what: Holdable, place_bytes: int = 0) -> int:
        """Charge one more holder of a message or batch, and its entry there. Return the size of both."""
        size = what.memory_bytes
        self.used += place_bytes if what.holders else place_bytes + size
        what.holders += 1
        return place_bytes + size

    def let_go(self, what: Holdable, place_bytes: int = 0) -> int:
        """The reverse of `hold`. Return the same size."""
        size = what.memory_bytes
        what.holders -= 1
        self.used -= place_bytes if what.holders else place_bytes + size
        return place_bytes + size

    def hold_frame(self, frame: Holdable) -> int:
        """Charge a frame of droppable QoS 0 messages in an outbox. Return its size for the outbox."""
        before = self.used
        size = self.hold(frame, PLACE_BYTES)
        self.droppable += self.used - before
        return size

    def let_go_frame(self, frame: Holdable) -> int:
        """The reverse of `hold_frame`. Return the same size."""
        before = self.used
        size = self.let_go(frame, PLACE_BYTES)
        self.droppable += self.used - before
        return size


def text_bytes(text: str) -> int:
    """The memory of a string: four bytes for each character if one of them is an emoji."""
    return 50 + (len(text) if text.isascii() else 4 * len(text))


def will_bytes(will: Will) -> int:
    """The memory of a will while it waits."""
    return MESSAGE_BYTES + len(will.topic) + len(will.payload) + will.properties.size()


def connect_bytes(packet: Connect) -> int:
    """The memory of a CONNECT while it waits for a verdict."""
    size = MESSAGE_BYTES + text_bytes(packet.username or "") + len(packet.password or b"") + packet.properties.size()
    return size if packet.will is None else size + will_bytes(packet.will)
