"""The commands of `$CONTROL/dynamic-security/v1` for roles and the default access.

Invariant: a command that fails changes nothing.
"""

from mqttlite.extensions.dynamic_security.command import Command, CommandError, acl_topic, sort_by_name
from mqttlite.security.dynamic_security import model
from mqttlite.security.dynamic_security.document import Json, role_tree
from mqttlite.security.dynamic_security.model import DEFAULT_TYPE_OF, Acl, Role


def create_role(command: Command) -> None:
    roles = command.state.roles
    name = command.new_name("rolename", roles, model.MAX_ROLES, "Role")
    role = Role(name, command.text("textname"), command.text("textdescription"))
    role.allow_wildcard_subs = command.flag("allowwildcardsubs", default=True)
    role.acls = command.acls() or role.acls
    roles[name] = role
    sort_by_name(roles)


def delete_role(command: Command) -> None:
    role, state = command.role(), command.state
    command.kick_role(role)
    for client in state.clients.values():
        client.roles.pop(role.name, None)
    for group in state.groups.values():
        group.roles.pop(role.name, None)
    del state.roles[role.name]


def get_role(command: Command) -> Json:
    return {"role": role_tree(command.role())}


def list_roles(command: Command) -> Json:
    return command.page("roles", command.state.roles, role_tree)


def modify_role(command: Command) -> None:
    role = command.role(missing="Role does not exist")
    texts, acls = command.texts(role), command.acls()
    allows_wildcards = command.flag("allowwildcardsubs", default=role.allow_wildcard_subs)
    role.text_name, role.text_description = texts
    role.allow_wildcard_subs = allows_wildcards
    role.acls = role.acls if acls is None else acls
    command.kick_role(role)


def add_role_acl(command: Command) -> None:
    role = command.role()
    kind = command.acl_type()
    topic = acl_topic(_topic(command))
    if any(each.topic == topic for each in role.acls[kind]):
        raise CommandError("ACL with this topic already exists")
    if role.count() >= model.MAX_ACLS:
        raise CommandError(f"Too many ACLs: {model.MAX_ACLS} at most")
    role.add(kind, Acl(topic, command.number("priority", 0), command.tree.get("allow") is True))
    command.kick_role(role)


def remove_role_acl(command: Command) -> None:
    role = command.role()
    acls = role.acls[command.acl_type()]
    topic = acl_topic(_topic(command))
    kept = [each for each in acls if each.topic != topic]
    if len(kept) == len(acls):
        raise CommandError("ACL not found")
    acls[:] = kept
    command.kick_role(role)


def set_default(command: Command) -> None:
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


def get_details(command: Command) -> Json:
    state = command.state
    counts = {"clientCount": len(state.clients), "groupCount": len(state.groups), "roleCount": len(state.roles)}
    return {**counts, "changeIndex": state.change_index}


def get_default(command: Command) -> Json:
    access = command.state.default_access
    return {"acls": [{"acltype": kind, "allow": allow} for kind, allow in access.items()]}


def _topic(command: Command) -> str:
    topic = command.tree.get("topic")
    if not isinstance(topic, str):
        raise CommandError("Invalid/missing topic")
    return topic
