"""The HTTP interface of the registry, with the paths, bodies and error codes of Confluent's Schema Registry.

The routes serve it and check permissions. `RegistryApi.answer` takes a parsed request, and
`is_change` says whether it changes data. Invariant: a failed request changes nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import msgspec

from mqttlite.extensions.schemas.parsed import SCHEMA_TYPES
from mqttlite.extensions.schemas.parsing import is_installed
from mqttlite.extensions.schemas.registry import (
    LATEST,
    RegistryError,
    Schema,
    Version,
    check_level,
    check_type,
)
from mqttlite.extensions.schemas.service import SchemaRegistry, parse_schema

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"

MAX_BODY_BYTES: Final = 262_144
"""A schema of `MAX_SCHEMA_BYTES` as a JSON string, with every character escaped."""

Json = Any
Handler = Callable[["_Call"], Awaitable[Json]]


class SchemaBody(msgspec.Struct, frozen=True):
    """The schema in a request. Other fields, such as `metadata`, are ignored."""

    schema: str
    schemaType: str = "AVRO"  # noqa: N815
    references: list[object] = []


class LevelBody(msgspec.Struct, frozen=True):
    compatibility: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, and the body as JSON."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class _Call:
    """A request to a route: the variable segments of its path, its query and its body."""

    names: Sequence[str]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def schema(self) -> Schema:
        """Raises `RegistryError`."""
        body = _decoded(self.body, SchemaBody)
        if body.references:
            raise RegistryError(42201, "Schema references are not supported: put what they name into the schema.")
        return Schema(check_type(body.schemaType), body.schema)


def _decoded(body: bytes, kind: type[Any]) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RegistryError(42201, f"The body is not what the request takes: {error}") from None


def _number(text: str) -> int:
    """A version. Raises `RegistryError`."""
    if text in ("latest", "-1"):
        return LATEST
    if not (text.isascii() and text.isdecimal() and 0 < int(text[:10]) < 1 << 31):
        raise RegistryError(
            42202,
            f"The specified version '{text[:20]}' is not a valid version id. Allowed values are between [1, 2^31-1] "
            'and the string "latest"',
        )
    return int(text)


def _id(text: str) -> int:
    """Raises `RegistryError`."""
    if not (text.isascii() and text.isdecimal()):
        raise RegistryError(40403, f"Schema {text[:20]} not found")
    return int(text[:10])


def is_change(method: str, segments: Sequence[str]) -> bool:
    """Whether a request changes data. Looking up and comparing a schema are POST requests, too."""
    if method in ("GET", "HEAD"):
        return False
    parts = _parts(segments)
    return not (method == "POST" and (parts[:1] == ["compatibility"] or len(parts) == 2))


def _parts(segments: Sequence[str]) -> list[str]:
    """Segments without empty ones from extra slashes."""
    return [each for each in segments if each]


@final
class RegistryApi:
    def __init__(self, registry: SchemaRegistry) -> None:
        self._service: Final = registry
        # "*" is a segment that names something.
        self._routes: Final[Mapping[tuple[str, str], tuple[Handler, str]]] = {
            ("GET", ""): (self._root, "Nothing: says that there is a registry"),
            ("GET", "schemas/types"): (self._types, "The languages of schemas"),
            ("GET", "schemas/ids/*"): (self._by_id, "A schema"),
            ("GET", "schemas/ids/*/schema"): (self._text_by_id, "A schema alone"),
            ("GET", "schemas/ids/*/subjects"): (self._subjects_of_id, "The subjects that have a schema"),
            ("GET", "schemas/ids/*/versions"): (self._versions_of_id, "The subjects and versions that have a schema"),
            ("GET", "subjects"): (self._subjects, "The names of the subjects"),
            ("POST", "subjects/*"): (self._look_up, "The version that has a schema"),
            ("DELETE", "subjects/*"): (self._delete_subject, "Delete a subject"),
            ("GET", "subjects/*/versions"): (self._versions, "The versions of a subject"),
            ("POST", "subjects/*/versions"): (self._register, "Register a schema"),
            ("GET", "subjects/*/versions/*"): (self._version, "A version"),
            ("DELETE", "subjects/*/versions/*"): (self._delete_version, "Delete a version"),
            ("GET", "subjects/*/versions/*/schema"): (self._text, "The schema of a version alone"),
            ("GET", "subjects/*/versions/*/referencedby"): (
                self._referenced_by,
                "The schemas that refer to a version: none",
            ),
            ("POST", "compatibility/subjects/*/versions"): (
                self._compare_all,
                "Compare a schema with the versions that the level names",
            ),
            ("POST", "compatibility/subjects/*/versions/*"): (self._compare, "Compare a schema with a version"),
            ("GET", "config"): (self._level, "The compatibility level of the registry"),
            ("PUT", "config"): (self._set_level, "Set a compatibility level"),
            ("DELETE", "config"): (self._reset_level, "Forget a compatibility level"),
            ("GET", "config/*"): (self._subject_level, "The compatibility level of a subject"),
            ("PUT", "config/*"): (self._set_level, "Set a compatibility level"),
            ("DELETE", "config/*"): (self._reset_level, "Forget a compatibility level"),
            ("GET", "mode"): (self._mode, "The mode, which is READWRITE"),
            ("GET", "mode/*"): (self._mode, "The mode, which is READWRITE"),
        }

    def routes(self) -> list[tuple[str, str, str]]:
        """Each method and path with its purpose; `*` is a variable segment."""
        return [(method, path, summary) for (method, path), (_, summary) in self._routes.items()]

    async def answer(self, method: str, segments: Sequence[str], query: Mapping[str, str], body: bytes = b"") -> Answer:
        """Answer a request. `segments` is the decoded path below the registry's root."""
        parts = _parts(segments)
        try:
            handler, names = self._find("GET" if method == "HEAD" else method, parts)
            found = await handler(_Call(names, query, body))
        except RegistryError as error:
            return _error(error.code, str(error))
        return Answer(200, msgspec.json.encode(found))

    def _find(self, method: str, parts: list[str]) -> tuple[Handler, list[str]]:
        """Raises `RegistryError`."""
        methods: list[str] = []
        for (allowed, path), (handler, _) in self._routes.items():
            pattern = path.split("/") if path else []
            if len(pattern) != len(parts):
                continue
            pairs = list(zip(pattern, parts, strict=True))
            if all(each in ("*", part) for each, part in pairs):
                if allowed == method:
                    return handler, [part for each, part in pairs if each == "*"]
                methods.append(allowed)
        if methods:
            raise RegistryError(405, f"HTTP 405 Method Not Allowed: there are {', '.join(methods)}")
        raise RegistryError(404, "HTTP 404 Not Found")

    # ------------------------------------------------------------------ schemas by id

    async def _root(self, call: _Call) -> Json:
        return {}

    async def _types(self, call: _Call) -> Json:
        return SCHEMA_TYPES if is_installed() else []

    async def _by_id(self, call: _Call) -> Json:
        return _with_type({}, self._service.registry.schema(_id(call.names[0])))

    async def _text_by_id(self, call: _Call) -> Json:
        return msgspec.Raw(self._service.registry.schema(_id(call.names[0])).text.encode())

    async def _subjects_of_id(self, call: _Call) -> Json:
        return list(dict.fromkeys(name for name, _ in self._uses(call)))

    async def _versions_of_id(self, call: _Call) -> Json:
        return [{"subject": name, "version": number} for name, number in self._uses(call)]

    def _uses(self, call: _Call) -> list[tuple[str, int]]:
        schema_id = _id(call.names[0])
        self._service.registry.schema(schema_id)
        return list(self._service.registry.uses(schema_id, with_deleted=call.flag("deleted")))

    # ------------------------------------------------------------------ subjects and versions

    async def _subjects(self, call: _Call) -> Json:
        prefix = call.query.get("subjectPrefix", "")
        deleted = call.flag("deleted")
        return [
            name
            for name, subject in sorted(self._service.registry.subjects.items())
            if name.startswith(prefix) and (subject.versions if deleted else subject.live())
        ]

    async def _versions(self, call: _Call) -> Json:
        subject = self._service.registry.subject(call.names[0], with_deleted=call.flag("deleted"))
        versions = subject.versions if call.flag("deleted") else subject.live()
        return [each.number for each in versions]

    async def _version(self, call: _Call) -> Json:
        return self._described(call.names[0], self._asked(call))

    async def _text(self, call: _Call) -> Json:
        return msgspec.Raw(self._service.registry.schema(self._asked(call).schema_id).text.encode())

    async def _referenced_by(self, call: _Call) -> Json:
        self._asked(call)
        return []

    def _asked(self, call: _Call) -> Version:
        name, number = call.names
        return self._service.registry.version(name, _number(number), with_deleted=call.flag("deleted"))

    async def _register(self, call: _Call) -> Json:
        version = await self._service.register(call.names[0], call.schema())
        return self._described(call.names[0], version)

    async def _look_up(self, call: _Call) -> Json:
        registry, name, deleted = self._service.registry, call.names[0], call.flag("deleted")
        registry.subject(name, with_deleted=deleted)
        schema = call.schema()
        await parse_schema(schema)
        schema_id = await asyncio.to_thread(registry.find, schema)
        return self._described(name, registry.version_with(name, schema_id, with_deleted=deleted))

    async def _delete_subject(self, call: _Call) -> Json:
        return await self._service.delete_subject(call.names[0], permanently=call.flag("permanent"))

    async def _delete_version(self, call: _Call) -> Json:
        name, number = call.names
        return await self._service.delete_version(name, _number(number), permanently=call.flag("permanent"))

    def _described(self, name: str, version: Version) -> Json:
        schema = self._service.registry.schema(version.schema_id)
        return _with_type({"subject": name, "id": version.schema_id, "version": version.number}, schema)

    # ------------------------------------------------------------------ compatibility

    async def _compare(self, call: _Call) -> Json:
        return await self._compared(call, [self._asked(call)])

    async def _compare_all(self, call: _Call) -> Json:
        return await self._compared(call, None)

    async def _compared(self, call: _Call, against: list[Version] | None) -> Json:
        schema = call.schema()
        await parse_schema(schema)
        reasons = await self._service.incompatibilities(call.names[0], schema, against)
        found: dict[str, Json] = {"is_compatible": not reasons}
        if call.flag("verbose"):
            found["messages"] = reasons
        return found

    async def _level(self, call: _Call) -> Json:
        return {"compatibilityLevel": self._service.registry.compatibility}

    async def _subject_level(self, call: _Call) -> Json:
        name = call.names[0]
        subject = self._service.registry.subjects.get(name)
        if subject is not None and subject.compatibility is not None:
            return {"compatibilityLevel": subject.compatibility}
        if call.flag("defaultToGlobal"):
            return await self._level(call)
        raise RegistryError(40408, f"Subject '{name}' does not have subject-level compatibility configured")

    async def _set_level(self, call: _Call) -> Json:
        level = check_level(_decoded(call.body, LevelBody).compatibility)
        await self._service.set_level(call.names[0] if call.names else None, level)
        return {"compatibility": level}

    async def _reset_level(self, call: _Call) -> Json:
        registry = self._service.registry
        was = registry.level(call.names[0]) if call.names else registry.compatibility
        await self._service.set_level(call.names[0] if call.names else None, None)
        return {"compatibilityLevel": was}

    async def _mode(self, call: _Call) -> Json:
        return {"mode": "READWRITE"}


def _with_type(found: dict[str, Json], schema: Schema) -> Json:
    """A schema in an answer. The type is left out for Avro."""
    if schema.type != "AVRO":
        found["schemaType"] = schema.type
    return {**found, "schema": schema.text}


def _error(code: int, message: str) -> Answer:
    status = code if code < 1_000 else code // 100
    return Answer(status, msgspec.json.encode({"error_code": code, "message": message}))
