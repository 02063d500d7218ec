"""Combines two sets of rules that must both allow: dynamic security, and an ACL file with topic policies.

An `Authorizer` around two others. Only the first one decides on `$CONTROL`: an ACL file without rules for it would lock
out the administrators. Invariant: it never allows what one of the two forbids.
"""

from collections.abc import Callable, Iterable
from typing import Final

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.authorizer import (
    PUBLISH,
    RECEIVE,
    SUBSCRIBE,
    Authorizer,
    Why,
    allows_unsubscribe,
    reason_of,
    told_by,
)
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.security.role_numbers import RoleNumbers, nothing

MAX_ROLES: Final = 200_000
"""The most pairs of roles. When they are used up, those without a session are dropped; a client that still finds none
may do nothing."""

NO_ROLE: Final = 0
"""The role of a client for which there was no pair."""

_CONTROL: Final = b"$CONTROL/"


class BothRules:
    """`roles_in_use` returns the roles given by this object that sessions still have, `on_forgotten` is that of
    `RoleNumbers`."""

    def __init__(
        self,
        first: Authorizer,
        second: Authorizer,
        roles_in_use: Callable[[], Iterable[int]] = lambda: (),
        max_roles: int = MAX_ROLES,
        *,
        on_forgotten: Callable[[], None] = nothing,
    ) -> None:
        self._first: Final = first
        self._second: Final = second
        self._max_roles: Final = max_roles
        self._roles: Final[RoleNumbers[tuple[int, int]]] = RoleNumbers(
            max_roles, roles_in_use, on_forgotten=on_forgotten
        )

    def role_of(self, client_id: str, username: str | None, grants: Grants = NO_GRANTS) -> int:
        """The number for the pair of roles."""
        number = self._roles.of(
            (self._first.role_of(client_id, username, grants), self._second.role_of(client_id, username, grants))
        )
        return NO_ROLE if number is None else number

    def is_open(self, topic: bytes) -> bool:
        return self._first.is_open(topic) and self._second.is_open(topic)

    def is_readable(self, topic: bytes) -> bool:
        return self._first.is_readable(topic) and self._second.is_readable(topic)

    def may_publish(self, role: int, topic: bytes) -> bool:
        return self._allows(role, PUBLISH, topic)

    def may_receive(self, role: int, topic: bytes) -> bool:
        return self._allows(role, RECEIVE, topic)

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return self._allows(role, SUBSCRIBE, topic_filter)

    def may_unsubscribe(self, role: int, topic_filter: bytes) -> bool:
        roles = self._roles.get(role)
        return roles is not None and all(
            allows_unsubscribe(rules, number, topic_filter) for rules, number in self._asked(roles, topic_filter)
        )

    def policy_of(self, topic: bytes) -> TopicPolicy:
        first = self._first.policy_of(topic)
        return self._second.policy_of(topic) if first.is_plain else first

    def reason(self, role: int, action: str, topic: bytes) -> str:
        """The reason of the one that denies, or the reasons of both."""
        return self._why(reason_of, role, action, topic)

    def told(self, role: int, action: str, topic: bytes) -> str:
        """The same for the client."""
        return self._why(told_by, role, action, topic)

    def _why(self, why: Why, role: int, action: str, topic: bytes) -> str:
        roles = self._roles.get(role)
        if roles is None:
            return f"denied by a limit: {self._max_roles} sets of permissions are in use"
        denying = self._denying(roles, action, topic)
        if denying is not None:
            return why(*denying, action, topic)
        reasons = [why(rules, number, action, topic) for rules, number in self._asked(roles, topic)]
        return reasons[0] + "".join(f", and {each.removeprefix('allowed ')}" for each in reasons[1:])

    def roles_of_first(self, numbers: Iterable[int]) -> set[int]:
        """The first parts of roles given by this object."""
        return {first for first, _ in self._roles.all_of(numbers)}

    def roles_of_second(self, numbers: Iterable[int]) -> set[int]:
        """The second parts of roles given by this object."""
        return {second for _, second in self._roles.all_of(numbers)}

    def _allows(self, role: int, action: str, topic: bytes) -> bool:
        roles = self._roles.get(role)
        return roles is not None and self._denying(roles, action, topic) is None

    def _asked(self, roles: tuple[int, int], topic: bytes) -> list[tuple[Authorizer, int]]:
        both = [(self._first, roles[0]), (self._second, roles[1])]
        return both[:1] if topic.startswith(_CONTROL) else both

    def _denying(self, roles: tuple[int, int], action: str, topic: bytes) -> tuple[Authorizer, int] | None:
        """The one that denies, and the role there; None if neither does."""
        for rules, number in self._asked(roles, topic):
            if action == SUBSCRIBE:
                is_allowed = rules.may_subscribe(number, topic)
            elif action == PUBLISH:
                is_allowed = rules.is_open(topic) or rules.may_publish(number, topic)
            else:
                is_allowed = rules.is_readable(topic) or rules.may_receive(number, topic)
            if not is_allowed:
                return rules, number
        return None
