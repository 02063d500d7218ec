"""Evaluates the roles of clients: an `Authorizer`.

The order of evaluation is that of Mosquitto's plugin: the roles of the client, then those of its groups; within a role,
rules by priority; if no rule matches, the default access. `role_rules` finds the rule of a role. Invariant: an unknown
user may do nothing, and the default access never opens `$CONTROL`.
"""

import logging
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.authorizer import PUBLISH as ACTION_PUBLISH
from mqttlite.core.authorizer import SUBSCRIBE as ACTION_SUBSCRIBE
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.security.dynamic_security.model import (
    PUBLISH_RECEIVE,
    PUBLISH_SEND,
    SUBSCRIBE,
    SUBSCRIBE_LITERAL,
    SUBSCRIBE_PATTERN,
    UNSUBSCRIBE,
    UNSUBSCRIBE_LITERAL,
    UNSUBSCRIBE_PATTERN,
    State,
)
from mqttlite.security.dynamic_security.role_rules import RoleRules
from mqttlite.security.role_numbers import RoleNumbers, nothing
from mqttlite.security.rule_tree import NOBODY as NAMELESS
from mqttlite.security.rule_tree import Names

MAX_HOLDERS: Final = 100_000
"""Different lists of roles, with the names of the client where a rule has `%u` or `%c`. When they are used up, those
without a session are dropped; a client that still finds none may do nothing."""

NOBODY: Final = 0
"""The role of unknown users."""

_WILDCARDS: Final = re.compile(rb"[+#]")

_FILTER_RULES: Final = {
    SUBSCRIBE: (SUBSCRIBE_LITERAL, SUBSCRIBE_PATTERN),
    UNSUBSCRIBE: (UNSUBSCRIBE_LITERAL, UNSUBSCRIBE_PATTERN),
}
"""The kinds of rules for one filter and for all that a pattern covers."""

_log = logging.getLogger("mqttlite.security")


class _Holder(NamedTuple):
    """What verdicts depend on."""

    roles: tuple[str, ...] = ()
    names: Names = NAMELESS
    """Those of the client only where a rule of its roles has one, so that clients with the same roles share a
    holder."""


_NOBODY: Final = _Holder()


class DynamicRules:
    """An `Authorizer`. `state` may be replaced at any time; the caller must then call `Broker.authorize`.

    `roles_in_use` returns the roles given by this object that sessions still have. A number always stands for the same
    holder, because sessions without a connection keep theirs. `on_forgotten` is that of `RoleNumbers`.
    """

    def __init__(
        self,
        state: State,
        roles_in_use: Callable[[], Iterable[int]] = lambda: (),
        max_holders: int = MAX_HOLDERS,
        *,
        on_forgotten: Callable[[], None] = nothing,
    ) -> None:
        self._state = state
        self._rules: dict[str, RoleRules] = {}
        """The rules of roles that were asked for."""
        self._max_holders: Final = max_holders
        self._holders: Final[RoleNumbers[_Holder]] = RoleNumbers(max_holders, roles_in_use, on_forgotten=on_forgotten)

    @property
    def state(self) -> State:
        """All users, groups and roles. A change is another state."""
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state
        self._rules = {name: each for name, each in self._rules.items() if name in state.roles}

    def role_of(self, client_id: str, username: str | None, grants: Grants = NO_GRANTS) -> int:
        roles = self.state.role_sets_of(username)
        if roles is None:
            return NOBODY
        has_names = any(rules.has_names for _, rules in self._rules_of(roles))
        names = Names(_safe(username or ""), _safe(client_id)) if has_names else NAMELESS
        number = self._holders.of(_Holder(roles, names))
        if number is None:
            _log.error("client %r may do nothing: clients have %d sets of permissions", client_id, self._max_holders)
            return NOBODY
        return number

    def is_open(self, topic: bytes) -> bool:
        return False

    def is_readable(self, topic: bytes) -> bool:
        return False

    def may_publish(self, role: int, topic: bytes) -> bool:
        return self._topic_verdict(role, PUBLISH_SEND, topic)[0]

    def may_receive(self, role: int, topic: bytes) -> bool:
        return self._topic_verdict(role, PUBLISH_RECEIVE, topic)[0]

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return self._filter_verdict(role, SUBSCRIBE, topic_filter)[0]

    def may_unsubscribe(self, role: int, topic_filter: bytes) -> bool:
        return self._filter_verdict(role, UNSUBSCRIBE, topic_filter)[0]

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return NO_POLICY

    def reason(self, role: int, action: str, topic: bytes) -> str:
        if action == ACTION_SUBSCRIBE:
            verdict, why = self._filter_verdict(role, SUBSCRIBE, topic)
        else:
            verdict, why = self._topic_verdict(
                role, PUBLISH_SEND if action == ACTION_PUBLISH else PUBLISH_RECEIVE, topic
            )
        return f"{'allowed' if verdict else 'denied'} by {why}"

    def _topic_verdict(self, role: int, kind: str, topic: bytes) -> tuple[bool, str]:
        holder = self._holders.get(role) or _NOBODY
        for name, rules in self._rules_of(holder.roles):
            acl = rules.of_topic(kind, topic, holder.names)
            if acl is not None:
                return acl.allow, f"{kind} {acl.topic} of role {name}"
        return self._default(role, kind, topic)

    def _filter_verdict(self, role: int, kind: str, topic_filter: bytes) -> tuple[bool, str]:
        filters = [topic_filter]
        if topic_filter.startswith(b"$share/"):
            filters.append(topic_filter.split(b"/", 2)[2])  # otherwise a shared subscription would bypass denials
        literal, pattern = _FILTER_RULES[kind]
        has_wildcard = kind == SUBSCRIBE and _WILDCARDS.search(topic_filter) is not None
        holder = self._holders.get(role) or _NOBODY
        for name, rules in self._rules_of(holder.roles):
            if has_wildcard and not self.state.roles[name].allow_wildcard_subs:
                return False, f"allowwildcardsubs of role {name}"
            acl = rules.of_letters(literal, filters)
            if acl is not None:
                return acl.allow, f"{literal} {acl.topic} of role {name}"
            acl = rules.of_filters(pattern, filters, holder.names)
            if acl is not None:
                return acl.allow, f"{pattern} {acl.topic} of role {name}"
        return self._default(role, kind, filters[-1])

    def _rules_of(self, roles: Iterable[str]) -> Iterator[tuple[str, RoleRules]]:
        """The rules of those of the roles that exist, in their order."""
        for name in roles:
            role = self.state.roles.get(name)
            if role is not None:
                rules = self._rules.get(name)
                if rules is None or not rules.are_of(role):
                    rules = self._rules[name] = RoleRules(role)
                yield name, rules

    def _default(self, role: int, kind: str, topic: bytes) -> tuple[bool, str]:
        if self._holders.get(role) is None:
            return False, "dynamic security, which does not know the user"
        if topic.startswith(b"$CONTROL"):
            return False, "dynamic security: no role allows it"
        return self.state.default_access[kind], f"the default access {kind}"


def _safe(name: str) -> bytes | None:
    """A name in place of `%u` or `%c`; None if the rule does not apply to the client. A name that is a wildcard would
    be a level of the filters of others. One with a slash is no level."""
    return None if name in ("", "+") else name.encode()
