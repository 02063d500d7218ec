"""Explains the predicted outcome of a message or a subscription: `mqttlite explain`.

The core predicts it (`core.plan`); this module turns it into an answer for people and programs. Invariant: nothing is
published, and asking has no effect on clients.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from mqttlite.config.logins import Login
from mqttlite.core.authentication import Grants
from mqttlite.core.broker import Broker
from mqttlite.core.reasons import FILTER_MISMATCH
from mqttlite.core.route.outlook import EXCLUDED, PlannedReceiver
from mqttlite.core.route.plan import PublishPlan
from mqttlite.core.route.tally import DROPPED, QUEUED, SENT
from mqttlite.security import rulings
from mqttlite.wire.properties import NONE, Properties
from mqttlite.wire.reason_codes import SUBACK_FAILURE, ReasonCode

OUTCOMES: Final = {SENT: "sent", QUEUED: "queued", DROPPED: "dropped", EXCLUDED: "excluded"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """The predicted outcome for a session, or another receiver such as a queue."""

    client_id: str
    group: str | None
    """The shared subscription; only one of its members gets the message."""
    outcome: str
    """`sent`, `queued`, `dropped`, or `excluded`: it subscribes to the topic, and the message is not meant for it."""
    qos: int
    reason: str
    """Why it is not sent at once; empty for `sent`."""
    rule: str
    """The rule or filter that keeps the message from the session, or may do so; for a queue, what it does."""
    sink: str | None = None
    """What it is, if it is no session: `$queue/orders`. Then `client_id` is empty."""
    next: bool = False
    """Whether it is the member of its group that would get the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishExplanation:
    """`reason_code` is that of PUBACK to a 5.0 client, unless a queue is full."""

    topic: str
    client_id: str
    user: str | None
    connected: bool
    login: list[str]
    """How each listener would treat the user, as far as known without a password."""
    allowed: bool
    reason_code: int
    reason: str
    qos: int
    retained: bool
    has_hook: bool
    """Whether a hook of the broker is asked first, which may change or refuse the message. It is not asked here."""
    has_schema: bool
    """Whether the topic has a schema for the payload."""
    schema: str | None
    """The verdict of the schema, as a sentence. A message that it refuses is not `allowed`."""
    block_s: float | None
    """How long the publisher would wait because of `on_overflow = "block"`."""
    block_reason: str | None
    wait_s: float | None
    """How long the publisher would wait for a receiver that reads and has a full queue. After that the message is
    published."""
    wait_for: str | None
    """The client identifier of that receiver."""
    delay_s: int | None
    receivers: list[Receiver] = field(default_factory=list)
    other_receivers: int = 0
    """How many of the receivers are not sessions, for example queues."""
    unnamed_receivers: int = 0
    """Further receivers that are not named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeExplanation:
    """`reason_code` is that of SUBACK to a 5.0 client: the QoS that is granted, or a refusal."""

    topic_filter: str
    client_id: str
    user: str | None
    connected: bool
    login: list[str]
    allowed: bool
    reason_code: int
    reason: str
    has_hook: bool
    """Whether a hook of the broker is asked, too, which may refuse the subscription. It is not asked here."""
    retained: int
    """Retained messages that the client would get at once."""
    retained_denied: int
    """Retained messages that the filter matches and the client may not receive."""


def properties_of(user_properties: Iterable[str], content_type: str | None) -> Properties:
    """The properties for `NAME=VALUE` texts and a Content Type."""
    pairs = [(name, value) for name, _, value in (each.partition("=") for each in user_properties)]
    if not pairs and content_type is None:
        return NONE
    return Properties(user_properties=pairs, content_type=content_type)


class Explanations:
    """`login` returns how the listeners would treat a user; `now` is the broker's clock."""

    def __init__(self, core: Broker, login: Callable[[str | None], Iterable[Login]], now: Callable[[], float]) -> None:
        self._core: Final = core
        self._login: Final = login
        self._now: Final = now

    def permission(
        self, action: str, topic: str, user: str | None, client_id: str, groups: Iterable[str]
    ) -> rulings.Answer:
        """Whether the rules in force let a client do it. Raises `TopicFilterInvalid` and `TopicNameInvalid`."""
        return rulings.ask(self._core, action, topic, user, client_id, frozenset(groups))

    def publish(
        self,
        client_id: str,
        user: str | None,
        topic: str,
        payload_bytes: int = 0,
        *,
        payload: bytes | None = None,
        properties: Properties = NONE,
        qos: int = 0,
        retain: bool = False,
        groups: Iterable[str] = (),
    ) -> PublishExplanation:
        """Explain a PUBLISH with a payload of a size, or with this payload, which schemas and filters then read."""
        self._core.effects.now = self._now()
        plan = self._core.planner.publish(
            *(client_id, user, topic.encode(), bytes(payload_bytes) if payload is None else payload, qos, retain),
            Grants(frozenset(groups)),
            properties,
            payload is not None,
        )
        login, shut_out = self._logins(user, plan.is_connected)
        return PublishExplanation(
            topic=plan.topic.decode(),
            client_id=client_id,
            user=user,
            connected=plan.is_connected,
            login=login,
            allowed=plan.code == 0 and not shut_out,
            reason_code=_REFUSED if shut_out else _puback_code(plan),
            reason=shut_out or plan.reason or _default_reason(plan.code),
            qos=plan.qos,
            retained=plan.retained,
            has_hook=plan.has_hook,
            has_schema=plan.has_payload_check,
            schema=plan.verdict or None,
            block_s=plan.block_s or None,
            block_reason=plan.block_reason or None,
            wait_s=plan.wait_s or None,
            wait_for=plan.wait_for or None,
            delay_s=plan.delay_s if plan.delay_s >= 0 else None,
            receivers=[_receiver(each) for each in plan.receivers],
            other_receivers=plan.sinks,
            unnamed_receivers=plan.unnamed,
        )

    def _logins(self, user: str | None, is_connected: bool) -> tuple[list[str], str]:
        """How the listeners would treat a user, in words, and why none lets it in; empty if one does, or a client is
        connected."""
        logins = list(self._login(user))
        is_shut_out = user is not None and not is_connected and logins and all(each.is_refused for each in logins)
        return [each.sentence for each in logins], f"no listener lets user {user} in" if is_shut_out else ""

    def subscribe(
        self, client_id: str, user: str | None, topic_filter: str, *, qos: int = 0, groups: Iterable[str] = ()
    ) -> SubscribeExplanation:
        """Explain a SUBSCRIBE at `qos`."""
        self._core.effects.now = self._now()
        plan = self._core.planner.subscribe(client_id, user, topic_filter.encode(), qos, Grants(frozenset(groups)))
        login, shut_out = self._logins(user, plan.is_connected)
        is_allowed = plan.code < SUBACK_FAILURE and not shut_out
        return SubscribeExplanation(
            topic_filter=plan.topic_filter.decode(),
            client_id=client_id,
            user=user,
            connected=plan.is_connected,
            login=login,
            allowed=is_allowed,
            reason_code=_REFUSED if shut_out else plan.code,
            reason=shut_out or plan.reason or _default_reason(0 if is_allowed else plan.code),
            has_hook=plan.has_hook,
            retained=plan.retained,
            retained_denied=plan.retained_denied,
        )


_REFUSED: Final = int(ReasonCode.BAD_USER_NAME_OR_PASSWORD)


def _puback_code(plan: PublishPlan) -> int:
    """0x10 if a message is accepted and has no receiver. A group counts as a receiver even if no member may receive the
    message, but not if filters keep it out."""
    kept_out = {each.group for each in plan.receivers if each.reason == FILTER_MISMATCH}
    taken = {each.group for each in plan.receivers if each.outcome != EXCLUDED}
    is_for_somebody = plan.unnamed or taken or any(each.group not in kept_out | {b""} for each in plan.receivers)
    if plan.code or is_for_somebody or plan.delay_s >= 0:
        return plan.code
    return int(ReasonCode.NO_MATCHING_SUBSCRIBERS)


def _default_reason(code: int) -> str:
    return ReasonCode(code).name.lower().replace("_", " ") if code else "allowed: no rule is about it"


def _receiver(planned: PlannedReceiver) -> Receiver:
    return Receiver(
        client_id=planned.client_id,
        group=planned.group.decode() if planned.group else None,
        outcome=OUTCOMES[planned.outcome],
        qos=planned.qos,
        reason=planned.reason,
        rule=planned.detail,
        sink=planned.sink or None,
        next=planned.is_next,
    )
