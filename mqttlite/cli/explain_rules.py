"""The sentences of `mqttlite check` about permissions: who may read and write what, and what is odd about it.

What is odd is found in `security.rule_findings`. Invariant: each sentence about a rule begins with its file and line.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from mqttlite.config import Config
from mqttlite.config.checks import in_words, is_loopback
from mqttlite.security.acl_file import DENY, READ, WRITE, AclFile, Rule
from mqttlite.security.dynamic_security.model import PUBLISH_SEND, Role, State
from mqttlite.security.password_file import Users, load
from mqttlite.security.rule_findings import acl_findings, policy_findings, sections
from mqttlite.security.topic_policies import TopicPolicyOptions

MAX_SECTIONS: Final = 20
"""Users and groups to list; a file of thousands is asked with `acl test`."""

MAX_FILTERS: Final = 5
"""Filters to list of each."""

_ACCESS: Final = {
    "PUBLIC": "everyone publishes and subscribes",
    "PRIVATE": "only members publish and subscribe",
    "PUBLISH_ONLY": "everyone publishes, only members subscribe",
    "SUBSCRIBE_ONLY": "everyone subscribes, only members publish",
}


def permissions(config: Config, acl: AclFile | None, dynamic: State | None = None) -> Iterator[str]:
    """Who may do what, a line for each section of the ACL file, each policy and each role of dynamic security."""
    if dynamic is not None:
        yield from _dynamic(dynamic)
    if dynamic is None and acl is None:
        yield "all clients may publish and subscribe everywhere, except publish to $SYS: there is no acl_file"
    if acl is not None:
        yield f"only what {acl.path} allows, and read $SYS where it does not deny that"
        for number, (title, rules) in enumerate((title, rules) for title, rules in sections(acl) if rules):
            if number == MAX_SECTIONS:
                count = sum(1 for _, others in sections(acl) if others) - MAX_SECTIONS
                yield f"and {count} more sections: ask with 'mqttlite acl test'"
                break
            yield f"{title}: {'; '.join(_summary(rules))}"
    for policy in config.topic_policies[:MAX_SECTIONS]:
        yield _policy(policy)
    if len(config.topic_policies) > MAX_SECTIONS:
        yield f"and {len(config.topic_policies) - MAX_SECTIONS} more topic policies"
    if acl is not None and config.topic_policies:
        yield "where there is a policy, it and the ACL file must both allow"
    if dynamic is not None and config.has_rules:
        yield "dynamic security and the other rules must both allow; below $CONTROL dynamic security decides alone"
    if config.http_auth is not None or (config.jwt is not None and config.jwt.limits_topics):
        yield "clients whose credentials name topics only use these"


def _dynamic(state: State) -> Iterator[str]:
    """What the users, groups and roles of dynamic security allow."""
    allowed = [kind for kind, is_allowed in state.default_access.items() if is_allowed]
    yield f"where no role says anything, dynamic security allows {', '.join(allowed) or 'nothing'}"
    for number, (name, role) in enumerate(state.roles.items()):
        if number == MAX_SECTIONS:
            yield f"and {len(state.roles) - MAX_SECTIONS} more roles: ask with 'mqttlite acl test'"
            break
        users = sum(name in client.roles for client in state.clients.values() if not client.disabled)
        groups = sum(name in group.roles for group in state.groups.values())
        what = "; ".join(_acls(role)) or "nothing"
        yield f"role {name} ({_counted(users, 'user')}, {_counted(groups, 'group')}): {what}"


def _acls(role: Role) -> Iterator[str]:
    for kind, acls in role.acls.items():
        for verb, wanted in (("allow", True), ("deny", False)):
            topics = [acl.topic for acl in acls if acl.allow == wanted]
            if topics:
                more = f" and {len(topics) - MAX_FILTERS} more" if len(topics) > MAX_FILTERS else ""
                yield f"{verb} {kind} {', '.join(topics[:MAX_FILTERS])}{more}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def findings(config: Config, acl: AclFile | None, dynamic: State | None = None) -> Iterator[str]:
    """What is odd, in sentences that begin with the file and the line where there is one."""
    if acl is not None:
        for line, sentence in acl_findings(acl, config.groups, _known_users(config)):
            yield f"{acl.path}{f':{line}' if 0 < line < 10**9 else ''}: {sentence}"
        anonymous = next((rule.line for rule in acl.anonymous), 0)
        if anonymous and not any(config.lets_anybody_in(each) for each in config.listeners):
            yield f"{acl.path}:{anonymous}: no listener lets anonymous clients in, so these rules reach nobody"
    for _, sentence in policy_findings(config.topic_policies, config.groups):
        yield sentence
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
            who = "nobody is asked for a password, and user names are what clients claim"
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


def _summary(rules: Sequence[Rule]) -> Iterator[str]:
    for what, access in (("read and write", READ | WRITE), ("read", READ), ("write", WRITE), ("not", DENY)):
        filters = list(_filters(rules, access, exactly=True))
        if filters:
            more = f" and {len(filters) - MAX_FILTERS} more" if len(filters) > MAX_FILTERS else ""
            yield f"{what} {', '.join(filters[:MAX_FILTERS])}{more}"


def _filters(rules: Sequence[Rule], access: int, *, exactly: bool = False) -> Iterator[str]:
    for rule in rules:
        if rule.access == access or (not exactly and rule.access & access):
            yield rule.topic_filter.decode()


def _policy(policy: TopicPolicyOptions) -> str:
    members = [*filter(None, [policy.owner]), *policy.members, *(f"group {group}" for group in policy.groups)]
    who = f" (members: {', '.join(members[:MAX_FILTERS])}{' …' * (len(members) > MAX_FILTERS)})" if members else ""
    schema = f"; payloads are checked against the schema {policy.schema}" if policy.schema else ""
    return f"topics {policy.topic_filter().decode()}: {_ACCESS[policy.access]}{who}{schema}"
