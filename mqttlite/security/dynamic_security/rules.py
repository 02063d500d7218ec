"""Evaluates the roles of clients: an `Authorizer`.

The order of evaluation is that of Mosquitto's plugin: the roles of the client, then those of its groups; within a role,
rules by priority; if no rule matches, the default access. Invariant: an unknown user may do nothing, and the default
access never opens `$CONTROL`.
"""

import logging
import re
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.authorizer import PUBLISH as ACTION_PUBLISH
from mqttlite.core.authorizer import SUBSCRIBE as ACTION_SUBSCRIBE
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.security.dynamic_security.model import (
    NAMES,
    PUBLISH_RECEIVE,
    PUBLISH_SEND,
    SUBSCRIBE,
    SUBSCRIBE_LITERAL,
    SUBSCRIBE_PATTERN,
    UNSUBSCRIBE,
    UNSUBSCRIBE_LITERAL,
    UNSUBSCRIBE_PATTERN,
    USERNAME,
    Acl,
    State,
)
from mqttlite.topics.names import matches

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

    roles: tuple[str, ...]
    client_id: str = ""
    username: str = ""
    """Both empty where no rule of its roles has them, so that clients with the same roles share a holder."""


class DynamicRules:
    """An `Authorizer`. `state` may change at any time; the caller must then call `Broker.authorize`.

    `roles_in_use` returns the roles given by this object that sessions still have. A number always stands for the same
    holder, because sessions without a connection keep theirs.
    """

    def __init__(
        self,
        state: State,
        roles_in_use: Callable[[], Iterable[int]] = lambda: (),
        max_holders: int = MAX_HOLDERS,
    ) -> None:
        self.state: State = state
        self._roles_in_use: Final = roles_in_use
        self._max_holders: Final = max_holders
        self._numbers: Final[dict[_Holder, int]] = {}
        self._holders: Final[dict[int, _Holder]] = {NOBODY: _Holder(())}
        self._last = NOBODY

    def role_of(self, client_id: str, username: str | None, grants: Grants = NO_GRANTS) -> int:
        names = self.state.role_sets_of(username)
        if names is None:
            return NOBODY
        roles = [self.state.roles[name] for name in names]
        has_patterns = any(acl.has_names for role in roles for acls in role.acls.values() for acl in acls)
        holder = _Holder(names, client_id, username or "") if has_patterns else _Holder(names)
        number = self._numbers.get(holder)
        if number is None:
            if len(self._numbers) >= self._max_holders:
                self._forget_unused()
            if len(self._numbers) >= self._max_holders:
                _log.error(
                    "client %r may do nothing: clients have %d sets of permissions", client_id, self._max_holders
                )
                return NOBODY
            number = self._numbers[holder] = self._last = self._last + 1
            self._holders[number] = holder
        return number

    def _forget_unused(self) -> None:
        used = {NOBODY, *self._roles_in_use()}
        for number in [each for each in self._holders if each not in used]:
            del self._numbers[self._holders.pop(number)]

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
        holder = self._holders.get(role)
        for name in () if holder is None else holder.roles:
            found = self.state.roles.get(name)
            if found is not None:
                for acl in found.acls[kind]:
                    pattern = _pattern_of(acl, holder)
                    if pattern is not None and matches(pattern, topic):
                        return acl.allow, f"{kind} {acl.topic} of role {name}"
        return self._default(role, kind, topic)

    def _filter_verdict(self, role: int, kind: str, topic_filter: bytes) -> tuple[bool, str]:
        filters = [topic_filter]
        if topic_filter.startswith(b"$share/"):
            filters.append(topic_filter.split(b"/", 2)[2])  # otherwise a shared subscription would bypass denials
        literal, pattern_kind = _FILTER_RULES[kind]
        has_wildcard = kind == SUBSCRIBE and _WILDCARDS.search(topic_filter) is not None
        holder = self._holders.get(role)
        for name in () if holder is None else holder.roles:
            found = self.state.roles.get(name)
            if found is None:
                continue
            if has_wildcard and not found.allow_wildcard_subs:
                return False, f"allowwildcardsubs of role {name}"
            for acl in found.acls[literal]:
                if acl.topic.encode() in filters:
                    return acl.allow, f"{literal} {acl.topic} of role {name}"
            for acl in found.acls[pattern_kind]:
                pattern = _pattern_of(acl, holder)
                if pattern is not None and any(covers(pattern, each) for each in filters):
                    return acl.allow, f"{pattern_kind} {acl.topic} of role {name}"
        return self._default(role, kind, filters[-1])

    def _default(self, role: int, kind: str, topic: bytes) -> tuple[bool, str]:
        if role == NOBODY or role not in self._holders:
            return False, "dynamic security, which does not know the user"
        if topic.startswith(b"$CONTROL"):
            return False, "dynamic security: no role allows it"
        return self.state.default_access[kind], f"the default access {kind}"


def _pattern_of(acl: Acl, holder: _Holder | None) -> bytes | None:
    """The topic of a rule for a holder, with its names in place of `%u` and `%c`; None if it does not apply.

    A name with a slash would span levels, and one that is a wildcard would reach topics of others.
    """
    if not acl.has_names:
        return acl.topic.encode()
    assert holder is not None, "it has the role of the rule"
    levels = acl.topic.split("/")
    for at, level in enumerate(levels):
        if level in NAMES:
            name = holder.username if level == USERNAME else holder.client_id
            if not name or "/" in name or name in ("+", "#") or (at == 0 and name.startswith("$")):
                return None
            levels[at] = name
    return "/".join(levels).encode()


def covers(pattern: bytes, topic_filter: bytes) -> bool:
    """Whether a `subscribePattern` rule applies to a filter, by the plugin's comparison: `#` covers every filter but
    those that begin with `$`, and `+` does not cover `#`."""
    if pattern.startswith(b"$") != topic_filter.startswith(b"$"):
        return False
    wanted, levels = pattern.split(b"/"), topic_filter.split(b"/")
    if wanted[-1] == b"#":
        wanted.pop()
        if levels[-1] == b"#":
            levels.pop()
        if len(levels) < len(wanted):
            return False
    elif levels[-1] == b"#" or len(levels) != len(wanted):
        return False
    return all(level in (b"+", levels[depth]) for depth, level in enumerate(wanted))
