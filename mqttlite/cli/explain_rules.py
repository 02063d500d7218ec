"""The sentences of `mqttlite check` about permissions: who may read and write what, and what is odd about it.

`security.rule_findings` finds odd rules. Invariant: each sentence about a rule begins with its file and line.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from mqttlite.config import Config
from mqttlite.config.checks import in_words, is_loopback
from mqttlite.security.acl_file import AclFile
from mqttlite.security.dynamic_security.model import PUBLISH_SEND, Role, State
from mqttlite.security.password_file import Users, load
from mqttlite.security.rule_findings import acl_findings, policy_findings, queue_findings, sections, unkept_findings
from mqttlite.security.rule_tree import DENY, READ, WRITE, Rule
from mqttlite.security.topic_policies import TopicPolicyOptions


class Most(NamedTuple):
    """How much to list: users, groups, roles and policies; and filters of each."""

    sections: int
    filters: int


SOME: Final = Most(20, 5)
"""A file of thousands is asked with `acl test`, or listed whole."""

EVERYTHING: Final = Most(sys.maxsize, sys.maxsize)

_ACCESS: Final = {
    "PUBLIC": "everyone publishes and subscribes",
    "PRIVATE": "only members publish and subscribe",
    "PUBLISH_ONLY": "everyone publishes, only members subscribe",
    "SUBSCRIBE_ONLY": "everyone subscribes, only members publish",
}


def permissions(
    config: Config,
    acl: AclFile | None,
    dynamic: State | None = None,
    topics: Sequence[TopicPolicyOptions] = (),
    most: Most = SOME,
) -> Iterator[str]:
    """The permissions in words: a line for each section of the ACL file, each policy and each role of dynamic security.
    `topics` are the policies of topics made over HTTP."""
    if dynamic is not None:
        yield from _dynamic(dynamic, most)
    if dynamic is None and acl is None:
        where = "where no policy says otherwise" if config.topic_policies or topics else "everywhere"
        yield f"all clients may publish and subscribe {where}, but publish below $SYS and $dlq: there is no acl_file"
    if acl is not None:
        yield f"only what {acl.path} allows, and read $SYS where it does not deny that"
        for number, (title, rules) in enumerate((title, rules) for title, rules in sections(acl) if rules):
            if number == most.sections:
                count = sum(1 for _, others in sections(acl) if others) - most.sections
                yield f"and {count} more sections: ask with 'mqttlite acl test'"
                break
            yield f"{title}: {'; '.join(_summary(rules, most))}"
    for policy in config.topic_policies[: most.sections]:
        yield _policy(policy, most)
    if len(config.topic_policies) > most.sections:
        yield f"and {len(config.topic_policies) - most.sections} more topic policies"
    for policy in topics[: most.sections]:
        yield f"{_policy(policy, most)}; made over HTTP"
    if len(topics) > most.sections:
        yield f"and {len(topics) - most.sections} more topics made over HTTP"
    if acl is not None and (config.topic_policies or topics):
        yield "where there is a policy, it and the ACL file must both allow"
    if dynamic is not None and config.has_rules:
        yield "dynamic security and the other rules must both allow; below $CONTROL dynamic security decides alone"
    if config.http_auth is not None or (config.jwt is not None and config.jwt.limits_topics):
        yield "clients whose credentials name topics only use these"


def _dynamic(state: State, most: Most) -> Iterator[str]:
    """The permissions of the users, groups and roles of dynamic security, in words."""
    allowed = [kind for kind, is_allowed in state.default_access.items() if is_allowed]
    yield f"where no role says anything, dynamic security allows {', '.join(allowed) or 'nothing'}"
    for number, (name, role) in enumerate(state.roles.items()):
        if number == most.sections:
            yield f"and {len(state.roles) - most.sections} more roles: ask with 'mqttlite acl test'"
            break
        users = sum(name in client.roles for client in state.clients.values() if not client.disabled)
        groups = sum(name in group.roles for group in state.groups.values())
        what = "; ".join(_acls(role, most)) or "nothing"
        yield f"role {name} ({_counted(users, 'user')}, {_counted(groups, 'group')}): {what}"
    yield from _role_lists(state, most)


def _acls(role: Role, most: Most) -> Iterator[str]:
    """The rules of each kind, in the order in which they are asked: the first that matches decides."""
    if not role.allow_wildcard_subs:
        yield "no topic filters with wildcards"
    for kind, acls in role.acls.items():
        rules = [f"{'allow' if acl.allow else 'deny'} {acl.topic}" for acl in acls]
        if rules:
            more = f" and {len(rules) - most.filters} more" if len(rules) > most.filters else ""
            yield f"{kind}: {', '.join(rules[: most.filters])}{more}"


def _role_lists(state: State, most: Most) -> Iterator[str]:
    """The roles of clients, in one line for all clients that have the same."""
    users: dict[tuple[str, ...], list[str]] = {}
    for name in state.clients:
        names = state.role_sets_of(name)
        if names is not None:
            users.setdefault(names, []).append(name)
    for number, (names, who) in enumerate(users.items()):
        if number == most.sections:
            yield f"and users with {len(users) - most.sections} more lists of roles: ask with 'mqttlite acl test'"
            break
        more = f" and {len(who) - most.filters} more users" if len(who) > most.filters else ""
        verb = "have" if len(who) > 1 else "has"
        yield f"user {', '.join(who[: most.filters])}{more} {verb} {_list_of_roles(names)}"
    yield f"anonymous clients have {_list_of_roles(state.role_sets_of(None) or ())}"


def _list_of_roles(names: Sequence[str]) -> str:
    if not names:
        return "no role"
    return f"the role{'s' * (len(names) > 1)} {', '.join(names)}{', asked in this order' * (len(names) > 1)}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def findings(config: Config, acl: AclFile | None, dynamic: State | None = None) -> Iterator[str]:
    """Rules that are probably mistakes, in sentences that begin with the file and, where there is one, the line."""
    if acl is not None:
        for line, sentence in acl_findings(acl, config.groups, _known_users(config)):
            yield f"{acl.path}{f':{line}' if 0 < line < 10**9 else ''}: {sentence}"
        anonymous = next((rule.line for rule in acl.anonymous), 0)
        if anonymous and not any(config.lets_anybody_in(each) for each in config.listeners):
            yield f"{acl.path}:{anonymous}: no listener lets anonymous clients in, so these rules reach no client"
    for _, sentence in policy_findings(config.topic_policies, config.groups):
        yield sentence
    queues = {each.name: each.filters for each in config.queues}
    if acl is None and dynamic is None:
        for _, sentence in queue_findings(config.topic_policies, queues):
            yield sentence
    for _, sentence in unkept_findings(config.topic_policies, queues):
        yield sentence
    for place in () if dynamic is None else dynamic.unknown_places:
        yield f"dynamic security: {place} is not known; the broker ignores it, and leaves it in the file"
    yield from _open_listeners(config, acl, dynamic)


def _open_listeners(config: Config, acl: AclFile | None, dynamic: State | None) -> Iterator[str]:
    """Listeners of the network without passwords, and what anonymous clients may do there."""
    for name, listener in zip(config.listener_names(), config.listeners, strict=True):
        if listener.path is not None or is_loopback(listener.host) or not config.lets_anybody_in(listener):
            continue
        if dynamic is not None:
            allowed = ", ".join(_anonymous_topics(dynamic))
            if allowed and acl is None:
                yield f"listener {name} ({in_words(listener.host)}): anonymous clients may publish to {allowed}"
            continue
        if not config.login_methods(listener):
            who = "no client is asked for a password, and user names are only claims"
            if acl is not None and acl.users:
                yield f"listener {name}: {who}, so the rules of users are for everyone who claims to be one"
        allowed = "#" if acl is None else ", ".join(_filters(acl.anonymous, WRITE))
        if allowed:
            yield f"listener {name} ({in_words(listener.host)}): anonymous clients may publish to {allowed}"


def _anonymous_topics(state: State) -> Iterator[str]:
    """Where dynamic security lets clients without user name publish."""
    if state.default_access[PUBLISH_SEND]:
        yield "#"
    for name in state.role_sets_of(None) or ():
        yield from (acl.topic for acl in state.roles[name].acls[PUBLISH_SEND] if acl.allow)


def _known_users(config: Config) -> set[str] | None:
    """The users of all password files; None where users need not be in one."""
    found: set[str] = set()
    for listener in config.listeners:
        path, _ = config.passwords_of(listener)
        if path is None or set(config.login_methods(listener)) != {"password"}:
            return None
        users: Users = load(path)
        found |= users.names()
    return found


def _summary(rules: Sequence[Rule], most: Most) -> Iterator[str]:
    for what, access in (("read and write", READ | WRITE), ("read", READ), ("write", WRITE), ("not", DENY)):
        filters = list(_filters(rules, access, exactly=True))
        if filters:
            more = f" and {len(filters) - most.filters} more" if len(filters) > most.filters else ""
            yield f"{what} {', '.join(filters[: most.filters])}{more}"


def _filters(rules: Sequence[Rule], access: int, *, exactly: bool = False) -> Iterator[str]:
    for rule in rules:
        if rule.access == access or (not exactly and rule.access & access):
            yield rule.topic_filter.decode()


def _policy(policy: TopicPolicyOptions, most: Most) -> str:
    members = [*filter(None, [policy.owner]), *policy.members, *(f"group {group}" for group in policy.groups)]
    who = f" (members: {', '.join(members[: most.filters])}{' …' * (len(members) > most.filters)})" if members else ""
    schema = f"; payloads are checked against the schema {policy.schema}" if policy.schema else ""
    return f"topics {policy.topic_filter().decode()}: {_ACCESS[policy.access]}{who}{schema}"
