"""Tests the rules in force for one client, and for all known users.

The core's own authorizer is asked, so that the answer is the one that a client gets. Invariant: asking changes nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE, Authorizer
from mqttlite.core.broker import Broker
from mqttlite.topics.names import check_filter, check_name
from mqttlite.topics.namespaces import Namespaces, split_share
from mqttlite.wire.errors import TopicFilterInvalid, TopicNameInvalid

MAX_USERS: Final = 100
"""Users whose permissions one page names: a few milliseconds."""

NO_RULES: Final = "there are no rules: every client may"


@dataclass(frozen=True, slots=True)
class Answer:
    """Whether a client may do something, and by which rule."""

    action: str
    is_allowed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class UserAnswer:
    """What a user may do on a topic."""

    user: str | None
    """None: clients without a user name."""
    publish: Answer
    receive: Answer


def ask(
    core: Broker, action: str, topic: str, user: str | None, client_id: str = "", groups: frozenset[str] = frozenset()
) -> Answer:
    """Whether a client may do it. `action` is one of `core.authorizer.ACTIONS`, and `topic` a filter to subscribe.

    Raises `TopicFilterInvalid` and `TopicNameInvalid`.
    """
    rules = core.permissions.authorizer
    name = topic.encode(errors="replace")
    if action == SUBSCRIBE:
        check_filter(name)
        split_share(name)
    else:
        check_name(name)
        core.namespaces.check_is_served(name)
    grants = Grants(groups) if groups else NO_GRANTS
    role = rules.role_of(client_id, user, grants)
    is_allowed = _is_allowed(rules, action, role, name)
    return Answer(action, is_allowed, rules.reason(role, action, name) or NO_RULES)


def of_users(core: Broker, topic: str, users: Iterable[str]) -> list[UserAnswer]:
    """What the first of these users, and clients without a user name, may do on a topic. Raises `TopicNameInvalid`."""
    asked: list[str | None] = [None, *sorted(users)[:MAX_USERS]]
    return [UserAnswer(user, ask(core, PUBLISH, topic, user), ask(core, RECEIVE, topic, user)) for user in asked]


def complaint(namespaces: Namespaces, action: str, topic: str) -> str:
    """Why a topic or filter cannot be asked about; empty if it can."""
    try:
        if action == SUBSCRIBE:
            check_filter(topic.encode())
            split_share(topic.encode())
        else:
            check_name(topic.encode())
            namespaces.check_is_served(topic.encode())
    except (TopicFilterInvalid, TopicNameInvalid) as error:
        return str(error)
    return ""


def _is_allowed(rules: Authorizer, action: str, role: int, name: bytes) -> bool:
    if action == PUBLISH:
        return rules.is_open(name) or rules.may_publish(role, name)
    if action == RECEIVE:
        return rules.is_readable(name) or rules.may_receive(role, name)
    return rules.may_subscribe(role, name)
