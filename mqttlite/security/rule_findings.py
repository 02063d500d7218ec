"""Finds suspicious rules that are valid one by one: rules without effect, and denials that can be bypassed.

`mqttlite check` prints it. Invariant: nothing here changes a verdict.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from mqttlite.security.acl_file import AclFile
from mqttlite.security.rule_tree import DENY, READ, WRITE, Rule, RuleTree
from mqttlite.security.topic_policies import TopicPolicies, TopicPolicyOptions, intersection

_NAME: Final = re.compile(rb"%[uc]")

MAX_FINDINGS: Final = 200
"""The most findings for an ACL file."""


class Finding(NamedTuple):
    """A sentence about a line of the ACL file, or with line 0 about the file or the configuration."""

    line: int
    sentence: str


def acl_findings(
    acl: AclFile, known_groups: Mapping[str, Collection[str]], known_users: Collection[str] | None
) -> list[Finding]:
    """The findings for an ACL file, by line. `known_groups` has the users of each group; `known_users` is None if users
    need not be in a password file."""
    found: list[Finding] = []
    for each in _acl_findings(acl, known_groups, known_users):
        found.append(each)
        if len(found) == MAX_FINDINGS:
            found.append(Finding(10**9, f"there are more findings than {MAX_FINDINGS}"))
            break
    return sorted(found)


def _acl_findings(
    acl: AclFile, known_groups: Mapping[str, Collection[str]], known_users: Collection[str] | None
) -> Iterator[Finding]:
    if not len(acl):
        yield Finding(0, "it has no rule, so every client is denied everything but reading $SYS")
    for title, rules in sections(acl):
        user = title.removeprefix("user ")
        groups = [name for name, users in known_groups.items() if title != user and user in users]
        others = [rule for name in groups for rule in acl.groups.get(name, ())]
        yield from _section_findings(title, rules, others)
        if title != "patterns":
            yield from _defeated_patterns(title, rules, others, acl.patterns)
    for rule in acl.patterns:
        if b"%u" not in rule.topic_filter and b"%c" not in rule.topic_filter:
            yield Finding(rule.line, f"the pattern {_shown(rule)} has neither %u nor %c: it is for every client")
    for name, rules in acl.groups.items():
        if name not in known_groups and rules:
            yield Finding(
                rules[0].line,
                f"group {name} has no users in [groups]: the rules are for those whose tokens name it",
            )
    if known_users is not None:
        for name, rules in acl.users.items():
            if name not in known_users and rules:
                yield Finding(rules[0].line, f"user {name} is not in the password file: the rules reach nobody")


def sections(acl: AclFile) -> Iterator[tuple[str, list[Rule]]]:
    """All sections with rules, by their titles for sentences."""
    yield "anonymous clients", acl.anonymous
    for name, rules in acl.users.items():
        yield f"user {name}", rules
    for name, rules in acl.groups.items():
        yield f"group {name}", rules
    yield "patterns", acl.patterns


def _section_findings(title: str, rules: Sequence[Rule], others: Sequence[Rule]) -> Iterator[Finding]:
    """`others` are the rules of the user's groups, which may deny what the user's own rules allow."""
    depth = max((rule.topic_filter.count(b"/") + 2 for rule in (*rules, *others)), default=0)
    denied, allowed = RuleTree(()), RuleTree(())
    # Broader rules first, so that rules that cover a rule are in the tree when it is looked up.
    for rule in sorted(rules, key=_breadth):
        if rule.topic_filter in (b"read", b"write", b"readwrite", b"deny"):
            yield Finding(rule.line, f"the rule is for a topic named {_shown(rule)}: is the topic missing?")
        if rule.access == DENY:
            line, _, _ = _covering(denied, rule, depth)
            if line:
                yield Finding(rule.line, f"deny {_shown(rule)} says nothing that line {line} does not say ({title})")
            denied.add(rule)
    for rule in sorted(rules, key=_breadth):
        if rule.access != DENY:
            line, _, _ = _covering(denied, rule, depth)
            if line:
                yield Finding(rule.line, f"{_shown(rule)} is never allowed: line {line} denies all of it ({title})")
            else:
                _, read, write = _covering(allowed, rule, depth)
                if (not rule.access & READ or read) and (not rule.access & WRITE or write):
                    line = read if rule.access & READ else write
                    yield Finding(rule.line, f"{_shown(rule)} says nothing that line {line} does not say ({title})")
            allowed.add(rule)
    for rule in others:
        if rule.access == DENY:
            denied.add(rule)
    for rule in rules:
        if rule.access == DENY:
            yield from _half_denied(title, rule, allowed, denied, depth)


def _half_denied(title: str, rule: Rule, allowed: RuleTree, denied: RuleTree, depth: int) -> Iterator[Finding]:
    """A denial that probably should cover more, which a broader rule still allows."""
    if rule.topic_filter == b"#":
        _, read, write = allowed.find([b"$SYS", b"+"])
        if read or write:
            yield Finding(
                rule.line, f"deny # does not reach topics that begin with $, and line {read or write} allows some"
            )
    elif not rule.topic_filter.endswith(b"#"):
        below = Rule(rule.line, DENY, rule.topic_filter + b"/#")
        _, read, write = _covering(allowed, below, depth)
        levels = rule.topic_filter.split(b"/")
        is_denied = all(denied.find([*levels, *[b"+"] * more]).deny for more in (1, max(1, depth - len(levels))))
        if (read or write) and not is_denied:
            yield Finding(
                rule.line,
                f"deny {_shown(rule)} leaves the topics below it to line {read or write}, which allows them; "
                f"write deny {rule.topic_filter.decode()}/# if they are meant, too ({title})",
            )


def _defeated_patterns(
    title: str, rules: Sequence[Rule], others: Sequence[Rule], patterns: Sequence[Rule]
) -> Iterator[Finding]:
    denials = [rule for rule in patterns if rule.access == DENY]
    if not denials:
        return
    allowed = RuleTree(Rule(rule.line, READ, rule.topic_filter) for rule in rules if rule.access != DENY)
    own_denials = RuleTree(rule for rule in (*rules, *others) if rule.access == DENY)
    depth = max(allowed.depth, own_denials.depth) + 1
    username = title.removeprefix("user ").encode() if title.startswith("user ") else None
    for denial in denials:
        if title == "anonymous clients" and b"%u" in denial.topic_filter:
            continue  # the pattern is not for clients without a user name
        filled = denial.topic_filter if username is None else denial.topic_filter.replace(b"%u", username)
        # %c, and %u in the section of a group, may be any level
        templates = filled.split(b"/")
        levels = [b"+" if b"%u" in level or b"%c" in level else level for level in templates]
        if any(
            _is_of_one_client(templates, part) and not _covering(own_denials, Rule(0, READ, b"/".join(part)), depth)[0]
            for part in allowed.overlaps(levels)
        ):
            yield Finding(
                denial.line,
                f"the pattern deny {_shown(denial)} does not hold for {title}, whose own rules come first and allow "
                "some of it; deny it in that section, too",
            )


def _is_of_one_client(templates: Sequence[bytes], part: Sequence[bytes]) -> bool:
    """Whether one user name and client identifier fit all these levels of a pattern."""
    names: dict[bytes, bytes] = {}
    for template, level in zip(templates, part, strict=False):
        if level in (b"+", b"#") or (b"%u" not in template and b"%c" not in template):
            continue
        found = re.fullmatch(_NAME.sub(b"(.+)", re.escape(template)), level, re.DOTALL)
        if found is None:
            return False
        for name, value in zip(_NAME.findall(template), found.groups(), strict=True):
            if names.setdefault(name, value) != value:
                return False
    return True


def policy_findings(policies: Sequence[TopicPolicyOptions], known_groups: Collection[str]) -> Iterator[Finding]:
    """The findings for topic policies."""
    for number, each in enumerate(policies):
        has_members = each.owner or each.members or each.groups
        if each.access == "PRIVATE" and not has_members:
            yield Finding(0, f"topic_policies[{number}] is PRIVATE and has no members: nobody may use the topics")
        elif each.access in ("PUBLISH_ONLY", "SUBSCRIBE_ONLY") and not has_members:
            what = "subscribe" if each.access == "PUBLISH_ONLY" else "publish"
            yield Finding(0, f"topic_policies[{number}] is {each.access} and has no members: nobody may {what}")
        elif each.access == "PUBLIC" and has_members:
            yield Finding(0, f"topic_policies[{number}] is PUBLIC: its owner, members and groups make no difference")
        for group in each.groups:
            if group not in known_groups:
                yield Finding(0, f"topic_policies[{number}] names the group {group}, which has no users in [groups]")


def queue_findings(policies: Sequence[TopicPolicyOptions], queues: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Queues that give every client messages that policies restrict: a client that may subscribe to a queue gets all
    its messages."""
    all_policies = TopicPolicies(policies)
    for name, filters in queues.items():
        own = all_policies.find(f"$queue/{name}".encode())
        if own is not None and not own.receive_is_open:
            continue
        for policy in all_policies.policies:
            levels = [each.encode().split(b"/") for each in filters]
            if not policy.receive_is_open and any(intersection(each, policy.levels) is not None for each in levels):
                yield Finding(
                    0,
                    f"every client may subscribe to $queue/{name} and take messages that {policy.title} keeps from "
                    f'some; add a topic policy with prefix = "$queue/{name}", or an acl_file',
                )


def unkept_findings(policies: Sequence[TopicPolicyOptions], queues: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Queues that are bound to ephemeral topics, whose messages they do not take."""
    all_policies = TopicPolicies(policies)
    ephemeral = [each for each in all_policies.policies if each.core.is_ephemeral]
    for name, filters in queues.items():
        levels = [each.encode().split(b"/") for each in filters]
        for policy in ephemeral:
            if any(intersection(each, policy.levels) is not None for each in levels):
                yield Finding(
                    0,
                    f"$queue/{name} takes no messages of topics of {policy.title}: they are ephemeral, and a queue "
                    "would keep them",
                )


def _covering(tree: RuleTree, rule: Rule, depth: int) -> tuple[int, int, int]:
    """The lines of rules in a tree that match every topic that this rule matches; 0: none."""
    levels = rule.topic_filter.split(b"/")
    if levels[-1] != b"#":
        return tree.find(levels)
    # Topics that only wildcards match: the shortest one, and one longer than any rule.
    shortest = levels[:-1] or [b"+"]
    longest = [*levels[:-1], *[b"+"] * max(1, depth + 1 - len(levels))]
    first, last = tree.find(shortest), tree.find(longest)
    deny, read, write = (one if one == other else 0 for one, other in zip(first, last, strict=True))
    return deny, read, write


def _breadth(rule: Rule) -> tuple[bool, int, int, int]:
    """A sort key that puts a rule before the rules that it covers."""
    levels = rule.topic_filter.split(b"/")
    return levels[-1] != b"#", len(levels), -levels.count(b"+"), rule.line


def _shown(rule: Rule) -> str:
    return rule.topic_filter.decode(errors="replace")
