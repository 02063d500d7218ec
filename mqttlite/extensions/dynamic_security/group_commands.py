"""The commands of `$CONTROL/dynamic-security/v1` for groups. Invariant: a command that fails changes nothing."""

from mqttlite.extensions.dynamic_security.command import Command, CommandError, check_count, sort_by_name
from mqttlite.security.dynamic_security import model
from mqttlite.security.dynamic_security.document import Json, priorities_tree, texts_tree
from mqttlite.security.dynamic_security.model import NO_PRIORITY, Group


def create_group(command: Command) -> None:
    groups = command.state.groups
    name = command.new_name("groupname", groups, model.MAX_GROUPS, "Group")
    groups[name] = Group(name, command.text("textname"), command.text("textdescription"), command.roles() or {})
    sort_by_name(groups)


def delete_group(command: Command) -> None:
    group, state = command.group(), command.state
    if group.name == state.anonymous_group:
        raise CommandError("Deleting the anonymous group is forbidden")
    command.kick_group(group)
    for username in list(group.clients):
        state.leave(state.clients[username], group)
    del state.groups[group.name]


def get_group(command: Command) -> Json:
    return {"group": _group_tree(command.group())}


def list_groups(command: Command) -> Json:
    return command.page("groups", command.state.groups, _group_tree)


def modify_group(command: Command) -> None:
    group, state = command.group(), command.state
    texts, roles = command.texts(group), command.roles()
    clients = command.members("clients", "username", state.clients, "Client not found")
    for username in clients or ():
        joined = state.clients[username].groups
        check_count(len(joined) + (group.name not in joined), "groups")
    command.kick_group(group)
    if clients is not None:
        for username in list(group.clients):
            state.leave(state.clients[username], group)
        for username, priority in clients.items():
            state.join(state.clients[username], group, priority)
    group.text_name, group.text_description = texts
    group.roles = group.roles if roles is None else roles
    command.kick_group(group)


def add_group_client(command: Command) -> None:
    command.check_names("username", "groupname")
    client, group = command.client(), command.group()
    if group.name in client.groups:
        raise CommandError("Client is already in this group")
    check_count(len(client.groups) + 1, "groups")
    command.state.join(client, group, command.number("priority", NO_PRIORITY))
    command.kick(client)


def remove_group_client(command: Command) -> None:
    command.check_names("username", "groupname")
    client, group = command.client(), command.group()
    command.state.leave(client, group)
    command.kick(client)


def add_group_role(command: Command) -> None:
    command.check_names("groupname", "rolename")
    group, role = command.group(), command.role()
    command.give_role(group.roles, role, already="Group is already in this role")
    command.kick_group(group)


def remove_group_role(command: Command) -> None:
    command.check_names("groupname", "rolename")
    group, role = command.group(), command.role()
    group.roles.pop(role.name, None)
    command.kick_group(group)


def set_anonymous_group(command: Command) -> None:
    command.state.anonymous_group = command.group().name
    command.change.kicked.add(None)


def get_anonymous_group(command: Command) -> Json:
    return {"group": {"groupname": command.state.anonymous_group or ""}}


def _group_tree(group: Group) -> Json:
    return {
        "groupname": group.name,
        **texts_tree(group),
        "clients": [{"username": username} for username in sorted(group.clients, key=str.encode)],
        "roles": priorities_tree(group.roles, "rolename"),
    }
