"""`/api/v1/policies`, `/acl`, `/users` and `/groups`: who may do what, as far as the broker knows.

Policies are changed as topics (`/topics`), the ACL and password files by `rule_changes`.
Invariant: no answer has a password or a hash.
"""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from mqttlite.gateway.caller import Role
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Route, Routes
from mqttlite.security.rule_tree import DENY, READ, WRITE, Rule

MAX_RULES = 10_000
"""Rules of an ACL file that one answer has, some megabyte."""

MAX_USERS = 10_000
"""Users that one answer names."""

_ACCESS: dict[int, Literal["deny", "read", "write", "readwrite"]] = {
    DENY: "deny",
    READ: "read",
    WRITE: "write",
    READ | WRITE: "readwrite",
}


class Policies(msgspec.Struct):
    """The topic policies in force: those of the configuration, then those of topics that were made over HTTP."""

    items: list[dict[str, Any]]
    count: int


class AclRule(msgspec.Struct):
    """One line of the ACL file."""

    line: int
    section: Literal["anonymous", "user", "group", "pattern"]
    name: str | None
    """Of the user or group."""
    access: Literal["deny", "read", "write", "readwrite"]
    filter: str


class Acl(msgspec.Struct):
    """The rules of the ACL file in force."""

    file: str | None
    """None: there is none, and all is allowed that no policy forbids."""
    items: list[AclRule]
    """The first 10,000."""
    count: int


class UserSource(msgspec.Struct):
    """Where users come from."""

    source: Literal["password_file", "dynamic_security"]
    names: list[str]
    """The first 10,000, in their order."""
    count: int
    file: str | None
    """The password file; None for `dynamic_security`."""


class Users(msgspec.Struct):
    """Users by where they come from; those of tokens, certificates and other servers are not known here."""

    items: list[UserSource]


class Groups(msgspec.Struct):
    """Groups and their users, of the configuration or of dynamic security."""

    items: dict[str, list[str]]


def routes(context: GatewayContext) -> Sequence[Route]:
    """The routes of this module."""
    route = Routes("/api/v1", "rules")

    @route.get("/policies", Role.VIEWER, "List topic policies")
    async def policies() -> Policies:
        """They are changed as topics, or in the configuration file."""
        rules = context.live_rules.rules
        found = () if rules is None else rules.policies.policies
        return Policies(items=[msgspec.to_builtins(each.options) for each in found], count=len(found))

    @route.get("/acl", Role.VIEWER, "List the rules of the ACL file")
    async def acl() -> Acl:
        """They are changed in the file, which the broker reads again when it changes."""
        rules = context.live_rules.rules
        if rules is None or rules.acl is None:
            return Acl(file=None, items=[], count=0)
        file = rules.acl
        found = [_rule(each, "anonymous") for each in file.anonymous[:MAX_RULES]]
        for name, its in file.users.items():
            found += [_rule(each, "user", name) for each in its[: MAX_RULES - len(found)]]
        for name, its in file.groups.items():
            found += [_rule(each, "group", name) for each in its[: MAX_RULES - len(found)]]
        found += [_rule(each, "pattern") for each in file.patterns[: MAX_RULES - len(found)]]
        return Acl(file=file.path, items=found, count=len(file))

    @route.get("/users", Role.VIEWER, "List users")
    async def users() -> Users:
        """Those that password files and dynamic security have."""
        found: list[UserSource] = []
        dynamic = context.dynamic_security
        if dynamic is not None:
            found.append(_source("dynamic_security", sorted(dynamic.rules.state.clients), None))
        for path, passwords in {str(each.path): each for each in context.passwords}.items():
            found.append(_source("password_file", sorted((await passwords.users()).names()), path))
        return Users(items=found)

    @route.get("/groups", Role.VIEWER, "List groups")
    async def groups() -> Groups:
        """And their users."""
        dynamic = context.dynamic_security
        if dynamic is not None:
            return Groups(items=dynamic.members_of_groups())
        return Groups(items={name: sorted(names) for name, names in context.live_rules.groups.items()})

    return route.made


def _rule(rule: Rule, section: Literal["anonymous", "user", "group", "pattern"], name: str | None = None) -> AclRule:
    return AclRule(
        line=rule.line,
        section=section,
        name=name,
        access=_ACCESS[rule.access],
        filter=rule.topic_filter.decode(errors="replace"),
    )


def _source(source: Literal["password_file", "dynamic_security"], names: list[str], file: str | None) -> UserSource:
    return UserSource(source=source, names=names[:MAX_USERS], count=len(names), file=file)
