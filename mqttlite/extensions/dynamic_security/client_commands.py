"""The commands of `$CONTROL/dynamic-security/v1` for clients. Invariant: a command that fails changes nothing."""

from functools import partial

from mqttlite.extensions.dynamic_security.command import Command, CommandError, check_count, sort_by_name
from mqttlite.security.dynamic_security import model
from mqttlite.security.dynamic_security.document import Json, priorities_tree, texts_tree
from mqttlite.security.dynamic_security.model import Client


def create_client(command: Command) -> None:
    state = command.state
    username = command.new_name("username", state.clients, model.MAX_CLIENTS, "Client")
    command.text("password")
    client_id = command.client_id("Invalid/missing client id")
    client = Client(username, command.text("textname"), command.text("textdescription"), client_id)
    client.password = command.password
    client.roles = command.roles() or {}
    groups = command.members("groups", "groupname", state.groups, "Group not found") or {}
    check_count(len(groups), "groups")
    state.clients[username] = client
    sort_by_name(state.clients)
    for name, priority in groups.items():
        state.join(client, state.groups[name], priority)


def delete_client(command: Command) -> None:
    client = command.client()
    command.state.leave_all(client)
    del command.state.clients[client.username]
    command.kick(client)


def disable_client(command: Command) -> None:
    client = command.client()
    client.disabled = True
    command.kick(client)


def enable_client(command: Command) -> None:
    command.client().disabled = False


def set_client_id(command: Command) -> None:
    command.name("username")
    client_id = command.client_id("Invalid/missing client ID")
    client = command.client()
    client.client_id = client_id
    command.kick(client)


def set_client_password(command: Command) -> None:
    command.name("username")
    if not command.name("password"):
        raise CommandError("Empty password is not allowed")
    client = command.client()
    client.password = command.password
    command.kick(client)


def modify_client(command: Command) -> None:
    client = command.client()
    client_id, texts = command.client_id(), command.texts(client)
    command.text("password")
    roles = command.roles()
    groups = command.members("groups", "groupname", command.state.groups, "Group not found")
    check_count(len(groups or ()), "groups")
    if groups is not None:
        command.state.leave_all(client)
        for each, priority in groups.items():
            command.state.join(client, command.state.groups[each], priority)
    if command.password is not None:
        client.password = command.password
    if "clientid" in command.tree:
        client.client_id = client_id
    client.text_name, client.text_description = texts
    client.roles = client.roles if roles is None else roles
    command.kick(client)


def get_client(command: Command) -> Json:
    return {"client": _client_tree(command, command.client())}


def list_clients(command: Command) -> Json:
    return command.page("clients", command.state.clients, partial(_client_tree, command))


def add_client_role(command: Command) -> None:
    command.check_names("username", "rolename")
    client, role = command.client(), command.role()
    command.give_role(client.roles, role, already="Internal error")
    command.kick(client)


def remove_client_role(command: Command) -> None:
    command.check_names("username", "rolename")
    client, role = command.client(), command.role()
    client.roles.pop(role.name, None)
    command.kick(client)


def _client_tree(command: Command, client: Client) -> Json:
    tree: Json = {"username": client.username}
    if client.client_id is not None:
        tree["clientid"] = client.client_id
    tree |= texts_tree(client)
    if client.disabled:
        tree["disabled"] = True
    tree["roles"] = priorities_tree(client.roles, "rolename")
    tree["groups"] = priorities_tree(client.groups, "groupname")
    tree["connections"] = [{"address": each} for each in command.connections(client.username, client.client_id)]
    return tree
