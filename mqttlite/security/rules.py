"""Evaluates the rules of an ACL file, and topic policies.

`acl_file` parses ACL files, `topic_policies` defines policies, and `granted_topics` adds the restrictions of
credentials. The order of evaluation is Mosquitto's:

1. a `deny` of the user's section, or of one of its groups' (or of the anonymous section), that matches the topic; 2.
another matching rule of these sections that allows the action; 3. a pattern that denies; 4. a pattern that allows; 5.
nothing: denied.

Below `$SYS` clients may read unless a rule denies it. After that, the topic's policy must also allow the action.
Invariant: a `Rules` object never changes; new rules are a new object.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, final

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.topic_policy import TopicPolicy
from mqttlite.security.acl_file import AclFile
from mqttlite.security.role_numbers import RoleNumbers, nothing
from mqttlite.security.rule_tree import NOBODY, READ, WRITE, Names, Rule, RuleTree
from mqttlite.security.topic_policies import CheckOf, TopicPolicies, TopicPolicyOptions, intersection

MAX_ROLES: Final = 200_000
"""The default for the most roles, some 500 bytes each. Clients with the same permissions share a role, so there are
many only if patterns give each client its own. When there is no room, roles without a session are dropped. A broker
sets twice its limit of sessions, so at least half can be dropped each time."""

MAX_OVERLAPS: Final = 10_000
"""Pairs of a rule and a policy to check for one SUBSCRIBE. If more overlap, the SUBSCRIBE is allowed without a full
check, to protect the loop: each message is checked anyway."""

NO_PERMISSIONS: Final = 0
"""The role of a client when all `MAX_ROLES` are in use: it may do nothing."""


class Ruling(NamedTuple):
    """A verdict and its origin. `line` is the line in the ACL file; 0 if no rule of it decided."""

    is_allowed: bool
    line: int
    reason: str
    """For example `/etc/acl.conf:12 (user alice)`, or why there is no rule."""
    told: str = ""
    """The reason for the client, if `reason` contains a path of the server."""


@final
class _Section:
    """The rules of one user, of one group or of anonymous clients."""

    __slots__ = ("title", "tree")

    def __init__(self, title: str, rules: Sequence[Rule]) -> None:
        self.title: Final = title
        self.tree: Final = RuleTree(rules)


class _Role(NamedTuple):
    """The permissions that several clients share."""

    sections: tuple[_Section, ...]
    names: Names
    unsafe: str
    """Why patterns do not apply to the client; empty if they do."""
    memberships: frozenset[int]


@final
class Rules:
    """An `Authorizer`. `acl` is None without an ACL file: then everything is allowed that no policy forbids. `groups`
    has the users of each group; credentials may add groups. `roles_in_use` returns the roles that clients still have,
    when roles must be dropped. Roles are taken from `numbers`, so that a role of former rules is never one of these.
    `check_of` creates schema checks; without it payloads are not checked.
    """

    def __init__(
        self,
        acl: AclFile | None = None,
        policies: Sequence[TopicPolicyOptions] = (),
        groups: Mapping[str, Collection[str]] | None = None,
        *,
        roles_in_use: Callable[[], Collection[int]] = lambda: (),
        max_roles: int = MAX_ROLES,
        on_forgotten: Callable[[], None] = nothing,
        numbers: Iterator[int] | None = None,
        check_of: CheckOf | None = None,
    ) -> None:
        self.acl: Final = acl
        self.policies: Final = TopicPolicies(policies, check_of)
        self._max_roles: Final = max_roles
        self._groups_of: Final[dict[str, tuple[str, ...]]] = {}
        for group, users in (groups or {}).items():
            for user in users:
                self._groups_of[user] = (*self._groups_of.get(user, ()), group)
        given = AclFile("") if acl is None else acl
        self._anonymous: Final = _Section("anonymous clients", given.anonymous)
        self._users: Final = {name: _Section(f"user {name}", rules) for name, rules in given.users.items()}
        self._groups: Final = {name: _Section(f"group {name}", rules) for name, rules in given.groups.items()}
        self._patterns: Final = RuleTree(given.patterns, is_template=_has_name)
        filters = [rule.topic_filter for rule in given.patterns]
        self._has_patterns: Final = bool(filters)
        self._has_username: Final = any(b"%u" in each for each in filters)
        self._has_client_id: Final = any(b"%c" in each for each in filters)
        self._begins_with_username: Final = any(each.startswith(b"%u") for each in filters)
        self._begins_with_client_id: Final = any(each.startswith(b"%c") for each in filters)
        sections = (self._anonymous, *self._users.values(), *self._groups.values())
        self._depth: Final = max(
            *(section.tree.depth for section in sections), self._patterns.depth, self.policies.depth, 2
        )
        self._roles: Final[RoleNumbers[_Role]] = RoleNumbers(
            max_roles, roles_in_use, numbers, on_forgotten=on_forgotten
        )

    def parts(self) -> list[object]:
        """The objects they consist of. Freeing them one by one, from the end, avoids one long pause."""
        found: list[object] = [] if self.acl is None else [*self.acl.users.values(), *self.acl.groups.values()]
        sections = (self._anonymous, *self._users.values(), *self._groups.values())
        for tree in (self._patterns, self.policies.filters, *(section.tree for section in sections)):
            found += tree.nodes()
        return found

    def user_names(self) -> set[str]:
        """The users named by a section, a group or a policy."""
        found = {*self._users, *self._groups_of}
        for policy in self.policies.policies:
            found.update(filter(None, (policy.options.owner, *policy.options.members)))
        return found

    # ------------------------------------------------------------------ roles

    def role_of(self, client_id: str, username: str | None, grants: Grants = NO_GRANTS) -> int:
        """The number for clients with these permissions; `NO_PERMISSIONS` if no number is left."""
        groups = set(grants.groups)
        own: _Section | None = self._anonymous
        if username is not None:
            groups.update(self._groups_of.get(username, ()))
            own = self._users.get(username)
        sections = tuple(self._groups[name] for name in sorted(groups & self._groups.keys()))
        if own is not None:
            sections = (own, *sections)
        names, unsafe = self._names_of(client_id, username)
        memberships = self.policies.memberships(username, groups)
        number = self._roles.of(_Role(sections, names, unsafe, memberships))
        return NO_PERMISSIONS if number is None else number

    def _names_of(self, client_id: str, username: str | None) -> tuple[Names, str]:
        """The names for patterns, if there are any, and why patterns do not apply to this client.

        A name with a wildcard would match topics of other clients (CVE-2017-7650), one with a slash spans more than one
        level, and one that begins with `$` may be a namespace of the broker.
        """
        if not self._has_patterns:
            return NOBODY, ""
        for what, name, is_used, begins in (
            ("user name", username, self._has_username, self._begins_with_username),
            ("client identifier", client_id, self._has_client_id, self._begins_with_client_id),
        ):
            if name is None:
                continue
            if "+" in name or "#" in name:
                return NOBODY, f"a {what} with + or # in it gets nothing from patterns"
            if is_used and "/" in name:
                return NOBODY, f"a {what} with / in it gets nothing from patterns"
            if begins and name.startswith("$"):
                return NOBODY, f"a {what} that begins with $ gets nothing from patterns"
        return Names(
            username.encode() if self._has_username and username is not None else None,
            client_id.encode() if self._has_client_id else None,
        ), ""

    # ------------------------------------------------------------------ verdicts

    def is_open(self, topic: bytes) -> bool:
        """False with an ACL file: a user without rules may do nothing."""
        if self.acl is not None:
            return False
        policy = self.policies.find(_target(topic))
        return policy is None or policy.publish_is_open

    def is_readable(self, topic: bytes) -> bool:
        """Like `is_open`."""
        if self.acl is not None:
            return False
        policy = self.policies.find(topic)
        return policy is None or policy.receive_is_open

    def may_publish(self, role: int, topic: bytes) -> bool:
        return self.ruling(role, "publish", topic).is_allowed

    def may_receive(self, role: int, topic: bytes) -> bool:
        return self.ruling(role, "receive", topic).is_allowed

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        """Whether the filter matches at least one topic that the role may receive."""
        return self.ruling(role, "subscribe", topic_filter).is_allowed

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return self.policies.of_core(topic)

    def reason(self, role: int, action: str, topic: bytes) -> str:
        """A sentence for logs; `action` is "publish", "subscribe" or "receive"."""
        ruling = self.ruling(role, action, topic)
        return f"{'allowed' if ruling.is_allowed else 'denied'} by {ruling.reason}"

    def told(self, role: int, action: str, topic: bytes) -> str:
        """The same for the client."""
        ruling = self.ruling(role, action, topic)
        return f"{'allowed' if ruling.is_allowed else 'denied'} by {ruling.told or ruling.reason}"

    def ruling(self, role: int, action: str, topic: bytes) -> Ruling:
        """The verdict on a topic, or for "subscribe" on a topic filter, and its origin."""
        known = self._roles.get(role)
        if known is None:
            return Ruling(False, 0, f"a limit: {self._max_roles} roles are in use, and there is none for the client")
        if action == "subscribe":
            return self._subscribe_ruling(known, topic)
        levels = _target(topic).split(b"/")
        ruling = self._acl_ruling(known, levels, WRITE if action == "publish" else READ)
        return self._policy_ruling(known, b"/".join(levels), action, ruling) if ruling.is_allowed else ruling

    def _acl_ruling(self, role: _Role, levels: Sequence[bytes], access: int) -> Ruling:
        allowed: Ruling | None = None
        for section in role.sections:
            found = section.tree.find(levels)
            if found.deny:
                return self._by(False, found.deny, section.title)
            line = found.read if access == READ else found.write
            if line and allowed is None:
                allowed = self._by(True, line, section.title)
        if allowed is not None:
            return allowed
        if self._has_patterns:
            if role.unsafe:
                return Ruling(False, 0, f"a safeguard: {role.unsafe}")
            found = self._patterns.find(levels, role.names)
            line = found.read if access == READ else found.write
            if found.deny:
                return self._by(False, found.deny, "pattern")
            if line:
                return self._by(True, line, "pattern")
        if access == READ and levels[0] == b"$SYS":
            return Ruling(True, 0, "default: no rule denies it, and clients may read below $SYS")
        if self.acl is None:
            return Ruling(True, 0, "default: there is no ACL file")
        titles = " and ".join(section.title for section in role.sections) or "a user without rules"
        why = f"has no rule that allows it ({titles})"
        return Ruling(False, 0, f"default: {self.acl.path} {why}", f"default: the ACL file {why}")

    def _by(self, is_allowed: bool, line: int, title: str) -> Ruling:
        assert self.acl is not None, "rules have a file"
        told = f"line {line} of the ACL file ({title})"
        return Ruling(is_allowed, line, f"{self.acl.path}:{line} ({title})", told)

    def _policy_ruling(self, role: _Role, topic: bytes, action: str, ruling: Ruling) -> Ruling:
        policy = self.policies.find(topic)
        if policy is None:
            return ruling
        is_member = policy.number in role.memberships
        if is_member or (policy.publish_is_open if action == "publish" else policy.receive_is_open):
            if self.acl is not None:
                return ruling
            return Ruling(True, 0, f"{policy.title}, {'for the client is a member' if is_member else 'as everybody'}")
        return Ruling(False, 0, f"{policy.title}, for the client is not a member")

    # ------------------------------------------------------------------ filters

    def _subscribe_ruling(self, known: _Role, topic_filter: bytes) -> Ruling:
        found = self._readable_part(known, topic_filter)
        if found is not None:
            return found
        # All topics that the filter matches are denied: take the reason for one that no rule names.
        levels = _plain_filter(topic_filter).split(b"/")
        if levels[-1] == b"#" and len(levels) > 1:
            levels.pop()
        sample = [b"+" if level == b"#" else level for level in levels]
        ruling = self._acl_ruling(known, sample, READ)
        if ruling.is_allowed:
            ruling = self._policy_ruling(known, b"/".join(sample), "receive", ruling)
        return ruling

    def _readable_part(self, role: _Role, topic_filter: bytes) -> Ruling | None:
        """The ruling on a topic that a filter matches and that a role may receive; None if there is none.

        It is enough to check these: for each overlap of the filter with a read rule and a policy, a topic whose levels
        are not named by any rule. A rule that denies this topic denies all topics of the overlap.
        """
        looked_at = 0
        for part in self._parts(role, _plain_filter(topic_filter).split(b"/")):
            for sample in _samples(part, self._depth):
                looked_at += 1
                ruling = self._acl_ruling(role, sample, READ)
                if ruling.is_allowed:
                    ruling = self._policy_ruling(role, b"/".join(sample), "receive", ruling)
                if ruling.is_allowed:
                    return ruling
                if looked_at >= MAX_OVERLAPS:
                    return Ruling(
                        True,
                        0,
                        f"a limit: more than {MAX_OVERLAPS} rules overlap the filter, and each message is asked about",
                    )
        return None

    def _parts(self, role: _Role, wanted: list[bytes]) -> Iterator[list[bytes]]:
        for allowed in self._allowed_parts(role, wanted):
            yield allowed
            for policy in self.policies.policies:
                part = intersection(allowed, policy.levels)
                if part is not None and part != allowed:
                    yield part

    def _allowed_parts(self, role: _Role, wanted: list[bytes]) -> Iterator[list[bytes]]:
        for section in role.sections:
            yield from section.tree.overlaps(wanted)
        if self.acl is None:
            yield wanted
        if self._has_patterns and not role.unsafe:
            yield from self._patterns.overlaps(wanted, role.names)
        below_sys = intersection(wanted, [b"$SYS", b"#"])
        if below_sys is not None:
            yield below_sys


def _samples(topic_filter: list[bytes], depth: int) -> Iterator[list[bytes]]:
    """Topics that a filter matches, one for each number of levels that rules distinguish. A level `+` stands for a text
    that no rule contains."""
    if topic_filter[-1] != b"#":
        yield topic_filter
        return
    beginning = topic_filter[:-1]
    for more in range(max(1, depth + 1 - len(beginning)) + 1):
        sample = [*beginning, *[b"+"] * more]
        if sample:
            yield sample


def _has_name(level: bytes) -> bool:
    return b"%u" in level or b"%c" in level


def _target(topic: bytes) -> bytes:
    """The topic to check: for `$delayed/<seconds>/<topic>`, the topic at the end."""
    if topic.startswith(b"$delayed/"):
        *_, target = topic.split(b"/", 2)
        return target
    return topic


def _plain_filter(topic_filter: bytes) -> bytes:
    """The filter after `$share/<share name>/`."""
    if topic_filter.startswith(b"$share/"):
        *_, topic_filter = topic_filter.split(b"/", 2)
    return topic_filter
