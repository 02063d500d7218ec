"""Restricts clients to the topics that their credentials name: an `Authorizer` around the rules, which must also allow.

Invariant: it never allows what the rules forbid, and an unknown role may do nothing.
"""

from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, NamedTuple

from mqttlite.core.authentication import Grants
from mqttlite.core.authorizer import ANYBODY, PUBLISH, SUBSCRIBE, Authorizer, Why, reason_of, told_by
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.security.role_numbers import RoleNumbers, nothing
from mqttlite.topics.names import matches
from mqttlite.topics.namespaces import split_share

MAX_ROLES: Final = 100_000
"""The most sets of permissions: one per client if each token names its own topics. When they are used up, those without
a session are dropped; a client that still finds none may do nothing."""

NO_ROLE: Final = 1
"""The role of a client for which there is no room."""


class _Role(NamedTuple):
    """The role in the rules, and the topics in the credentials; None if they do not restrict it."""

    rules: int
    publish: tuple[bytes, ...] | None
    subscribe: tuple[bytes, ...] | None


class GrantedTopics:
    """`authorizer` has the rules. Without it, everything is allowed that the credentials do not exclude.

    `roles_in_use` returns the roles given by this object that sessions still have, `on_forgotten` is that of
    `RoleNumbers`.
    """

    def __init__(
        self,
        authorizer: Authorizer | None,
        roles_in_use: Callable[[], Iterable[int]],
        *,
        on_forgotten: Callable[[], None] = nothing,
    ) -> None:
        self._authorizer: Final = authorizer
        unlimited = _Role(ANYBODY, None, None)  # for sessions from the store
        self._roles: Final = RoleNumbers(
            *(MAX_ROLES, roles_in_use, count(NO_ROLE + 1)), always=((ANYBODY, unlimited),), on_forgotten=on_forgotten
        )

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        """The number for a role with its granted topics."""
        rules = ANYBODY if self._authorizer is None else self._authorizer.role_of(client_id, username, grants)
        number = self._roles.of(_Role(rules, grants.publish, grants.subscribe))
        return NO_ROLE if number is None else number

    def is_open(self, topic: bytes) -> bool:
        """False: some credentials may not name the topic."""
        return False

    def is_readable(self, topic: bytes) -> bool:
        """Like `is_open`."""
        return False

    def may_publish(self, role: int, topic: bytes) -> bool:
        known = self._roles.get(role)
        if known is None or not _names(known.publish, topic):
            return False
        rules = self._authorizer
        return rules is None or rules.is_open(topic) or rules.may_publish(known.rules, topic)

    def may_receive(self, role: int, topic: bytes) -> bool:
        known = self._roles.get(role)
        if known is None or not _names(known.subscribe, topic):
            return False
        rules = self._authorizer
        return rules is None or rules.is_readable(topic) or rules.may_receive(known.rules, topic)

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        """The whole filter must lie within one that the credentials name."""
        known = self._roles.get(role)
        if known is None or not _cover(known.subscribe, topic_filter):
            return False
        return self._authorizer is None or self._authorizer.may_subscribe(known.rules, topic_filter)

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return NO_POLICY if self._authorizer is None else self._authorizer.policy_of(topic)

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return self._why(reason_of, role, action, topic)

    def told(self, role: int, action: str, topic: bytes) -> str:
        """The same for the client."""
        return self._why(told_by, role, action, topic)

    def _why(self, why: Why, role: int, action: str, topic: bytes) -> str:
        known = self._roles.get(role)
        if known is None:
            return f"{MAX_ROLES} sets of permissions are in use, which is the limit"
        granted = known.publish if action == PUBLISH else known.subscribe
        if not (_cover(granted, topic) if action == SUBSCRIBE else _names(granted, topic)):
            return "denied: the client's credentials do not name this topic"
        return "" if self._authorizer is None else why(self._authorizer, known.rules, action, topic)

    def rules_roles(self, numbers: Iterable[int]) -> set[int]:
        """The rules' roles in roles given by this object."""
        return {each.rules for each in self._roles.all_of(numbers)}


def _names(granted: tuple[bytes, ...] | None, topic: bytes) -> bool:
    return granted is None or any(matches(each, topic) for each in granted)


def _cover(granted: tuple[bytes, ...] | None, topic_filter: bytes) -> bool:
    if granted is None:
        return True
    behind_share = split_share(topic_filter)[1]
    return any(covers(each, behind_share) for each in granted)


def covers(granted: bytes, wanted: bytes) -> bool:
    """Whether a topic filter matches every topic that another filter matches."""
    if granted[:1] in (b"+", b"#") and wanted.startswith(b"$"):  # [MQTT-4.7.2-1]
        return False
    levels, wanted_levels = granted.split(b"/"), wanted.split(b"/")
    for position, level in enumerate(levels):
        if level == b"#":
            return True
        if position == len(wanted_levels):
            return False
        wanted_level = wanted_levels[position]
        if wanted_level == b"#" or (level != b"+" and level != wanted_level):
            return False
    return len(levels) == len(wanted_levels)
