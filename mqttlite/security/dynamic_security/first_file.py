"""The file of a first start: the users, groups and roles with which Mosquitto 2.1 begins.

The password of `admin` comes from a file, from `MOSQUITTO_DYNSEC_PASSWORD`, or by chance; in the last case there is a
second user, and both passwords are in `<file>.pw`. Invariant: nothing is written over.
"""

import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mqttlite.files.atomic_file import save
from mqttlite.security.dynamic_security.document import DynamicSecurityError, dump
from mqttlite.security.dynamic_security.model import (
    NO_PRIORITY,
    PUBLISH_RECEIVE,
    PUBLISH_SEND,
    SUBSCRIBE_PATTERN,
    UNSUBSCRIBE,
    UNSUBSCRIBE_PATTERN,
    Acl,
    Client,
    Group,
    Role,
    State,
)
from mqttlite.security.dynamic_security.passwords import new_password

VARIABLE: Final = "MOSQUITTO_DYNSEC_PASSWORD"
LEAST_CHARACTERS: Final = 12
"""Of a password in the environment, as with Mosquitto."""

RANDOM_BYTES: Final = 15
"""Of a password by chance: 20 characters."""

_FULL: Final = (PUBLISH_SEND, PUBLISH_RECEIVE, SUBSCRIBE_PATTERN, UNSUBSCRIBE_PATTERN)
_ROLES: Final = (
    ("client", "Read/write access to all topics of applications.", "#", _FULL),
    ("broker-admin", "Administration of the broker's configuration.", "$CONTROL/broker/#", _FULL),
    ("dynsec-admin", "Administration of clients, groups and roles.", "$CONTROL/dynamic-security/#", _FULL),
    ("super-admin", "Administration of everything.", "$CONTROL/#", _FULL),
    (
        "sys-notify",
        "Bridges publish the state of their connection.",
        "$SYS/broker/connection/%c/state",
        (PUBLISH_SEND,),
    ),
    ("sys-observe", "Read access to $SYS.", "$SYS/#", (PUBLISH_RECEIVE, SUBSCRIBE_PATTERN)),
    ("topic-observe", "Read access to all topics of applications.", "#", _FULL[1:]),
)
_ADMIN_ROLES: Final = ("super-admin", "sys-observe", "topic-observe")
_ANONYMOUS: Final = "unauthenticated"

_log = logging.getLogger("mqttlite.security")


def make(path: Path, password_file: Path | None, environment: Mapping[str, str] = os.environ) -> None:
    """Write the file, and that of the passwords by chance. Raises `DynamicSecurityError`."""
    given = _given(password_file, environment)
    passwords = {"admin": given} if given else {name: _by_chance() for name in ("admin", "democlient")}
    try:
        if not given:
            words = "".join(f"{name} {password}\n" for name, password in passwords.items())
            save(_passwords_of(path), words.encode())
        save(path, dump(_state(passwords)))
    except OSError as error:
        raise DynamicSecurityError(f"{path}: cannot be written: {error.strerror or error}") from None
    where = f"its passwords are in {_passwords_of(path)}" if not given else "the password of admin is as given"
    _log.warning("%s was made, for there was none: %s", path, where)


def remove_passwords(path: Path) -> None:
    """Another file takes the place of the one that was made: its passwords by chance are those of nobody."""
    _passwords_of(path).unlink(missing_ok=True)


def _passwords_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.pw")


def _given(password_file: Path | None, environment: Mapping[str, str]) -> str:
    """The password that somebody gave; empty: none."""
    if password_file is not None:
        try:
            lines = password_file.read_text().splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DynamicSecurityError(f"{password_file}: cannot be read: {error}") from None
        found = lines[0].strip() if lines else ""
        if not found:
            raise DynamicSecurityError(f"{password_file}: it has no password in its first line")
        return found
    found = environment.get(VARIABLE, "")
    if VARIABLE in environment and len(found) < LEAST_CHARACTERS:
        raise DynamicSecurityError(f"{VARIABLE} has {len(found)} characters: {LEAST_CHARACTERS} at least")
    return found


def _by_chance() -> str:
    return secrets.token_urlsafe(RANDOM_BYTES)


def _state(passwords: Mapping[str, str]) -> State:
    state = State()
    state.default_access |= {PUBLISH_RECEIVE: True, UNSUBSCRIBE: True}
    for name, description, topic, kinds in _ROLES:
        role = state.roles[name] = Role(name, None, description)
        for kind in kinds:
            role.add(kind, Acl(topic, 0, allow=True))
    texts = {"admin": "Admin user", "democlient": "Demonstration client with full read/write access to '#'"}
    for username, password in passwords.items():
        client = state.clients[username] = Client(username, texts[username], password=new_password(password))
        roles = _ADMIN_ROLES if username == "admin" else ("client",)
        client.roles = dict.fromkeys(roles, NO_PRIORITY)
    state.groups[_ANONYMOUS] = Group(
        _ANONYMOUS,
        "Unauthenticated group",
        "Its roles are those of clients without a user name, where these may connect.",
    )
    state.anonymous_group = _ANONYMOUS
    return state
