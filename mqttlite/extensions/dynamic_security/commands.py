"""The table of the commands of `$CONTROL/dynamic-security/v1`; Mosquitto's plugin has the same."""

from collections.abc import Callable
from typing import Final

from mqttlite.extensions.dynamic_security import client_commands, group_commands, role_commands
from mqttlite.extensions.dynamic_security.command import Command
from mqttlite.security.dynamic_security.document import Json

READERS: Final[dict[str, Callable[[Command], Json]]] = {
    "getDetails": role_commands.get_details,
    "getDefaultACLAccess": role_commands.get_default,
    "getClient": client_commands.get_client,
    "listClients": client_commands.list_clients,
    "getGroup": group_commands.get_group,
    "listGroups": group_commands.list_groups,
    "getAnonymousGroup": group_commands.get_anonymous_group,
    "getRole": role_commands.get_role,
    "listRoles": role_commands.list_roles,
}
"""The commands that change nothing, with the functions for the data of their answers."""

WRITERS: Final[dict[str, Callable[[Command], None]]] = {
    "setDefaultACLAccess": role_commands.set_default,
    "createClient": client_commands.create_client,
    "deleteClient": client_commands.delete_client,
    "enableClient": client_commands.enable_client,
    "disableClient": client_commands.disable_client,
    "modifyClient": client_commands.modify_client,
    "setClientId": client_commands.set_client_id,
    "setClientPassword": client_commands.set_client_password,
    "addClientRole": client_commands.add_client_role,
    "removeClientRole": client_commands.remove_client_role,
    "createGroup": group_commands.create_group,
    "deleteGroup": group_commands.delete_group,
    "modifyGroup": group_commands.modify_group,
    "addGroupClient": group_commands.add_group_client,
    "removeGroupClient": group_commands.remove_group_client,
    "addGroupRole": group_commands.add_group_role,
    "removeGroupRole": group_commands.remove_group_role,
    "setAnonymousGroup": group_commands.set_anonymous_group,
    "createRole": role_commands.create_role,
    "deleteRole": role_commands.delete_role,
    "modifyRole": role_commands.modify_role,
    "addRoleACL": role_commands.add_role_acl,
    "removeRoleACL": role_commands.remove_role_acl,
}
"""The commands that change something."""

NAME_OF: Final = {each.lower(): each for each in (*READERS, *WRITERS)}
"""By name in lower case, because the plugin ignores case."""

SETS_PASSWORD: Final = frozenset({"createClient", "setClientPassword", "modifyClient"})


def execute(command: Command, name: str) -> Json | None:
    """Execute a command by its name in `NAME_OF`. Return the data of its answer, if any. Raises `CommandError`."""
    if name in READERS:
        return READERS[name](command)
    WRITERS[name](command)
    command.change.changed = True
    command.state.change_index += 1
    return None
