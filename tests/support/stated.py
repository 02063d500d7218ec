"""What `mqttlite check` states, read back from its sentences and taken at their word: an oracle that knows no rules but
those sentences, in the order that docs/howto/permissions.md gives."""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final, NamedTuple

from mqttlite.topics.names import matches

READ: Final = "read"
WRITE: Final = "write"

_ACCESS: Final = {"read and write": (READ, WRITE), "read": (READ,), "write": (WRITE,), "not": ()}
_POLICIES: Final = {
    "everyone publishes and subscribes": (READ, WRITE),
    "only members publish and subscribe": (),
    "everyone publishes, only members subscribe": (WRITE,),
    "everyone subscribes, only members publish": (READ,),
}
_KINDS: Final = {READ: "publishClientReceive", WRITE: "publishClientSend"}


class Policy(NamedTuple):
    topic_filter: str
    open_for: Sequence[str]
    members: frozenset[str]


class Stated:
    """`groups` has the users of each group, which are in the configuration and not repeated."""

    def __init__(self, lines: list[str], groups: dict[str, tuple[str, ...]]) -> None:
        self.groups = groups
        self.has_files = any(line.startswith("only what ") for line in lines)
        self.has_dynamic = any("dynamic security allows" in line for line in lines)
        self.sections: dict[str, list[tuple[Sequence[str], str]]] = {}
        self.policies: list[Policy] = []
        self.default: frozenset[str] = frozenset()
        self.roles: dict[str, dict[str, list[tuple[bool, str]]]] = {}
        self.role_lists: dict[str | None, list[str]] = {}
        for line in lines:
            self._read(line)

    def _read(self, line: str) -> None:
        if found := re.fullmatch(r"(anonymous clients|user .+?|group .+?|patterns): (.*)", line):
            self.sections[found[1]] = list(_rules(found[2]))
        elif found := re.fullmatch(r"topics (\S+): ([^(;]*?)(?: \(members: (.*)\))?(?:; .*)?", line):
            members = frozenset(filter(None, (found[3] or "").split(", ")))
            self.policies.append(Policy(found[1], _POLICIES[found[2]], members))
        elif found := re.fullmatch(r"where no role says anything, dynamic security allows (.*)", line):
            self.default = frozenset(found[1].split(", "))
        elif found := re.fullmatch(r"role (\S+) \(.*?\): (.*)", line):
            self.roles[found[1]] = dict(_acls(found[2].removeprefix("no topic filters with wildcards; ")))
        elif found := re.fullmatch(r"(.+?) (?:has|have) (?:the roles? (.*?)(?:, asked in this order)?|no role)", line):
            users = [None] if found[1] == "anonymous clients" else found[1].removeprefix("user ").split(", ")
            for user in users:
                self.role_lists[user] = (found[2] or "").split(", ") if found[2] else []

    def allows(self, client_id: str, user: str | None, access: str, topic: str) -> bool:
        """Whether a client may publish to a topic, or receive from it."""
        if topic.startswith("$CONTROL/") and self.has_dynamic:
            return self._dynamic_allows(client_id, user, access, topic)
        return (
            (not self.has_dynamic or self._dynamic_allows(client_id, user, access, topic))
            and (not self.has_files or self._files_allow(client_id, user, access, topic))
            and self._policy_allows(user, access, topic)
        )

    def _files_allow(self, client_id: str, user: str | None, access: str, topic: str) -> bool:
        own = ["anonymous clients" if user is None else f"user {user}"]
        own += [f"group {name}" for name, users in self.groups.items() if user in users]
        verdict = _first_verdict([rule for title in own for rule in self.sections.get(title, [])], access, topic)
        if verdict is None:
            patterns = [
                (allowed, topic_filter.replace("%u", user or "").replace("%c", client_id))
                for allowed, topic_filter in self.sections.get("patterns", [])
                if user is not None or "%u" not in topic_filter
            ]
            verdict = _first_verdict(patterns, access, topic)
        return verdict if verdict is not None else access == READ and topic.startswith("$SYS/")

    def _policy_allows(self, user: str | None, access: str, topic: str) -> bool:
        matching = [each for each in self.policies if matches(each.topic_filter.encode(), topic.encode())]
        if not matching:
            return True
        policy = max(matching, key=lambda each: (*_rank(each.topic_filter), -self.policies.index(each)))
        names = {user} | {f"group {name}" for name, users in self.groups.items() if user in users}
        return access in policy.open_for or bool(policy.members & names)

    def _dynamic_allows(self, client_id: str, user: str | None, access: str, topic: str) -> bool:
        if user not in self.role_lists:
            return False
        for role in self.role_lists[user]:
            for is_allowed, topic_filter in self.roles[role].get(_KINDS[access], []):
                if user is None and "%u" in topic_filter:
                    continue
                named = topic_filter.replace("%u", user or "").replace("%c", client_id)
                if matches(named.encode(), topic.encode()):
                    return is_allowed
        return _KINDS[access] in self.default and not topic.startswith("$CONTROL")

    def reaches(self, client_id: str, user: str | None, topic_filter: str, levels: Sequence[str]) -> bool:
        """Whether there is a topic of those levels that a filter matches and the client may receive."""
        return any(
            matches(topic_filter.encode(), topic.encode()) and self.allows(client_id, user, READ, topic)
            for topic in topics_of(levels)
        )


def topics_of(levels: Sequence[str]) -> Iterator[str]:
    """All topics of up to three such levels, and some of four."""
    for count in (1, 2, 3):
        yield from ("/".join(each) for each in product(levels, repeat=count))
    yield from ("/".join((*each, "z")) for each in product(levels, repeat=3))


def _first_verdict(rules: list[tuple[Sequence[str], str]], access: str, topic: str) -> bool | None:
    """A rule that denies comes before those that allow."""
    matching = [allowed for allowed, topic_filter in rules if matches(topic_filter.encode(), topic.encode())]
    if () in matching:
        return False
    return True if any(access in each for each in matching) else None


def _rank(topic_filter: str) -> tuple[int, int, int]:
    """Of two filters the one with the longer beginning without wildcards is more specific."""
    levels = topic_filter.split("/")
    wild = [level in ("+", "#") for level in levels]
    beginning = wild.index(True) if True in wild else len(levels)
    return beginning, wild.count(False), 2 * len(levels) - levels.count("#")


def _rules(text: str) -> Iterator[tuple[Sequence[str], str]]:
    for part in text.split("; "):
        (what,) = [
            each for each in _ACCESS if part.startswith(f"{each} ") and not (each == "read" and part[5:9] == "and ")
        ]
        for topic_filter in part.removeprefix(f"{what} ").split(", "):
            yield _ACCESS[what], topic_filter


def _acls(text: str) -> Iterator[tuple[str, list[tuple[bool, str]]]]:
    if text == "nothing":
        return
    for part in text.split("; "):
        kind, _, acls = part.partition(": ")
        pairs = [each.partition(" ") for each in acls.split(", ")]
        yield kind, [(verb == "allow", topic_filter) for verb, _, topic_filter in pairs]
