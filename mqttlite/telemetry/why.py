"""Words the outcome of a message: what happened, how long it took, and by which rule.

Invariant: each drop reason of docs/reference/telemetry.md has a text.
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mqttlite.core.connect.connection import Connection
from mqttlite.core.load.quotas import ADDRESS, BROKER, CLIENT, LISTENER, USER
from mqttlite.core.reasons import EXPIRED, FILTER_MISMATCH, NACKED
from mqttlite.core.tracer import BACKPRESSURE, OFFLINE, WINDOW_FULL
from mqttlite.telemetry.tracing import ACKNOWLEDGED, DROPPED, RETURNED, SENT, DeliveryOutcome, Traced
from mqttlite.wire.reason_codes import describe


class Rule(NamedTuple):
    """Why messages are dropped for a reason, and what an operator or a client sets to change it."""

    because: str
    settings: str


REASONS: Final = {
    "no_subscribers": Rule("nobody subscribes to its topic", ""),
    "not_authorized": Rule("the rules, or the policy of the topic, do not let its publisher publish it there", ""),
    "filter_mismatch": Rule("the subscription's filter does not let it through", ""),
    "no_local": Rule("the receiver published it itself and asked not to get such messages", "No Local"),
    "expired": Rule("its Message Expiry Interval was over", "Message Expiry Interval"),
    "queue_full": Rule(
        "the session's queue was full", "limits.max_queued_messages, limits.max_queued_bytes, limits.on_overflow"
    ),
    "buffer_full": Rule(
        "too much waited for a socket that takes nothing",
        "limits.max_outbox_bytes, limits.max_outbox_messages, limits.on_overflow",
    ),
    "packet_too_large": Rule("the receiver takes no packets so large", "Maximum Packet Size"),
    "qos0_offline": Rule("the receiver was not connected, and messages of QoS 0 do not wait", "QoS"),
    "receive_max_wait_expired": Rule("it waited too long for the receiver's window", "Receive Maximum"),
    "rate_limited": Rule(
        "more was for it, or for those who share its quota, than the rate allows", "quotas.to_…_per_s"
    ),
    "overload_low_priority": Rule("the broker was overloaded, and it is of low priority", ""),
    "overload_qos0": Rule("the broker was overloaded, and QoS 0 messages were not passed on", ""),
    "schema_invalid": Rule("its payload is not what its topic asks for", ""),
    "hook_rejected": Rule("a hook of the broker refused it", ""),
    "session_expired": Rule(
        "the receiver's session ended first", "Session Expiry Interval, limits.max_session_expiry_s"
    ),
    "duplicate": Rule("it had come before", ""),
    "nacked": Rule("the receiver refused it", ""),
    "purged": Rule("an administrator purged the receiver's queue", ""),
    "store_damaged": Rule("the broker's database was damaged, and it could not be read", ""),
    "max_attempts": Rule("it was tried as often as it may be", ""),
    "takeover": Rule("another connection took the receiver's session over", ""),
}

_NO_RULE: Final = Rule("", "")

WAITS: Final = {
    OFFLINE: "it is not connected",
    BACKPRESSURE: "its socket takes nothing",
    WINDOW_FULL: "its window is full of messages that it has not acknowledged",
}
"""What the core says of why a message waits."""


_MANY_WAIT: Final = {
    OFFLINE: "they are not connected",
    BACKPRESSURE: "their sockets take nothing",
    WINDOW_FULL: "their windows are full of messages that they have not acknowledged",
}
"""The same of several receivers."""


def head(message: Traced, message_id: str, at: datetime) -> str:
    """The words with which each sentence of a message begins."""
    return f"{message_id} on {_origin(message)} at {clock(at)}"


def head_of_many(message: Traced, messages: int, ids: tuple[str, str], times: tuple[datetime, datetime]) -> str:
    """The same of several messages that are alike, with the ids and the times of the first and the last."""
    return f"{messages} messages on {_origin(message)}, {clock(times[0])} to {clock(times[1])} ({ids[0]} to {ids[1]})"


def _origin(message: Traced) -> str:
    publisher = "the broker itself" if message.publisher is None else message.publisher or "?"
    return f"{message.topic.decode(errors='replace')} from {publisher}"


def delivery_in_words(delivery: DeliveryOutcome, at: datetime, now: float, whom: str = "") -> str:
    """The outcome of a delivery; `at` is when the message came in, `now` what the stopwatch shows.

    `whom` stands for many receivers whose deliveries are alike.
    """
    whom = whom or delivery.receiver or ""
    if delivery.outcome == DROPPED:
        return _dropped(delivery, whom)
    way = f"{_after(delivery)}{_waited(delivery, whom)}"
    if delivery.outcome == ACKNOWLEDGED:
        taken = ""
        if delivery.acknowledged is not None and delivery.written is not None:
            taken = f" {duration(delivery.acknowledged - delivery.written)} later"
        return f"delivered to {whom} at QoS {delivery.qos}{way}{_again(delivery)}, acknowledged{taken}"
    if delivery.outcome == RETURNED:
        end = f"this attempt ended: {delivery.detail}"
        return f"delivered to {whom} at QoS {delivery.qos}{way}{_again(delivery)}; {end}"
    if delivery.outcome == SENT:
        return f"written to the socket of {whom}{way}; QoS 0, which nobody acknowledges"
    if delivery.ended is not None:
        return _unfinished(delivery, whom)
    if delivery.written is not None:
        missing = f"unacknowledged for {duration(now - delivery.written)}"
        where = f": {WAITS[OFFLINE]}" if delivery.is_away else ""
        return f"handed to the socket of {whom} at QoS {delivery.qos}{way}{_again(delivery)}, {missing}{where}"
    if delivery.sent is not None:
        return f"sent to {whom} at QoS {delivery.qos}{_waited(delivery, whom)}, and not yet handed to its socket"
    assert delivery.queued is not None, "else nothing is known of it"
    since = clock(at + timedelta(seconds=delivery.queued - delivery.message.received))
    return (
        f"waits for {whom} since {since}, for {duration(now - delivery.queued)}: {_why(delivery, whom)}"
        f" ({delivery.waiting} of {delivery.limit} waited then)"
    )


def _dropped(delivery: DeliveryOutcome, whom: str) -> str:
    rule = REASONS.get(delivery.reason, _NO_RULE)
    waited = why = ""
    if delivery.queued is not None:
        assert delivery.ended is not None, "it was dropped"
        waited = duration((delivery.ended if delivery.sent is None else delivery.sent) - delivery.queued)
        why = f" ({_why(delivery, whom)})"
    if delivery.reason == NACKED and whom.startswith("$queue/"):
        return f"given up by {whom}: {delivery.detail}"
    if delivery.reason == NACKED and whom.startswith("extension "):
        return f"refused by {whom}: nacked, because {delivery.detail}"
    if delivery.reason == NACKED:
        return f"refused by {whom}{_after(delivery)}: nacked, with {_code_in_words(delivery.detail)}"
    if delivery.reason == EXPIRED:
        where = f"in the queue of {whom} after {waited}{why}" if waited else f"before the socket of {whom} took it"
        return f"expired {where}: {rule.because}"
    if delivery.reason == FILTER_MISMATCH:
        filters = f" ({delivery.detail})" if delivery.detail else ""
        return f"not for {whom}: {delivery.reason}{filters}, because {rule.because}"
    reason = delivery.reason + (f" ({delivery.detail})" if delivery.detail else "")
    because = (delivery.end_cause if whom == delivery.receiver else "") or rule.because
    name = delivery.detail.partition(":")[0]
    settings = f"quotas.{name}" if name.endswith("_queued_bytes") else rule.settings
    end = reason + (f", because {because}" if because else "") + (f"; see {settings}" if settings else "")
    if delivery.receiver is None:
        return f"reached nobody: {end}"
    if not waited:
        return f"dropped for {whom}: {end}"
    why = "" if delivery.end_cause else f" (because {_why(delivery, whom)})"
    return f"queued for {whom} {waited}{why}, then dropped: {end}"


def _code_in_words(detail: str) -> str:
    """The reason code of a client's refusal, of the detail that the core gave."""
    _, _, code = detail.rpartition("0x")
    try:
        return describe(int(code, 16))
    except ValueError:
        return detail or "no reason code"


def _unfinished(delivery: DeliveryOutcome, whom: str) -> str:
    if delivery.receiver is None:
        return "lost sight of before it reached anybody: too many others were traced"
    if delivery.sent is not None and delivery.qos == 0:
        return f"sent to {whom}, whose connection ended before its socket took it"
    return f"for {whom}: lost sight of, for too many others were traced"


def _why(delivery: DeliveryOutcome, whom: str) -> str:
    """Why a message waits; what was seen of one receiver is not said of many."""
    if whom != delivery.receiver:
        return _MANY_WAIT.get(delivery.why, delivery.why)
    return delivery.cause or WAITS.get(delivery.why, delivery.why)


def _after(delivery: DeliveryOutcome) -> str:
    given = delivery.acknowledged if delivery.written is None else delivery.written
    return "" if given is None else f" after {duration(given - delivery.message.received)}"


def _waited(delivery: DeliveryOutcome, whom: str) -> str:
    if delivery.queued is None or delivery.sent is None:
        return ""
    return f" ({duration(delivery.sent - delivery.queued)} of that in its queue, because {_why(delivery, whom)})"


def _again(delivery: DeliveryOutcome) -> str:
    return "" if not delivery.again else f", sent again {delivery.again} time{'s' * (delivery.again > 1)}"


QUOTA_NAMES: Final = {
    CLIENT: "quotas.",
    USER: "quotas.user_",
    ADDRESS: "quotas.address_",
    LISTENER: "listeners.quotas.all_",
    BROKER: "quotas.all_",
}
"""How the options of a quota begin, by whose it is."""


def held_in_words(client_id: str, connection: Connection) -> list[str]:
    """How often a connection was over a quota, as sentences; none if it never was."""
    said = []
    throttle = connection.throttle
    if throttle is not None and throttle.times:
        now = "is not read now, and was not" if throttle.is_held else "was not read"
        name = QUOTA_NAMES[throttle.held_for]
        said.append(
            f"{client_id} {now} {_times(throttle.times)} since it connected, for more came than the quota of its "
            f"{throttle.held_for} allows; see {name}messages_per_s, {name}bytes_per_s"
        )
    pace = connection.outbox.pace
    if pace is not None and pace.times:
        begin, of, end = QUOTA_NAMES[pace.held_for].rpartition("quotas.")
        name = f"{begin}{of}to_{end or 'client_'}"
        said.append(
            f"{client_id} was sent nothing for a while {_times(pace.times)} since it connected, for more was for it "
            f"than the quota of its {pace.held_for} allows: QoS 0 messages are dropped then (rate_limited), others "
            f"wait; see {name}messages_per_s, {name}bytes_per_s"
        )
    return said


def blocked_in_words(client_id: str, since: str, for_s: float) -> str:
    """That a client does not read. `since` is a time of the day."""
    return (
        f"the socket of {client_id} takes nothing, since {since} ({duration(for_s)} ago): the client does not read, or "
        f"its network is gone; QoS 0 messages wait for it up to max_outbox_bytes, others in its queue"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def duration(seconds: float) -> str:
    """Such as `0.31 ms`, `12 ms`, `4.1 s` or `3 min 20 s`."""
    if seconds < 0.01:
        return f"{seconds * 1e3:.2f} ms"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def clock(at: datetime) -> str:
    """The time of the day in UTC, to the millisecond."""
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d}"
