"""The rules of one role, made to be looked up: a tree for each kind of rule, and for kinds that hold to the letter a
dictionary of topics.

Each is made when it is first asked for, because a role may have a thousand rules that no client needs. Invariant: of
several rules that match, the first in the role's order is found.
"""

from collections.abc import Sequence
from typing import Final, final

from mqttlite.security.dynamic_security.model import NAMES, Acl, Role
from mqttlite.security.rule_tree import DENY, READ, Names, Rule, RuleTree, first

_TEMPLATES: Final = frozenset(each.encode() for each in NAMES)


@final
class RoleRules:
    """`has_names` says whether a rule has the user name or the client identifier in its topic."""

    __slots__ = ("_letters", "_role", "_trees", "has_names")

    def __init__(self, role: Role) -> None:
        self._role: Role = role
        self._trees: Final[dict[str, RuleTree]] = {}
        self._letters: Final[dict[str, dict[bytes, int]]] = {}
        self.has_names: Final = any(acl.has_names for acls in role.acls.values() for acl in acls)

    def are_of(self, role: Role) -> bool:
        """Whether a role has these rules. A change of other roles makes copies of all."""
        if role is not self._role:
            if role.acls != self._role.acls:
                return False
            self._role = role
        return True

    def of_topic(self, kind: str, topic: bytes, names: Names) -> Acl | None:
        """The first rule that matches a topic."""
        found = self._tree(kind).find(topic.split(b"/"), names)
        return self._acl(kind, first(found.deny, found.read))

    def of_filters(self, kind: str, filters: Sequence[bytes], names: Names) -> Acl | None:
        """The first rule that covers one of these filters."""
        line = 0
        for each in filters:
            found = self._tree(kind).find_covering(each.split(b"/"), names)
            line = first(line, first(found.deny, found.read))
        return self._acl(kind, line)

    def of_letters(self, kind: str, filters: Sequence[bytes]) -> Acl | None:
        """The first rule whose topic is one of these filters."""
        letters = self._letters.get(kind)
        if letters is None:
            letters = self._letters[kind] = {}
            for line, acl in enumerate(self._role.acls[kind], 1):
                letters.setdefault(acl.topic.encode(), line)
        line = 0
        for each in filters:
            line = first(line, letters.get(each, 0))
        return self._acl(kind, line)

    def _tree(self, kind: str) -> RuleTree:
        tree = self._trees.get(kind)
        if tree is None:
            tree = self._trees[kind] = RuleTree(
                (
                    Rule(line, READ if acl.allow else DENY, acl.topic.encode())
                    for line, acl in enumerate(self._role.acls[kind], 1)
                ),
                is_template=_TEMPLATES.__contains__,
            )
        return tree

    def _acl(self, kind: str, line: int) -> Acl | None:
        return self._role.acls[kind][line - 1] if line else None
