"""The port for permissions, and the built-in rules: clients may not publish below `$SYS` and `$dlq`, and a topic's
presence is visible only to clients that may use the topic.

A client has a *role*: a number that all identities with the same permissions share. The route of a topic caches one
verdict for each role, so a known topic costs one look-up, and a topic that is open to all costs none.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

from mqttlite.core.authentication import Grants
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.topics.names import is_analytics, is_bridge_state, is_dead_letter, is_own, presence_subject
from mqttlite.topics.namespaces import acknowledged_queue, makes_or_ends_queue, parse_filter, queue_command

ANYBODY: Final = 0
ANALYST: Final = 1

PUBLISH: Final = "publish"
SUBSCRIBE: Final = "subscribe"
RECEIVE: Final = "receive"
ACTIONS: Final = (PUBLISH, SUBSCRIBE, RECEIVE)
"""The actions that an `Authorizer` can deny."""


class Authorizer(Protocol):
    """Decides which clients may publish, subscribe and receive. The core calls it inside the event loop, so it must not
    block or raise.

    `Broker.authorize` replaces it and drops all cached verdicts.
    """

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        """The role of a client, a whole number from 0 on. Clients with the same permissions have the same role.

        `username` is the authenticated identity; `grants` come from its credentials.
        """
        ...

    def is_open(self, topic: bytes) -> bool:
        """Whether every client may publish to a topic. Asked once for each route."""
        ...

    def is_readable(self, topic: bytes) -> bool:
        """Whether every client may receive the messages of a topic. Asked once for each route."""
        ...

    def may_publish(self, role: int, topic: bytes) -> bool:
        """Whether a role may publish to a topic that is not open. Asked once for each route and role."""
        ...

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        """Whether a role may subscribe to a topic filter. Asked for each filter of each SUBSCRIBE.

        The filter of a shared subscription includes `$share/<share name>/`.
        """
        ...

    def may_receive(self, role: int, topic: bytes) -> bool:
        """Whether a role may receive the messages of a topic that is not readable by all, whatever it subscribed to."""
        ...

    def policy_of(self, topic: bytes) -> TopicPolicy:
        """The policy for the messages of a topic; `NO_POLICY` if there is none. Asked once for each route."""
        ...

    def reason(self, role: int, action: str, topic: bytes) -> str:
        """A sentence that names the rule that denies a role an action, for logs and reason strings.

        `action` is one of `ACTIONS`; for `SUBSCRIBE`, `topic` is a topic filter. If the sentence may contain something
        that clients must not see, for example a path, the authorizer also has a method `told`, which gives the sentence
        for the client.
        """
        ...


Why = Callable[[Authorizer, int, str, bytes], str]
"""`reason_of` or `told_by`."""


def reason_of(authorizer: Authorizer, role: int, action: str, topic: bytes) -> str:
    """Why a role is denied an action, for operators."""
    return authorizer.reason(role, action, topic)


def told_by(authorizer: Authorizer, role: int, action: str, topic: bytes) -> str:
    """The same for the client."""
    tell: Callable[[int, str, bytes], str] = getattr(authorizer, "told", authorizer.reason)
    return tell(role, action, topic)


def allows_unsubscribe(authorizer: Authorizer, role: int, topic_filter: bytes) -> bool:
    """Whether a role may end its subscription to a filter. Only an authorizer with a method `may_unsubscribe` denies
    it."""
    may: Callable[[int, bytes], bool] | None = getattr(authorizer, "may_unsubscribe", None)
    return may is None or may(role, topic_filter)


@final
class DefaultRules:
    """Only the broker publishes below `$SYS` and `$dlq`. Clients that may subscribe to `$queue/<name>` may publish to
    `$queue/<name>/$ack`, `$nack` and `$extend`. To `$queue/<name>/$create` and `$delete` a client may publish only
    where a rule gives it that permission. `authorizer` decides everything else; without it, everything else is allowed.

    A client receives the presence of a topic if it may receive the presence message and the topic's own messages.

    Clients and users named in `analysts` may also publish below `$SYS/analytics`. The state of a bridge is published by
    those to whom a rule gives it; where no rule says who may publish there, by all if `bridges` says so.

    A role here is twice the role that `authorizer` gives, plus `ANALYST` for analysts.
    """

    def __init__(
        self, analysts: frozenset[str] = frozenset(), authorizer: Authorizer | None = None, *, bridges: bool = False
    ) -> None:
        self._analysts: Final = analysts
        self._authorizer: Final = authorizer
        self._bridges: Final = bridges

    @property
    def is_alone(self) -> bool:
        """Whether there is no authorizer in addition to these rules."""
        return self._authorizer is None

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        role = ANYBODY if self._authorizer is None else 2 * self._authorizer.role_of(client_id, username, grants)
        return role + (ANALYST if username in self._analysts or client_id in self._analysts else ANYBODY)

    def is_open(self, topic: bytes) -> bool:
        if topic.startswith(b"$") and (is_own(topic) or is_dead_letter(topic) or makes_or_ends_queue(topic)):
            return False
        return self._authorizer is None or self._authorizer.is_open(topic)

    def is_readable(self, topic: bytes) -> bool:
        rules = self._authorizer
        if rules is None:
            return True
        subject = presence_subject(topic)
        return rules.is_readable(topic) and (not subject or rules.is_readable(subject))

    def may_publish(self, role: int, topic: bytes) -> bool:
        if is_own(topic):
            if not is_bridge_state(topic):
                return role % 2 == ANALYST and is_analytics(topic)
            if self._has_no_rule(topic):
                return self._bridges
        if is_dead_letter(topic):
            return False
        if topic.startswith(b"$queue/"):
            queue = acknowledged_queue(topic)
            if queue:  # a client that may consume may acknowledge
                return self.may_subscribe(role, queue)
            topic = queue_command(topic)
            if makes_or_ends_queue(topic) and self._has_no_rule(topic):
                return False
        return self._authorizer is None or self._authorizer.may_publish(role // 2, topic)

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        rules = self._authorizer
        if rules is None:
            return True
        if not rules.may_subscribe(role // 2, topic_filter):
            return False
        subject = _subject_of_filter(topic_filter)
        return not subject or rules.may_subscribe(role // 2, subject)

    def may_unsubscribe(self, role: int, topic_filter: bytes) -> bool:
        return self._authorizer is None or allows_unsubscribe(self._authorizer, role // 2, topic_filter)

    def may_receive(self, role: int, topic: bytes) -> bool:
        rules = self._authorizer
        if rules is None:
            return True
        if not (rules.is_readable(topic) or rules.may_receive(role // 2, topic)):
            return False
        subject = presence_subject(topic)
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
        if action == PUBLISH and is_bridge_state(topic) and self._has_no_rule(topic):
            return f"{'allowed' if self._bridges else 'denied'} by sys.bridges, for no rule is about bridges"
        if action == PUBLISH and is_own(topic) and not is_bridge_state(topic):
            return "clients may not publish to $SYS and below"
        if action == PUBLISH and is_dead_letter(topic):
            return "clients may not publish below $dlq: dead letters come from queues"
        if action == PUBLISH and makes_or_ends_queue(topic) and self._has_no_rule(queue_command(topic)):
            return "to make or delete a queue takes a permission, and no rule or policy gives it for this topic"
        rules = self._authorizer
        if rules is None:
            return ""
        subject = _subject_of_filter(topic) if action == SUBSCRIBE else presence_subject(topic)
        if subject:
            is_allowed = rules.may_subscribe if action == SUBSCRIBE else rules.may_receive
            if is_allowed(role // 2, topic):  # then the rules deny the topic itself
                return f"{why(rules, role // 2, action, subject)}, and presence is for those who may receive the topic"
        return why(rules, role // 2, action, topic)


def _subject_of_filter(topic_filter: bytes) -> bytes:
    """The filter of the topics whose presence a (possibly shared) subscription asks for."""
    if topic_filter.startswith(b"$share/"):
        topic_filter = parse_filter(topic_filter).rest
    return presence_subject(topic_filter)
