"""The commands of `$CONTROL/dynamic-security/v1`: what each reads, changes and answers.

Answers and the texts of errors are those of Mosquitto's plugin. Invariant: a command that fails changes nothing.
"""

from collections.abc import Callable
from typing import Any, Final

from mqttlite.security.dynamic_security import model
from mqttlite.security.dynamic_security.document import Json, is_text, priorities_tree, role_tree, texts_tree
from mqttlite.security.dynamic_security.model import (
    ACL_TYPE_OF,
    DEFAULT_TYPE_OF,
    NO_PRIORITY,
    Acl,
    Client,
    Group,
    Password,
    Role,
    State,
    put,
)
from mqttlite.topics.names import check_filter
from mqttlite.wire.errors import TopicFilterInvalid


class CommandError(Exception):
    """Why a command failed; the text goes to the client."""


class Change:
    """What a request changed."""

    def __init__(self) -> None:
        self.changed = False
        """Whether anything is to be saved."""
        self.kicked: Final[set[str | None]] = set()
        """The users whose connections end; None: clients without user name."""


class Command:
    """One command with the state that it is about; keys are in small letters. `password` is the hash of the password
    in it, where it has one."""

    def __init__(self, state: State, tree: Json, change: Change, password: Password | None) -> None:
        self.state: Final = state
        self.tree: Final = tree
        self.change: Final = change
        self.password: Final = password

    # ------------------------------------------------------------------ what is in it

    def text(self, key: str, missing: str = "") -> str | None:
        """A text that may be absent. Raises `CommandError` with the plugin's words for something else."""
        value = self.tree.get(key)
        if value is not None and (not isinstance(value, str) or not is_text(value)):
            raise CommandError(missing or f"Invalid/missing {key}")
        return value

    def name(self, key: str, called: str) -> str:
        """A name that must be there."""
        value = self.tree.get(key)
        if not isinstance(value, str):
            raise CommandError(f"Invalid/missing {key}")
        if not is_text(value):
            raise CommandError(f"{called} not valid UTF-8")
        return value

    def new_name(self, key: str, called: str, known: dict[str, Any], most: int, kind: str) -> str:
        """The name of something that is to be created."""
        name = self.name(key, called)
        if not name:
            raise CommandError(f"Empty {key}")
        if name in known:
            raise CommandError(f"{kind} already exists")
        if len(known) >= most:
            raise CommandError(f"Too many {kind.lower()}s: {most} at most")
        return name

    def client(self) -> Client:
        client: Client = _find(self.state.clients, self.name("username", "Username"), "Client not found")
        return client

    def group(self) -> Group:
        group: Group = _find(self.state.groups, self.name("groupname", "Group name"), "Group not found")
        return group

    def role(self) -> Role:
        role: Role = _find(self.state.roles, self.name("rolename", "Role name"), "Role not found")
        return role

    def number(self, key: str, default: int) -> int:
        return _number(self.tree, key, default)

    def roles(self) -> dict[str, int] | None:
        """The roles and their priorities; None where there is no list."""
        items = self.tree.get("roles")
        if items is None:
            return None
        wrong = "'roles' not an array or missing/invalid rolename"
        if not isinstance(items, list):
            raise CommandError(wrong)
        found: dict[str, int] = {}
        for item in items:
            name = item.get("rolename") if isinstance(item, dict) else None
            if not isinstance(name, str):
                raise CommandError(wrong)
            if name not in self.state.roles:
                raise CommandError("Role not found")
            if name not in found:
                _check_count(len(found) + 1, "roles")
                put(found, name, _number(item, "priority", NO_PRIORITY))
        return found

    def members(self, key: str, name_key: str, known: dict[str, Any], missing: str) -> dict[str, int] | None:
        """The groups of a client, or the clients of a group; None where there is no list."""
        items = self.tree.get(key)
        if not isinstance(items, list):
            return None
        found: dict[str, int] = {}
        for item in items:
            name = item.get(name_key) if isinstance(item, dict) else None
            if isinstance(name, str):
                if name not in known:
                    raise CommandError(missing)
                found.setdefault(name, _number(item, "priority", NO_PRIORITY))
        return found

    def acls(self) -> dict[str, list[Acl]] | None:
        """The rules of a role; None where there is no list."""
        items = self.tree.get("acls")
        if not isinstance(items, list):
            return None
        if len(items) > model.MAX_ACLS:
            raise CommandError(f"Too many ACLs: {model.MAX_ACLS} at most")
        role = Role("")
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("topic"), str):
                kind = ACL_TYPE_OF.get(str(item.get("acltype", "")).lower())
                if kind is not None:
                    topic = _topic(item["topic"])
                    role.add(kind, Acl(topic, _number(item, "priority", 0), item.get("allow") is True))
        return role.acls

    def acl_type(self) -> str:
        kind = self.tree.get("acltype")
        if not isinstance(kind, str):
            raise CommandError("Invalid/missing acltype")
        known = ACL_TYPE_OF.get(kind.lower())
        if known is None:
            raise CommandError("Unknown acltype")
        return known

    def page(self, known: dict[str, Any]) -> list[Any]:
        """The part of a list that `count` and `offset` ask for."""
        count, offset = self.number("count", -1), max(self.number("offset", 0), 0)
        found = list(known.values())[offset:]
        return found if count < 0 else found[: max(count, 1)]

    @property
    def is_verbose(self) -> bool:
        return self.tree.get("verbose") is True

    # ------------------------------------------------------------------ what it does

    def kick_group(self, group: Group) -> None:
        """End the connections of all clients of a group."""
        self.change.kicked.update(group.clients)
        if group.name == self.state.anonymous_group:
            self.change.kicked.add(None)

    def kick_role(self, role: Role) -> None:
        """End the connections of all clients with a role."""
        self.change.kicked.update(name for name, each in self.state.clients.items() if role.name in each.roles)
        for group in self.state.groups.values():
            if role.name in group.roles:
                self.kick_group(group)


# ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _create_client(command: Command) -> None:
    state = command.state
    username = command.new_name("username", "Username", state.clients, model.MAX_CLIENTS, "Client")
    command.text("password")
    client_id = command.text("clientid", "Invalid/missing client id")
    client = Client(username, command.text("textname"), command.text("textdescription"), client_id or None)
    client.password = command.password
    client.roles = command.roles() or {}
    groups = command.members("groups", "groupname", state.groups, "Group not found") or {}
    _check_count(len(groups), "groups")
    state.clients[username] = client
    _sort(state.clients)
    for name, priority in groups.items():
        state.join(client, state.groups[name], priority)


def _delete_client(command: Command) -> None:
    client = command.client()
    command.state.leave_all(client)
    del command.state.clients[client.username]
    command.change.kicked.add(client.username)


def _disable_client(command: Command) -> None:
    client = command.client()
    client.disabled = True
    command.change.kicked.add(client.username)


def _enable_client(command: Command) -> None:
    command.client().disabled = False


def _set_client_id(command: Command) -> None:
    command.name("username", "Username")
    client_id = command.text("clientid", "Invalid/missing client ID")
    client = command.client()
    client.client_id = client_id or None
    command.change.kicked.add(client.username)


def _set_client_password(command: Command) -> None:
    command.name("username", "Username")
    if not command.name("password", "Password"):
        raise CommandError("Empty password is not allowed")
    client = command.client()
    client.password = command.password
    command.change.kicked.add(client.username)


def _modify_client(command: Command) -> None:
    client, tree = command.client(), command.tree
    client_id, name, description = (command.text(each) for each in ("clientid", "textname", "textdescription"))
    command.text("password")
    roles = command.roles()
    groups = command.members("groups", "groupname", command.state.groups, "Group not found")
    _check_count(len(groups or ()), "groups")
    if groups is not None:
        command.state.leave_all(client)
        for each, priority in groups.items():
            command.state.join(client, command.state.groups[each], priority)
    if command.password is not None:
        client.password = command.password
    if "clientid" in tree:
        client.client_id = client_id or None
    client.text_name = name if "textname" in tree else client.text_name
    client.text_description = description if "textdescription" in tree else client.text_description
    client.roles = client.roles if roles is None else roles
    command.change.kicked.add(client.username)


def _get_client(command: Command) -> Json:
    return {"client": _client_tree(command.client())}


def _list_clients(command: Command) -> Json:
    clients = command.page(command.state.clients)
    found = [_client_tree(each) if command.is_verbose else each.username for each in clients]
    return {"totalCount": len(command.state.clients), "clients": found}


def _add_client_role(command: Command) -> None:
    command.name("username", "Username")
    command.name("rolename", "Role name")
    client, role = command.client(), command.role()
    if role.name in client.roles:
        raise CommandError("Internal error")
    _check_count(len(client.roles) + 1, "roles")
    put(client.roles, role.name, command.number("priority", NO_PRIORITY))
    command.change.kicked.add(client.username)


def _remove_client_role(command: Command) -> None:
    command.name("username", "Username")
    command.name("rolename", "Role name")
    client, role = command.client(), command.role()
    client.roles.pop(role.name, None)
    command.change.kicked.add(client.username)


# ── groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _create_group(command: Command) -> None:
    groups = command.state.groups
    name = command.new_name("groupname", "Group name", groups, model.MAX_GROUPS, "Group")
    groups[name] = Group(name, command.text("textname"), command.text("textdescription"), command.roles() or {})
    _sort(groups)


def _delete_group(command: Command) -> None:
    group, state = command.group(), command.state
    if group.name == state.anonymous_group:
        raise CommandError("Deleting the anonymous group is forbidden")
    command.kick_group(group)
    for username in list(group.clients):
        state.leave(state.clients[username], group)
    del state.groups[group.name]


def _get_group(command: Command) -> Json:
    return {"group": _group_tree(command.group())}


def _list_groups(command: Command) -> Json:
    groups = command.page(command.state.groups)
    found = [_group_tree(each) if command.is_verbose else each.name for each in groups]
    return {"totalCount": len(command.state.groups), "groups": found}


def _modify_group(command: Command) -> None:
    group, state, tree = command.group(), command.state, command.tree
    name, description, roles = command.text("textname"), command.text("textdescription"), command.roles()
    clients = command.members("clients", "username", state.clients, "Client not found")
    for username in clients or ():
        joined = state.clients[username].groups
        _check_count(len(joined) + (group.name not in joined), "groups")
    command.kick_group(group)
    if clients is not None:
        for username in list(group.clients):
            state.leave(state.clients[username], group)
        for username, priority in clients.items():
            state.join(state.clients[username], group, priority)
    group.text_name = name if "textname" in tree else group.text_name
    group.text_description = description if "textdescription" in tree else group.text_description
    group.roles = group.roles if roles is None else roles
    command.kick_group(group)


def _add_group_client(command: Command) -> None:
    command.name("username", "Username")
    command.name("groupname", "Group name")
    client, group = command.client(), command.group()
    if group.name in client.groups:
        raise CommandError("Client is already in this group")
    _check_count(len(client.groups) + 1, "groups")
    command.state.join(client, group, command.number("priority", NO_PRIORITY))
    command.change.kicked.add(client.username)


def _remove_group_client(command: Command) -> None:
    command.name("username", "Username")
    command.name("groupname", "Group name")
    client, group = command.client(), command.group()
    command.state.leave(client, group)
    command.change.kicked.add(client.username)


def _add_group_role(command: Command) -> None:
    command.name("groupname", "Group name")
    command.name("rolename", "Role name")
    group, role = command.group(), command.role()
    if role.name in group.roles:
        raise CommandError("Group is already in this role")
    _check_count(len(group.roles) + 1, "roles")
    put(group.roles, role.name, command.number("priority", NO_PRIORITY))
    command.kick_group(group)


def _remove_group_role(command: Command) -> None:
    command.name("groupname", "Group name")
    command.name("rolename", "Role name")
    group, role = command.group(), command.role()
    group.roles.pop(role.name, None)
    command.kick_group(group)


def _set_anonymous_group(command: Command) -> None:
    command.state.anonymous_group = command.group().name
    command.change.kicked.add(None)


def _get_anonymous_group(command: Command) -> Json:
    return {"group": {"groupname": command.state.anonymous_group or ""}}


# ── roles ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _create_role(command: Command) -> None:
    roles = command.state.roles
    name = command.new_name("rolename", "Role name", roles, model.MAX_ROLES, "Role")
    role = Role(name, command.text("textname"), command.text("textdescription"))
    role.acls = command.acls() or role.acls
    roles[name] = role
    _sort(roles)


def _delete_role(command: Command) -> None:
    role, state = command.role(), command.state
    command.kick_role(role)
    for client in state.clients.values():
        client.roles.pop(role.name, None)
    for group in state.groups.values():
        group.roles.pop(role.name, None)
    del state.roles[role.name]


def _get_role(command: Command) -> Json:
    return {"role": role_tree(command.role())}


def _list_roles(command: Command) -> Json:
    roles = command.page(command.state.roles)
    found = [role_tree(each) if command.is_verbose else each.name for each in roles]
    return {"totalCount": len(command.state.roles), "roles": found}


def _modify_role(command: Command) -> None:
    role = _find(command.state.roles, command.name("rolename", "Role name"), "Role does not exist")
    name, description, acls = command.text("textname"), command.text("textdescription"), command.acls()
    role.text_name = name if "textname" in command.tree else role.text_name
    role.text_description = description if "textdescription" in command.tree else role.text_description
    role.acls = role.acls if acls is None else acls
    command.kick_role(role)


def _add_role_acl(command: Command) -> None:
    role = command.role()
    kind = command.acl_type()
    topic = _topic(_acl_topic(command))
    if any(each.topic == topic for each in role.acls[kind]):
        raise CommandError("ACL with this topic already exists")
    if role.count() >= model.MAX_ACLS:
        raise CommandError(f"Too many ACLs: {model.MAX_ACLS} at most")
    role.add(kind, Acl(topic, command.number("priority", 0), command.tree.get("allow") is True))
    command.kick_role(role)


def _remove_role_acl(command: Command) -> None:
    role = command.role()
    acls = role.acls[command.acl_type()]
    topic = _acl_topic(command)
    kept = [each for each in acls if each.topic != topic]
    if len(kept) == len(acls):
        raise CommandError("ACL not found")
    acls[:] = kept
    command.kick_role(role)


# ── default access ───────────────────────────────────────────────────────────────────────────────────────────────────


def _set_default(command: Command) -> None:
    items = command.tree.get("acls")
    if not isinstance(items, list):
        raise CommandError("Missing/invalid actions array")
    for item in items:
        if isinstance(item, dict):
            # mosquitto_ctrl 2.0.11 says "access": "deny" here, which the plugin of that version accepts and ignores.
            is_allowed = {"allow": True, "deny": False}.get(str(item.get("access")), item.get("allow"))
            kind = DEFAULT_TYPE_OF.get(str(item.get("acltype", "")).lower())
            if kind is not None and isinstance(is_allowed, bool):
                command.state.default_access[kind] = is_allowed


def _get_default(command: Command) -> Json:
    access = command.state.default_access
    return {"acls": [{"acltype": kind, "allow": allow} for kind, allow in access.items()]}


READERS: Final[dict[str, Callable[[Command], Json]]] = {
    "getDefaultACLAccess": _get_default,
    "getClient": _get_client,
    "listClients": _list_clients,
    "getGroup": _get_group,
    "listGroups": _list_groups,
    "getAnonymousGroup": _get_anonymous_group,
    "getRole": _get_role,
    "listRoles": _list_roles,
}
"""The commands that change nothing, and what gives the data of their answers."""

WRITERS: Final[dict[str, Callable[[Command], None]]] = {
    "setDefaultACLAccess": _set_default,
    "createClient": _create_client,
    "deleteClient": _delete_client,
    "enableClient": _enable_client,
    "disableClient": _disable_client,
    "modifyClient": _modify_client,
    "setClientId": _set_client_id,
    "setClientPassword": _set_client_password,
    "addClientRole": _add_client_role,
    "removeClientRole": _remove_client_role,
    "createGroup": _create_group,
    "deleteGroup": _delete_group,
    "modifyGroup": _modify_group,
    "addGroupClient": _add_group_client,
    "removeGroupClient": _remove_group_client,
    "addGroupRole": _add_group_role,
    "removeGroupRole": _remove_group_role,
    "setAnonymousGroup": _set_anonymous_group,
    "createRole": _create_role,
    "deleteRole": _delete_role,
    "modifyRole": _modify_role,
    "addRoleACL": _add_role_acl,
    "removeRoleACL": _remove_role_acl,
}
"""The commands that change something."""

NAME_OF: Final = {each.lower(): each for each in (*READERS, *WRITERS)}
"""The plugin does not distinguish case."""

SETS_PASSWORD: Final = frozenset({"createClient", "setClientPassword", "modifyClient"})


def execute(command: Command, name: str) -> Json | None:
    """Execute the command of a name in `NAME_OF`; the data of its answer, if it has some. Raises `CommandError`."""
    if name in READERS:
        return READERS[name](command)
    WRITERS[name](command)
    command.change.changed = True
    return None


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _find(known: dict[str, Any], name: str, missing: str) -> Any:
    if name not in known:
        raise CommandError(missing)
    return known[name]


def _sort(known: dict[str, Any]) -> None:
    """By name, which is the order of lists and of the file."""
    ordered = sorted(known.items(), key=lambda each: each[0].encode())
    known.clear()
    known.update(ordered)


def _number(tree: Json, key: str, default: int) -> int:
    value = tree.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _check_count(count: int, what: str) -> None:
    if count > model.MAX_MEMBERSHIPS:
        raise CommandError(f"Too many {what}: {model.MAX_MEMBERSHIPS} at most")


def _acl_topic(command: Command) -> str:
    topic = command.tree.get("topic")
    if not isinstance(topic, str):
        raise CommandError("Invalid/missing topic")
    return topic


def _topic(topic: str) -> str:
    """A topic that a rule may have. Raises `CommandError`."""
    if not is_text(topic):
        raise CommandError("Topic not valid UTF-8")
    try:
        check_filter(topic.encode())
    except TopicFilterInvalid:
        raise CommandError("Invalid ACL topic") from None
    return topic


def _client_tree(client: Client) -> Json:
    tree: Json = {"username": client.username}
    if client.client_id is not None:
        tree["clientid"] = client.client_id
    tree |= texts_tree(client)
    if client.disabled:
        tree["disabled"] = True
    tree["roles"] = priorities_tree(client.roles, "rolename")
    tree["groups"] = priorities_tree(client.groups, "groupname")
    return tree


def _group_tree(group: Group) -> Json:
    return {
        "groupname": group.name,
        **texts_tree(group),
        "clients": [{"username": username} for username in sorted(group.clients, key=str.encode)],
        "roles": priorities_tree(group.roles, "rolename"),
    }
