"""The file: `dynamic-security.json` as Mosquitto's plugin and `mosquitto_ctrl dynsec init` write it.

The case of keys is ignored, as in the plugin. Invariant: the file on disk is complete at every moment, and an
unreadable file is never overwritten.
"""

import base64
import binascii
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

from mqttlite.security.dynamic_security.model import (
    ACL_TYPE_OF,
    DEFAULT_TYPES,
    MAX_ACLS,
    MAX_CLIENTS,
    MAX_GROUPS,
    MAX_MEMBERSHIPS,
    MAX_ROLES,
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

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
"""More than the limits of `model` allow in practice: a larger file is another kind of file."""

HASH_BYTES: Final = 64
MAX_SALT_BYTES: Final = 64
MAX_ITERATIONS: Final = 1_000_000
"""About half a second for a CONNECT: a larger number is a mistake."""

MAX_NAME_BYTES: Final = 65_535
"""The longest user name or other name, as CONNECT allows."""

_PLANES: Final = range(0, 0x110000, 0x10000)
_NOT_IN_NAMES: Final = re.compile(
    f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{''.join(chr(plane | 0xFFFE) + chr(plane | 0xFFFF) for plane in _PLANES)}]"
)
"""Control characters and the noncharacters of Unicode."""

Json = dict[str, Any]
T = TypeVar("T")


class DynamicSecurityError(ValueError):
    """An unusable file. The text says which file, where in it, and what is wrong."""


class _Wrong(ValueError):
    """An error with its place in the document."""


def load(path: Path) -> State:
    """What a file holds. Raises `DynamicSecurityError`."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DynamicSecurityError(f"{path}: {MAX_FILE_BYTES // 1024**2} MiB at most")
        content = path.read_bytes()
    except OSError as error:
        hint = ""
        if isinstance(error, FileNotFoundError):
            hint = f"; 'mosquitto_ctrl dynsec init {path} admin' makes it"
        raise DynamicSecurityError(f"{path}: cannot be read: {error.strerror}{hint}") from None
    try:
        return parse(content)
    except json.JSONDecodeError as error:
        raise DynamicSecurityError(f"{path}:{error.lineno}: column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DynamicSecurityError(f"{path}:{line}: it is not UTF-8") from None
    except RecursionError:
        raise DynamicSecurityError(f"{path}: it is nested too deeply") from None
    except _Wrong as error:
        raise DynamicSecurityError(f"{path}: {error}") from None


def parse(content: bytes) -> State:
    """What the bytes of a file mean."""
    tree = json.loads(content.decode("utf-8-sig"), object_pairs_hook=small_keys)
    if not isinstance(tree, dict):
        raise _Wrong("it must be a JSON object")
    state = State()
    defaults = tree.get("defaultaclaccess", {})
    if not isinstance(defaults, dict):
        raise _Wrong("defaultACLAccess must be an object")
    for each in DEFAULT_TYPES:
        state.default_access[each] = _bool(defaults, each, "defaultACLAccess")
    for place, item in _objects(tree, "roles", "", MAX_ROLES):
        role = _role(item, place)
        _add(state.roles, role.name, role, f"{place}.rolename")
    for place, item in _objects(tree, "clients", "", MAX_CLIENTS):
        client = _client(item, place, state)
        _add(state.clients, client.username, client, f"{place}.username")
    for place, item in _objects(tree, "groups", "", MAX_GROUPS):
        group = Group(_name(item, "groupname", place), *_texts(item, place))
        group.roles = _priorities(item, "roles", "rolename", place, state.roles)
        _add(state.groups, group.name, group, f"{place}.groupname")
        for at, member in _objects(item, "clients", place, MAX_CLIENTS):
            client = _known(state.clients, member, "username", at)
            state.join(client, group, _int(member, "priority", at, NO_PRIORITY))
            if len(client.groups) > MAX_MEMBERSHIPS:
                raise _Wrong(f"{at}: client {client.username!r} is in more than {MAX_MEMBERSHIPS} groups")
    if tree.get("anonymousgroup") is not None:
        state.anonymous_group = _known(state.groups, tree, "anonymousGroup", "").name
    return State(_sorted(state.clients), _sorted(state.groups), _sorted(state.roles), *_rest(state))


def _rest(state: State) -> tuple[str | None, dict[str, bool]]:
    return state.anonymous_group, state.default_access


def _sorted(items: dict[str, T]) -> dict[str, T]:
    return dict(sorted(items.items(), key=lambda each: each[0].encode()))


def dump(state: State) -> bytes:
    """The bytes of a file."""
    tree: Json = {
        "defaultACLAccess": state.default_access,
        "clients": [_client_tree(each) for each in state.clients.values()],
        "groups": [_group_tree(each) for each in state.groups.values()],
        "roles": [role_tree(each) for each in state.roles.values()],
    }
    if state.anonymous_group is not None:
        tree["anonymousGroup"] = state.anonymous_group
    return json.dumps(tree, indent="\t", ensure_ascii=False).encode() + b"\n"


# ── trees ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def priorities_tree(priorities: dict[str, int], key: str) -> list[Json]:
    """Roles, groups or clients with their priorities, if set."""
    return [
        {key: name} if priority == NO_PRIORITY else {key: name, "priority": priority}
        for name, priority in priorities.items()
    ]


def texts_tree(item: Client | Group | Role) -> Json:
    """Its text name and description, if set."""
    pairs = {"textname": item.text_name, "textdescription": item.text_description}
    return {key: value for key, value in pairs.items() if value is not None}


def role_tree(role: Role) -> Json:
    """A role as in the file and in answers."""
    acls = [
        {"acltype": kind, "topic": each.topic, "priority": each.priority, "allow": each.allow}
        for kind, found in role.acls.items()
        for each in found
    ]
    return {"rolename": role.name, **texts_tree(role), "acls": acls}


def _client_tree(client: Client) -> Json:
    tree: Json = {"username": client.username}
    if client.client_id is not None:
        tree["clientid"] = client.client_id
    tree |= texts_tree(client)
    if client.disabled:
        tree["disabled"] = True
    tree["roles"] = priorities_tree(client.roles, "rolename")
    if client.password is not None:
        tree["password"] = base64.b64encode(client.password.hash).decode()
        tree["salt"] = base64.b64encode(client.password.salt).decode()
        tree["iterations"] = client.password.iterations
    return tree


def _group_tree(group: Group) -> Json:
    return {
        "groupname": group.name,
        **texts_tree(group),
        "roles": priorities_tree(group.roles, "rolename"),
        "clients": priorities_tree(_sorted(group.clients), "username"),
    }


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def small_keys(pairs: list[tuple[str, Any]]) -> Json:
    """An object with keys in lower case. Of two equal keys the first one counts, as in the plugin."""
    found: Json = {}
    for key, value in pairs:
        found.setdefault(key.lower(), value)
    return found


def is_text(text: str, most: int = MAX_NAME_BYTES) -> bool:
    """Whether a text is valid in MQTT."""
    try:
        return "\0" not in text and len(text.encode()) <= most
    except UnicodeEncodeError:
        return False


def is_name(text: str) -> bool:
    """Whether Mosquitto accepts a text as a name, client identifier or topic: without control characters and
    noncharacters, which MQTT lets a receiver refuse. Names already in a file are not checked."""
    return is_text(text) and _NOT_IN_NAMES.search(text) is None


def _role(item: Json, place: str) -> Role:
    role = Role(_name(item, "rolename", place), *_texts(item, place))
    for at, each in _objects(item, "acls", place, MAX_ACLS):
        kind = ACL_TYPE_OF.get(str(each.get("acltype", "")).lower())
        if kind is None:
            raise _Wrong(f"{at}.acltype must be one of {', '.join(ACL_TYPE_OF.values())}")
        topic = _name(each, "topic", at)
        try:
            check_filter(topic.encode())
        except TopicFilterInvalid as error:
            raise _Wrong(f"{at}.topic: {error}") from None
        role.add(kind, Acl(topic, _int(each, "priority", at, 0), _bool(each, "allow", at)))
    return role


def _client(item: Json, place: str, state: State) -> Client:
    client = Client(_name(item, "username", place), *_texts(item, place))
    client.client_id = _text(item, "clientid", place) or None
    client.disabled = _bool(item, "disabled", place)
    client.roles = _priorities(item, "roles", "rolename", place, state.roles)
    if item.get("password") is not None:
        iterations = _int(item, "iterations", place, 0)
        if not 1 <= iterations <= MAX_ITERATIONS:
            raise _Wrong(f"{place}.iterations is {iterations}: it may be 1 to {MAX_ITERATIONS}")
        hashed, salt = _base64(item, "password", place), _base64(item, "salt", place)
        if len(hashed) != HASH_BYTES:
            raise _Wrong(f"{place}.password has {len(hashed)} bytes: it must have {HASH_BYTES}")
        if len(salt) > MAX_SALT_BYTES:
            raise _Wrong(f"{place}.salt has {len(salt)} bytes: {MAX_SALT_BYTES} at most")
        client.password = Password(hashed, salt, iterations)
    return client


def _objects(tree: Json, key: str, place: str, most: int) -> Iterator[tuple[str, Json]]:
    """The objects of an array, each with its place."""
    items = tree.get(key, [])
    at = f"{place}.{key}" if place else key
    if not isinstance(items, list):
        raise _Wrong(f"{at} must be an array")
    if len(items) > most:
        raise _Wrong(f"{at} has {len(items)} entries: {most} at most")
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            raise _Wrong(f"{at}[{number}] must be an object")
        yield f"{at}[{number}]", item


def _priorities(item: Json, key: str, name: str, place: str, known: dict[str, T]) -> dict[str, int]:
    found: dict[str, int] = {}
    for at, each in _objects(item, key, place, MAX_MEMBERSHIPS):
        _known(known, each, name, at)
        put(found, each[name], _int(each, "priority", at, NO_PRIORITY))
    return found


def _known(known: dict[str, T], item: Json, key: str, place: str) -> T:
    name = _name(item, key, place)
    if name not in known:
        raise _Wrong(f"{_at(place, key)} is {name!r}, which is not in the file")
    return known[name]


def _add(items: dict[str, T], name: str, item: T, place: str) -> None:
    if name in items:
        raise _Wrong(f"{place} is {name!r}, which the file has already")
    items[name] = item


def _at(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _name(item: Json, key: str, place: str) -> str:
    text = _text(item, key, place)
    if not text:
        raise _Wrong(f"{_at(place, key)} is missing or empty")
    return text


def _texts(item: Json, place: str) -> tuple[str | None, str | None]:
    return _text(item, "textname", place), _text(item, "textdescription", place)


def _text(item: Json, key: str, place: str) -> str | None:
    value = item.get(key.lower())
    if value is not None and (not isinstance(value, str) or not is_text(value)):
        raise _Wrong(f"{_at(place, key)} must be a text of at most {MAX_NAME_BYTES} bytes without U+0000")
    return value


def _int(item: Json, key: str, place: str, default: int) -> int:
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f"{_at(place, key)} must be a whole number")
    return value


def _bool(item: Json, key: str, place: str) -> bool:
    value = item.get(key.lower(), False)
    if not isinstance(value, bool):
        raise _Wrong(f"{_at(place, key)} must be true or false")
    return value


def _base64(item: Json, key: str, place: str) -> bytes:
    try:
        return base64.b64decode(item.get(key) or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _Wrong(f"{_at(place, key)} is not base64") from None
