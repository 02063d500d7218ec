"""Evaluates the roles of clients: an `Authorizer`.

The order of evaluation is that of Mosquitto's plugin: the roles of the client, then those of its groups; within a role,
rules by priority; if no rule matches, the default access. Invariant: an unknown user may do nothing, and the default
access never opens `$CONTROL`.
"""

import logging
from typing import Final

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
    State,
)
from mqttlite.topics.names import matches

MAX_ROLE_SETS: Final = 100_000
"""The most different lists of roles since the start. Clients with a further one may do nothing."""

NOBODY: Final = 0
"""The role of unknown users."""

_log = logging.getLogger("mqttlite.security")


class DynamicRules:
    """An `Authorizer`. `state` may change at any time; the caller must then call `Broker.authorize`.

    A number always stands for the same list of role names, because sessions without a connection keep theirs.
    """

    def __init__(self, state: State, max_role_sets: int = MAX_ROLE_SETS) -> None:
        self.state: State = state
        self._max_role_sets: Final = max_role_sets
        self._numbers: Final[dict[tuple[str, ...], int]] = {}
        self._names: Final[list[tuple[str, ...]]] = [()]

    def role_of(self, client_id: str, username: str | None, grants: Grants = NO_GRANTS) -> int:
        names = self.state.role_sets_of(username)
        if names is None:
            return NOBODY
        number = self._numbers.get(names)
        if number is None:
            if len(self._names) > self._max_role_sets:
                _log.error("client %r may do nothing: clients had %d lists of roles", client_id, self._max_role_sets)
                return NOBODY
            number = self._numbers[names] = len(self._names)
            self._names.append(names)
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
        return self._subscribe_verdict(role, topic_filter)[0]

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return NO_POLICY

    def reason(self, role: int, action: str, topic: bytes) -> str:
        if action == ACTION_SUBSCRIBE:
            verdict, why = self._subscribe_verdict(role, topic)
        else:
            verdict, why = self._topic_verdict(
                role, PUBLISH_SEND if action == ACTION_PUBLISH else PUBLISH_RECEIVE, topic
            )
        return f"{'allowed' if verdict else 'denied'} by {why}"

    def _topic_verdict(self, role: int, kind: str, topic: bytes) -> tuple[bool, str]:
        for name in self._names[role]:
            found = self.state.roles.get(name)
            if found is not None:
                for acl in found.acls[kind]:
                    if matches(acl.topic.encode(), topic):
                        return acl.allow, f"{kind} {acl.topic} of role {name}"
        return self._default(role, kind, topic)

    def _subscribe_verdict(self, role: int, topic_filter: bytes) -> tuple[bool, str]:
        filters = [topic_filter]
        if topic_filter.startswith(b"$share/"):
            filters.append(topic_filter.split(b"/", 2)[2])  # otherwise a shared subscription would bypass denials
        for name in self._names[role]:
            found = self.state.roles.get(name)
            if found is None:
                continue
            for acl in found.acls[SUBSCRIBE_LITERAL]:
                if acl.topic.encode() in filters:
                    return acl.allow, f"{SUBSCRIBE_LITERAL} {acl.topic} of role {name}"
            for acl in found.acls[SUBSCRIBE_PATTERN]:
                if any(covers(acl.topic.encode(), each) for each in filters):
                    return acl.allow, f"{SUBSCRIBE_PATTERN} {acl.topic} of role {name}"
        return self._default(role, SUBSCRIBE, filters[-1])

    def _default(self, role: int, kind: str, topic: bytes) -> tuple[bool, str]:
        if role == NOBODY:
            return False, "dynamic security, which does not know the user"
        if topic.startswith(b"$CONTROL"):
            return False, "dynamic security: no role allows it"
        return self.state.default_access[kind], f"the default access {kind}"


def covers(pattern: bytes, topic_filter: bytes) -> bool:
    """Whether a `subscribePattern` rule applies to a filter, by the plugin's comparison, in which `#` covers
    everything."""
    if pattern == b"#":
        return True
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
