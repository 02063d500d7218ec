"""The port for permissions, and the rules of a core without one: clients may not publish to `$SYS` and below.

A client has a *role*: a number that all identities with the same permissions share. The route of a topic caches one
verdict for each role, so a known topic costs one look-up, and a topic that is open to all costs none.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

from mqttlite.core.authentication import Grants
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.topics.names import is_own

ANYBODY: Final = 0

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


OWN_TOPICS: Final = "clients may not publish to $SYS and below"

Why = Callable[[Authorizer, int, str, bytes], str]
"""`reason_of` or `told_by`."""


def reason_of(authorizer: Authorizer, role: int, action: str, topic: bytes) -> str:
    """Why a role is denied an action, for operators."""
    return authorizer.reason(role, action, topic)


def told_by(authorizer: Authorizer, role: int, action: str, topic: bytes) -> str:
    """The same for the client."""
    tell: Callable[[int, str, bytes], str] = getattr(authorizer, "told", authorizer.reason)
    return tell(role, action, topic)


def restricts(authorizer: Authorizer) -> bool:
    """Whether it may hide topics from clients. Only an authorizer with a false attribute `restricts` does not."""
    return bool(getattr(authorizer, "restricts", True))


def allows_will(authorizer: Authorizer, topic: bytes) -> bool:
    """Whether a will may have a topic below `$SYS`, if its client may publish there. Only an authorizer with a method
    `may_will` allows it."""
    may: Callable[[bytes], bool] | None = getattr(authorizer, "may_will", None)
    return may is not None and may(topic)


def allows_unsubscribe(authorizer: Authorizer, role: int, topic_filter: bytes) -> bool:
    """Whether a role may end its subscription to a filter. Only an authorizer with a method `may_unsubscribe` denies
    it."""
    may: Callable[[int, bytes], bool] | None = getattr(authorizer, "may_unsubscribe", None)
    return may is None or may(role, topic_filter)


@final
class OpenRules:
    """Everybody may do everything but publish to `$SYS` and below."""

    restricts: Final = False

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return ANYBODY

    def is_open(self, topic: bytes) -> bool:
        return not is_own(topic)

    def is_readable(self, topic: bytes) -> bool:
        return True

    def may_publish(self, role: int, topic: bytes) -> bool:
        return not is_own(topic)

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return True

    def may_receive(self, role: int, topic: bytes) -> bool:
        return True

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return NO_POLICY

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return OWN_TOPICS if action == PUBLISH and is_own(topic) else ""
