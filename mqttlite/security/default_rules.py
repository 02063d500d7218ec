"""The built-in rules: only the broker publishes below `$SYS`, features have rights of their own, and a topic's presence
is visible only to clients that may use the topic.
"""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.authentication import Grants
from mqttlite.core.authorizer import (
    ANYBODY,
    OWN_TOPICS,
    PUBLISH,
    SUBSCRIBE,
    Authorizer,
    Why,
    allows_unsubscribe,
    reason_of,
    told_by,
)
from mqttlite.core.rights import Right
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.topics.names import is_own
from mqttlite.topics.namespaces import split_share

ANALYST: Final = 1

RightOf = Callable[[bytes], Right | None]
"""What it takes to publish to a topic of a feature; None for other topics."""

SubjectOf = Callable[[bytes], bytes]
"""The topic or filter that a topic or filter below `$SYS` is about; empty for others."""


def _no_right(topic: bytes) -> Right | None:
    return None


def _no_subject(topic: bytes) -> bytes:
    return b""


@final
class DefaultRules:
    """Only the broker publishes below `$SYS`, and `right_of` says what other topics take. `authorizer` decides
    everything else; without it, everything else is allowed.

    A client receives a topic that is about another one, as `subject_of` says, only if it may receive both.

    Clients and users named in `analysts` may also publish below `$SYS/analytics`. The state of a bridge is published by
    those to whom a rule gives it; where no rule says who may publish there, by all if `bridges` says so.

    A role here is twice the role that `authorizer` gives, plus `ANALYST` for analysts.
    """

    def __init__(
        self,
        analysts: frozenset[str] = frozenset(),
        authorizer: Authorizer | None = None,
        *,
        bridges: bool = False,
        right_of: RightOf = _no_right,
        subject_of: SubjectOf = _no_subject,
    ) -> None:
        self._analysts: Final = analysts
        self._authorizer: Final = authorizer
        self._bridges: Final = bridges
        self._right_of: Final = right_of
        self._subject_of: Final = subject_of

    @property
    def restricts(self) -> bool:
        """Whether there is an authorizer in addition to these rules."""
        return self._authorizer is not None

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        role = ANYBODY if self._authorizer is None else 2 * self._authorizer.role_of(client_id, username, grants)
        return role + (ANALYST if username in self._analysts or client_id in self._analysts else ANYBODY)

    def is_open(self, topic: bytes) -> bool:
        if topic.startswith(b"$"):
            right = self._right_of(topic)
            if is_own(topic) or (right is not None and right.denial):
                return False
        return self._authorizer is None or self._authorizer.is_open(topic)

    def is_readable(self, topic: bytes) -> bool:
        rules = self._authorizer
        if rules is None:
            return True
        subject = self._subject_of(topic)
        return rules.is_readable(topic) and (not subject or rules.is_readable(subject))

    def may_publish(self, role: int, topic: bytes) -> bool:
        if is_own(topic):
            if not is_bridge_state(topic):
                return role % 2 == ANALYST and _is_analytics(topic)
            if self._has_no_rule(topic):
                return self._bridges
        right = self._right_of(topic) if topic.startswith(b"$") else None
        if right is not None:
            topic = right.topic
            if right.takes_subscribing:
                return self.may_subscribe(role, topic)
            if not topic or (right.takes_rule and self._has_no_rule(topic)):
                return False
        return self._authorizer is None or self._authorizer.may_publish(role // 2, topic)

    def may_will(self, topic: bytes) -> bool:
        """Whether a will may have a topic below `$SYS`: Mosquitto's bridges publish their state so."""
        return is_bridge_state(topic)

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        rules = self._authorizer
        if rules is None:
            return True
        if not rules.may_subscribe(role // 2, topic_filter):
            return False
        subject = self._subject_of(split_share(topic_filter)[1])
        return not subject or rules.may_subscribe(role // 2, subject)

    def may_unsubscribe(self, role: int, topic_filter: bytes) -> bool:
        return self._authorizer is None or allows_unsubscribe(self._authorizer, role // 2, topic_filter)

    def may_receive(self, role: int, topic: bytes) -> bool:
        rules = self._authorizer
        if rules is None:
            return True
        if not (rules.is_readable(topic) or rules.may_receive(role // 2, topic)):
            return False
        subject = self._subject_of(topic)
        return not subject or rules.is_readable(subject) or rules.may_receive(role // 2, subject)

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return NO_POLICY if self._authorizer is None or is_own(topic) else self._authorizer.policy_of(topic)

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return self._why(reason_of, role, action, topic)

    def told(self, role: int, action: str, topic: bytes) -> str:
        """The same for the client."""
        return self._why(told_by, role, action, topic)

    def _has_no_rule(self, topic: bytes) -> bool:
        """Whether no rule says who may publish to a topic."""
        return self._authorizer is None or self._authorizer.is_open(topic)

    def _why(self, why: Why, role: int, action: str, topic: bytes) -> str:
        denial = self._why_not_publish(topic) if action == PUBLISH else ""
        rules = self._authorizer
        if denial or rules is None:
            return denial
        subject = self._subject_of(split_share(topic)[1] if action == SUBSCRIBE else topic)
        if subject:
            is_allowed = rules.may_subscribe if action == SUBSCRIBE else rules.may_receive
            if is_allowed(role // 2, topic):  # then the rules deny the topic itself
                because = why(rules, role // 2, action, subject)
                return f"{because}, and what is told of a topic is for those who may receive it"
        return why(rules, role // 2, action, topic)

    def _why_not_publish(self, topic: bytes) -> str:
        """The sentence of the rules here about publishing to a topic; empty if the authorizer decides."""
        if is_bridge_state(topic):
            if not self._has_no_rule(topic):
                return ""
            return f"{'allowed' if self._bridges else 'denied'} by sys.bridges, for no rule is about bridges"
        if is_own(topic):
            return OWN_TOPICS
        right = self._right_of(topic)
        if right is None or (right.takes_rule and not self._has_no_rule(right.topic)):
            return ""
        return right.denial


def is_bridge_state(topic: bytes) -> bool:
    """Whether a name is `$SYS/broker/connection/<name>/state`, where Mosquitto's bridges publish their state, also as
    their will."""
    return (
        topic.startswith(b"$SYS/broker/connection/")
        and topic.endswith(b"/state")
        and topic.count(b"/") == 4
        and len(topic) > len(b"$SYS/broker/connection//state")
    )


def _is_analytics(topic: bytes) -> bool:
    """Whether a name is below `$SYS/analytics`, where clients named by the operator may publish."""
    return topic.startswith(b"$SYS/analytics/")
