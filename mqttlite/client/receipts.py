"""Messages that the program acknowledges itself: which they are, and when their acknowledgements may leave.

PUBACK packets leave in the order in which their messages came [MQTT-4.6.0-2], and so do PUBREC packets [MQTT-4.6.0-3]:
an acknowledgement waits for those before it, also for those that the client sends by itself. Invariant: each message is
acknowledged once on the connection on which it came, or not at all.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, final

from mqttlite.client.topics import matches
from mqttlite.wire.constants import PUBACK, PUBREC
from mqttlite.wire.encode import encode_ack
from mqttlite.wire.errors import ReceiveMaximumExceeded

_QUEUE: Final = "$queue/"


@final
class Receipt:
    """A message of QoS 1 or 2 that came on a connection. Its acknowledgement is written when its turn has come."""

    __slots__ = ("_receipts", "code", "is_open", "packet_id", "qos")

    def __init__(self, receipts: "Receipts", packet_id: int, qos: int) -> None:
        self._receipts: Final = receipts
        self.packet_id: Final = packet_id
        self.qos: Final = qos
        self.code: int = -1
        """With which it was acknowledged; -1: not yet."""
        self.is_open: bool = True
        """Whether it can be acknowledged with a packet: not twice, and not when its connection is gone."""

    @property
    def is_next(self) -> bool:
        """Whether its acknowledgement would leave at once."""
        return self.is_open and self._receipts.is_next(self)

    def settle(self, reason_code: int = 0) -> bool:
        """Acknowledge the message; False where that was done, or cannot be done any more."""
        return self._receipts.settle(self, reason_code)


@final
class Receipts:
    """Those of one client. `receive_maximum` is how many messages of a QoS may be without an acknowledgement, and
    `on_refused` hears the packet identifiers of messages of QoS 2 that end with PUBREC [MQTT-4.3.3-9]."""

    def __init__(self, version: int, receive_maximum: int, on_refused: Callable[[int], None]) -> None:
        self._on_refused: Final = on_refused
        self._version: Final = version
        self._receive_maximum: Final = receive_maximum
        self._filters: Final[dict[str, None]] = {}
        self._waiting: Final[tuple[deque[Receipt], ...]] = (deque(), deque(), deque())
        """By QoS, in the order in which they came on this connection."""
        self._second: Final[dict[int, Receipt]] = {}
        """Those of QoS 2 without PUBREC, by packet identifier, also of earlier connections of the session."""
        self._write: Callable[[bytes], object] | None = None

    def keep(self, topic_filter: str, *, is_manual: bool) -> None:
        """The program acknowledges the messages of a filter, or not any more."""
        if is_manual:
            self._filters[topic_filter] = None
        else:
            self._filters.pop(topic_filter, None)

    def is_manual(self, topic: str) -> bool:
        """Whether the program acknowledges a message itself."""
        return bool(self._filters) and any(_takes(each, topic) for each in self._filters)

    # ------------------------------------------------------------------ messages

    def add(self, packet_id: int, qos: int) -> Receipt:
        """A message came that the program acknowledges. Raises `ReceiveMaximumExceeded`."""
        waiting = self._waiting[qos]
        if len(waiting) >= self._receive_maximum:
            raise ReceiveMaximumExceeded(f"more than {self._receive_maximum} messages [MQTT-3.1.2-27]")
        receipt = Receipt(self, packet_id, qos)
        waiting.append(receipt)
        if qos == 2:
            self._second[packet_id] = receipt
        return receipt

    def acknowledge(self, packet_id: int, qos: int) -> None:
        """A message came that the client acknowledges by itself: now, or when its turn has come."""
        if self._waiting[qos]:
            self.add(packet_id, qos).settle()
        else:
            self._send(packet_id, qos, 0)

    def came_again(self, packet_id: int) -> None:
        """A message of QoS 2 came again: PUBREC is due, at once or when the program says so."""
        receipt = self._second.get(packet_id)
        if receipt is None:
            self.acknowledge(packet_id, 2)
        elif not receipt.is_open:
            receipt.is_open = True
            self._waiting[2].append(receipt)
            self._flush(2)

    def is_next(self, receipt: Receipt) -> bool:
        waiting = self._waiting[receipt.qos]
        return bool(waiting) and waiting[0] is receipt

    def settle(self, receipt: Receipt, reason_code: int) -> bool:
        """As `Receipt.settle`."""
        remembers = self._second.get(receipt.packet_id) is receipt
        if receipt.code >= 0 or not (receipt.is_open or remembers):
            return False
        receipt.code = reason_code
        self._flush(receipt.qos)
        return True

    # ------------------------------------------------------------------ connections

    def suspend(self) -> None:
        """The connection is gone, and what came on it can be acknowledged no longer. Of QoS 2 the program's word is
        kept, for the server may go on with the session."""
        self._write = None
        for waiting in self._waiting:
            for receipt in waiting:
                receipt.is_open = False
            waiting.clear()

    def resume(self, write: Callable[[bytes], object], *, session_present: bool) -> None:
        """A connection is there."""
        self._write = write
        if not session_present:
            self._second.clear()

    # ------------------------------------------------------------------ inside

    def _flush(self, qos: int) -> None:
        waiting = self._waiting[qos]
        while waiting and waiting[0].code >= 0:
            receipt = waiting.popleft()
            receipt.is_open = False
            if qos == 2:
                self._second.pop(receipt.packet_id, None)
                if receipt.code >= 0x80:
                    self._on_refused(receipt.packet_id)
            self._send(receipt.packet_id, qos, receipt.code)

    def _send(self, packet_id: int, qos: int, code: int) -> None:
        assert self._write is not None, "a message waits without a connection"
        self._write(encode_ack(PUBACK if qos == 1 else PUBREC, packet_id, self._version, code))


def _takes(topic_filter: str, topic: str) -> bool:
    """Whether a subscription may have brought a message. The topics of `$queue/<name>` are not in the filter."""
    if topic_filter.startswith(_QUEUE):
        topic_filter = topic_filter[len(_QUEUE) :].partition("/")[2] or "#"
    return matches(topic_filter, topic)


def check_reason_code(reason_code: int) -> None:
    """Raises `ValueError` for what no acknowledgement may say [MQTT-3.4.2-1]."""
    if reason_code not in _CODES:
        raise ValueError(f"reason_code is {reason_code}: it may be {', '.join(f'0x{each:02x}' for each in _CODES)}")


_CODES: Final = (0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
"""Of PUBACK and PUBREC (§3.4.2.1, §3.5.2.1). Versions before 5.0 have none: whatever is said acknowledges."""
