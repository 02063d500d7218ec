"""Clients, groups and roles that can be changed at run time, in the file format of Mosquitto's dynamic security plugin.
The commands are an extension. `assembly` creates a `DynamicSecurity` and connects it."""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from mqttlite.files.atomic_file import save
from mqttlite.security.dynamic_security.document import DynamicSecurityError, load, parse
from mqttlite.security.dynamic_security.first_file import make
from mqttlite.security.dynamic_security.model import State, changed_users
from mqttlite.security.dynamic_security.passwords import DynamicAuthenticator, Passwords
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.role_numbers import nothing

__all__ = ["DynamicSecurity", "DynamicSecurityError", "DynamicSecurityOptions", "path_of"]

_log = logging.getLogger("mqttlite.security")

FILE_NAME: Final = "dynamic-security.json"
"""Its name in the data directory, if the configuration names no file."""


class DynamicSecurityOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Users and their permissions that clients change with Mosquitto's dynamic security commands."""

    file: str | None = None
    """The file, in the format of Mosquitto's plugin. Absent: `dynamic-security.json` in `data_dir`. The first
    start makes it."""

    password_init_file: str | None = None
    """The file with the password of `admin` for a first start. Absent: the environment variable
    `MOSQUITTO_DYNSEC_PASSWORD`, or a password by chance in `<file>.pw`."""


def path_of(options: DynamicSecurityOptions, data_dir: str | None) -> Path | None:
    """The path of the file; None if neither option is set."""
    if options.file is not None:
        return Path(options.file)
    return Path(data_dir) / FILE_NAME if data_dir else None


class DynamicSecurity:
    """The rules and authenticators over one file. Commands change its `rules` and `passwords`."""

    def __init__(
        self,
        path: Path,
        options: DynamicSecurityOptions,
        roles_in_use: Callable[[], Iterable[int]],
        *,
        on_forgotten: Callable[[], None] = nothing,
    ) -> None:
        """`roles_in_use` and `on_forgotten` are those of `DynamicRules`. Raises `DynamicSecurityError`."""
        self.path: Final = path
        self.is_new: Final = not path.exists()
        """Whether this start has made the file."""
        if self.is_new:
            make(path, None if options.password_init_file is None else Path(options.password_init_file))
        state = load(path)
        for place in state.unknown_places:
            _log.warning("%s: %s is not known; it stays in the file", path, place)
        self.rules: Final = DynamicRules(state, roles_in_use, on_forgotten=on_forgotten)
        self.passwords: Final = Passwords()
        self.authenticator: Final = DynamicAuthenticator(self.rules, self.passwords)

    def members_of_groups(self) -> dict[str, list[str]]:
        """The users of each group."""
        return {name: sorted(group.clients) for name, group in self.rules.state.groups.items()}

    def replace_file(self, content: bytes) -> tuple[State, frozenset[str | None]]:
        """Replace the file. Return the state that is to hold now, and for which users another one held; None: clients
        without a user name. Raises ValueError and `OSError`; then nothing has changed."""
        state = parse(content)
        save(self.path, content)
        return state, changed_users(self.rules.state, state)

    def close(self) -> None:
        """Check no more passwords."""
        self.passwords.close()
