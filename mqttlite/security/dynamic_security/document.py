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
    MAX_NAMED,
    MAX_ROLES,
    NO_PRIORITY,
    Acl,
    Client,
    Group,
    Role,
    State,
    Unknown,
    put,
)
from mqttlite.security.hashes import MosquittoHash, PasswordHash, parse_hash
from mqttlite.security.keys import TextError
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

_KEYS: Final = frozenset({"changeindex", "defaultaclaccess", "clients", "groups", "roles", "anonymousgroup"})
_TEXT_KEYS: Final = frozenset({"textname", "textdescription"})
_CLIENT_KEYS: Final = _TEXT_KEYS | {
    *("username", "clientid", "disabled", "roles", "groups"),
    *("encoded_password", "password", "salt", "iterations"),
}
_GROUP_KEYS: Final = _TEXT_KEYS | {"groupname", "roles", "clients"}
_ROLE_KEYS: Final = _TEXT_KEYS | {"rolename", "allowwildcardsubs", "acls"}
_ACL_KEYS: Final = frozenset({"acltype", "topic", "priority", "allow"})

_PLANES: Final = range(0, 0x110000, 0x10000)
_NOT_IN_NAMES: Final = re.compile(
    f"[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef{''.join(chr(plane | 0xFFFE) + chr(plane | 0xFFFF) for plane in _PLANES)}]"
)
"""Control characters and the noncharacters of Unicode."""

Json = dict[str, Any]
T = TypeVar("T")


def small_keys(pairs: list[tuple[str, Any]]) -> Json:
    """An object with keys in lower case. Of two equal keys the first one counts, as in the plugin."""
    found: Json = {}
    for key, value in pairs:
        found.setdefault(key.lower(), value)
    return found


class Object(dict[str, Any]):
    """An object of the file with keys in lower case, and with its keys as they are spelled."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(small_keys(pairs))
        self.spelled: Final = dict(pairs)


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
        raise DynamicSecurityError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        return parse(content)
    except json.JSONDecodeError as error:
        raise DynamicSecurityError(f"{path}:{error.lineno}: column {error.colno}: {error.msg}") from None
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DynamicSecurityError(f"{path}:{line}: it is not UTF-8") from None
    except ValueError as error:  # a number with thousands of digits
        raise DynamicSecurityError(f"{path}: {error}") from None
    except _Wrong as error:
        raise DynamicSecurityError(f"{path}: {error}") from None


def parse(content: bytes) -> State:
    """What the bytes of a file mean. Raises ValueError."""
    try:
        return _parse(content)
    except RecursionError:
        raise _Wrong("it is nested too deeply") from None


def _parse(content: bytes) -> State:
    tree = json.loads(content.decode("utf-8-sig"), object_pairs_hook=Object)
    if not isinstance(tree, Object):
        raise _Wrong("it must be a JSON object")
    state = State()
    defaults = tree.get("defaultaclaccess", {})
    if not isinstance(defaults, dict):
        raise _Wrong("defaultACLAccess must be an object")
    for each in DEFAULT_TYPES:
        state.default_access[each] = _bool(defaults, each, "defaultACLAccess")
    for place, item in _objects(tree, "roles", "", MAX_ROLES):
        role = _role(item, place, state)
        _add(state.roles, role.name, role, f"{place}.rolename")
    for place, item in _objects(tree, "clients", "", MAX_CLIENTS):
        client = _client(item, place, state)
        _add(state.clients, client.username, client, f"{place}.username")
    for place, item in _objects(tree, "groups", "", MAX_GROUPS):
        group = Group(_name(item, "groupname", place), *_texts(item, place))
        group.roles = _priorities(item, "roles", "rolename", place, state.roles)
        group.unknown = _unknown(item, _GROUP_KEYS, place, state)
        _add(state.groups, group.name, group, f"{place}.groupname")
        for at, member in _objects(item, "clients", place, MAX_CLIENTS):
            client = _known(state.clients, member, "username", at)
            state.join(client, group, _int(member, "priority", at, NO_PRIORITY))
            if len(client.groups) > MAX_MEMBERSHIPS:
                raise _Wrong(f"{at}: client {client.username!r} is in more than {MAX_MEMBERSHIPS} groups")
    if tree.get("anonymousgroup") is not None:
        state.anonymous_group = _known(state.groups, tree, "anonymousGroup", "").name
    state.change_index = _int(tree, "changeindex", "", 0)
    state.unknown = _unknown(tree, _KEYS, "", state)
    state.clients, state.groups, state.roles = _sorted(state.clients), _sorted(state.groups), _sorted(state.roles)
    return state


def _sorted(items: dict[str, T]) -> dict[str, T]:
    return dict(sorted(items.items(), key=lambda each: each[0].encode()))


def dump(state: State) -> bytes:
    """The bytes of a file."""
    tree: Json = {
        "changeIndex": state.change_index,
        "defaultACLAccess": state.default_access,
        "clients": [_client_tree(each) for each in state.clients.values()],
        "groups": [_group_tree(each) for each in state.groups.values()],
        "roles": [role_tree(each, with_unknown=True) for each in state.roles.values()],
    }
    if state.anonymous_group is not None:
        tree["anonymousGroup"] = state.anonymous_group
    tree |= state.unknown
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


def role_tree(role: Role, *, with_unknown: bool = False) -> Json:
    """A role as in answers, and with its unknown keys as in the file."""
    acls = [
        {"acltype": kind, "topic": each.topic, "priority": each.priority, "allow": each.allow}
        | (each.unknown if with_unknown else {})
        for kind, found in role.acls.items()
        for each in found
    ]
    tree = {"rolename": role.name, **texts_tree(role), "allowwildcardsubs": role.allow_wildcard_subs, "acls": acls}
    return tree | role.unknown if with_unknown else tree


def _client_tree(client: Client) -> Json:
    tree: Json = {"username": client.username}
    if client.client_id is not None:
        tree["clientid"] = client.client_id
    tree |= texts_tree(client)
    if client.disabled:
        tree["disabled"] = True
    tree["roles"] = priorities_tree(client.roles, "rolename")
    password = client.password
    if isinstance(password, MosquittoHash) and password.iterations:  # which versions before 2.1 read, too
        tree["password"] = base64.b64encode(password.digest).decode()
        tree["salt"] = base64.b64encode(password.salt).decode()
        tree["iterations"] = password.iterations
    elif password is not None:
        tree["encoded_password"] = password.format()
    return tree | client.unknown


def _group_tree(group: Group) -> Json:
    return {
        "groupname": group.name,
        **texts_tree(group),
        "roles": priorities_tree(group.roles, "rolename"),
        "clients": priorities_tree(_sorted(group.clients), "username"),
        **group.unknown,
    }


# ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def _role(item: Object, place: str, state: State) -> Role:
    role = Role(_name(item, "rolename", place), *_texts(item, place))
    role.allow_wildcard_subs = _bool(item, "allowwildcardsubs", place, default=True)
    role.unknown = _unknown(item, _ROLE_KEYS, place, state)
    for at, each in _objects(item, "acls", place, MAX_ACLS):
        kind = ACL_TYPE_OF.get(str(each.get("acltype", "")).lower())
        if kind is None:
            raise _Wrong(f"{at}.acltype must be one of {', '.join(ACL_TYPE_OF.values())}")
        topic = _name(each, "topic", at)
        try:
            check_filter(topic.encode())
        except TopicFilterInvalid as error:
            raise _Wrong(f"{at}.topic: {error}") from None
        acl = Acl(topic, _int(each, "priority", at, 0), _bool(each, "allow", at), _unknown(each, _ACL_KEYS, at, state))
        role.add(kind, acl)
    return role


def _client(item: Object, place: str, state: State) -> Client:
    client = Client(_name(item, "username", place), *_texts(item, place))
    client.client_id = _text(item, "clientid", place) or None
    client.disabled = _bool(item, "disabled", place)
    client.roles = _priorities(item, "roles", "rolename", place, state.roles)
    client.password = _password(item, place)
    client.unknown = _unknown(item, _CLIENT_KEYS, place, state)
    return client


def _password(item: Object, place: str) -> PasswordHash | None:
    """`encoded_password`, as Mosquitto writes it from 2.1 on, or `password`, `salt` and `iterations`."""
    encoded = _text(item, "encoded_password", place)
    if encoded is not None:
        try:
            return parse_hash(encoded)
        except TextError as error:
            raise _Wrong(f"{place}.encoded_password: {error}") from None
    if item.get("password") is None:
        return None
    iterations = _int(item, "iterations", place, 0)
    if not 1 <= iterations <= MAX_ITERATIONS:
        raise _Wrong(f"{place}.iterations is {iterations}: it may be 1 to {MAX_ITERATIONS}")
    hashed, salt = _base64(item, "password", place), _base64(item, "salt", place)
    if len(hashed) != HASH_BYTES:
        raise _Wrong(f"{place}.password has {len(hashed)} bytes: it must have {HASH_BYTES}")
    if len(salt) > MAX_SALT_BYTES:
        raise _Wrong(f"{place}.salt has {len(salt)} bytes: {MAX_SALT_BYTES} at most")
    return MosquittoHash(iterations, salt, hashed)


def _unknown(item: Object, known: frozenset[str], place: str, state: State) -> Unknown:
    """The keys of an object that are not known, with their values as they are in the file."""
    found = {key: _as_spelled(value) for key, value in item.spelled.items() if key.lower() not in known}
    state.unknown_places += [_at(place, key) for key in found][: MAX_NAMED - len(state.unknown_places)]
    return found


def _as_spelled(value: Any) -> Any:
    if isinstance(value, Object):
        return {key: _as_spelled(each) for key, each in value.spelled.items()}
    return [_as_spelled(each) for each in value] if isinstance(value, list) else value


def _objects(tree: Object, key: str, place: str, most: int) -> Iterator[tuple[str, Object]]:
    """The objects of an array, each with its place."""
    items = tree.get(key, [])
    at = f"{place}.{key}" if place else key
    if not isinstance(items, list):
        raise _Wrong(f"{at} must be an array")
    if len(items) > most:
        raise _Wrong(f"{at} has {len(items)} entries: {most} at most")
    for number, item in enumerate(items):
        if not isinstance(item, Object):
            raise _Wrong(f"{at}[{number}] must be an object")
        yield f"{at}[{number}]", item


def _priorities(item: Object, key: str, name: str, place: str, known: dict[str, T]) -> dict[str, int]:
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


def _bool(item: Json, key: str, place: str, *, default: bool = False) -> bool:
    value = item.get(key.lower(), default)
    if not isinstance(value, bool):
        raise _Wrong(f"{_at(place, key)} must be true or false")
    return value


def _base64(item: Json, key: str, place: str) -> bytes:
    try:
        return base64.b64decode(item.get(key) or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise _Wrong(f"{_at(place, key)} is not base64") from None
