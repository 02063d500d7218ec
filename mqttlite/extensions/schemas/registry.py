"""What a registry holds, and which schema may follow which: subjects, their versions, and compatibility levels.

The words and the error codes are those of Confluent's Schema Registry. A `Registry` is a value: each change gives
another one, which `service` keeps. Invariant: a version that is there was compatible when it was registered.
"""

import json
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple, final

import msgspec

from mqttlite.catalogue.entries import SchemaEntry
from mqttlite.extensions.schemas.parsed import SCHEMA_TYPES, SchemaType, decode_json

Compatibility = Literal[
    "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"
]

LEVELS: Final[tuple[Compatibility, ...]] = (
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
    "NONE",
)

MAX_SUBJECTS: Final = 10_000
"""As many as there may be topic policies."""

MAX_VERSIONS: Final = 1_000
"""Of one subject, deleted ones too: a check against all takes about a second."""

MAX_BYTES: Final = 32 * 1_048_576
"""Of all schemas: they are in memory, and one file."""

MAX_NAME: Final = 255
"""Characters of a subject's name."""

LATEST: Final = -1
"""Stands for the latest version."""


class RegistryError(Exception):
    """A request that cannot be served. The first three digits of the code are the HTTP status."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code: Final = code


class Schema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text with an id, whichever subjects have it."""

    type: SchemaType
    text: str


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: int
    schema_id: int
    is_deleted: bool = False
    """Whether it was deleted, but not for good."""


class Subject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    compatibility: Compatibility | None = None
    """None: that of the registry."""
    versions: tuple[Version, ...] = ()
    """By number."""

    def live(self) -> list[Version]:
        """The versions that are not deleted."""
        return [each for each in self.versions if not each.is_deleted]


NO_SUBJECT: Final = Subject()


class Reference(NamedTuple):
    """What a policy names: a subject, and a version of it, or None for the latest."""

    subject: str
    version: int | None

    def __str__(self) -> str:
        return self.subject if self.version is None else f"{self.subject}:{self.version}"


def parse_reference(text: str) -> Reference:
    """`subject` or `subject:version`."""
    subject, colon, version = text.rpartition(":")
    if colon and version.isascii() and version.isdecimal():
        return Reference(subject, int(version[:18]))
    return Reference(text, None)


@final
class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All schemas."""

    next_id: int = 1
    compatibility: Compatibility = "BACKWARD"
    schemas: dict[int, Schema] = {}
    subjects: dict[str, Subject] = {}

    # ------------------------------------------------------------------ look-ups

    def schema(self, schema_id: int) -> Schema:
        """Raises `RegistryError`."""
        found = self.schemas.get(schema_id)
        if found is None:
            raise RegistryError(40403, f"Schema {schema_id} not found")
        return found

    def subject(self, name: str, *, with_deleted: bool = False) -> Subject:
        """A subject that has versions. Raises `RegistryError`."""
        found = self.subjects.get(name, NO_SUBJECT)
        if not (found.versions if with_deleted else found.live()):
            raise RegistryError(40401, f"Subject '{name}' not found.")
        return found

    def version(self, name: str, number: int, *, with_deleted: bool = False) -> Version:
        """A version, or the latest one. Raises `RegistryError`."""
        subject = self.subject(name, with_deleted=with_deleted)
        versions = subject.versions if with_deleted else subject.live()
        if number == LATEST:
            return versions[-1]
        for each in versions:
            if each.number == number:
                return each
        raise RegistryError(40402, f"Version {number} not found.")

    def in_use(self, reference: str) -> SchemaEntry | None:
        """Implements `catalogue.entries.Lookup`."""
        subject, number = parse_reference(reference)
        try:
            version = self.version(subject, LATEST if number is None else number)
        except RegistryError:
            return None
        schema = self.schema(version.schema_id)
        return SchemaEntry(subject=subject, version=version.number, id=version.schema_id, type=schema.type)

    def text(self, schema_id: int) -> str:
        """Implements `catalogue.entries.Lookup`."""
        return self.schema(schema_id).text

    def uses(self, schema_id: int, *, with_deleted: bool = False) -> Iterator[tuple[str, int]]:
        """The subjects and versions that have a schema."""
        for name, subject in self.subjects.items():
            for each in subject.versions:
                if each.schema_id == schema_id and (with_deleted or not each.is_deleted):
                    yield name, each.number

    def level(self, name: str) -> Compatibility:
        """The compatibility level of a subject, whether it exists or not."""
        return self.subjects.get(name, NO_SUBJECT).compatibility or self.compatibility

    def find(self, schema: Schema) -> int | None:
        """The id of a schema; how it is written plays no part."""
        if schema in self.schemas.values():
            return next(number for number, each in self.schemas.items() if each == schema)
        wanted = normal_form(schema)
        for number, each in self.schemas.items():
            if each.type == schema.type and normal_form(each) == wanted:
                return number
        return None

    def version_with(self, name: str, schema_id: int | None, *, with_deleted: bool = False) -> Version:
        """The latest version of a subject that has a schema. Raises `RegistryError`."""
        for each in reversed(self.subject(name, with_deleted=with_deleted).versions):
            if each.schema_id == schema_id and (with_deleted or not each.is_deleted):
                return each
        raise RegistryError(40403, "Schema not found")

    def before(self, name: str) -> list[Version]:
        """The versions of a subject that a new one must go with, the latest first."""
        versions = self.subjects.get(name, NO_SUBJECT).live()[::-1]
        level = self.level(name)
        if level == "NONE":
            return []
        return versions if level.endswith("_TRANSITIVE") else versions[:1]

    # ------------------------------------------------------------------ changes

    def register(self, name: str, schema: Schema) -> "tuple[Registry, Version]":
        """Make a schema the next version of a subject, unless it is one already. Raises `RegistryError`."""
        check_name(name)
        subject = self.subjects.get(name, NO_SUBJECT)
        schema_id = self.find(schema)
        for each in subject.live():
            if each.schema_id == schema_id:
                return self, each
        if name not in self.subjects and len(self.subjects) >= MAX_SUBJECTS:
            raise RegistryError(50701, f"There are {MAX_SUBJECTS} subjects, which is the limit.")
        if len(subject.versions) >= MAX_VERSIONS:
            raise RegistryError(50702, f"Subject '{name}' has {MAX_VERSIONS} versions, which is the limit.")
        schemas, next_id = self.schemas, self.next_id
        if schema_id is None:
            size = sum(len(each.text) for each in schemas.values()) + len(schema.text)
            if size > MAX_BYTES:
                raise RegistryError(50703, f"All schemas together may have {MAX_BYTES} characters.")
            schema_id, next_id = next_id, next_id + 1
            schemas = {**schemas, schema_id: schema}
        version = Version(subject.versions[-1].number + 1 if subject.versions else 1, schema_id)
        changed = msgspec.structs.replace(subject, versions=(*subject.versions, version))
        return Registry(next_id, self.compatibility, schemas, {**self.subjects, name: changed}), version

    def delete_subject(self, name: str, *, permanently: bool) -> "tuple[Registry, list[int]]":
        """Delete the versions of a subject; the numbers of those that were. Raises `RegistryError`."""
        subject = self.subject(name, with_deleted=permanently)
        if not permanently:
            versions = tuple(Version(each.number, each.schema_id, True) for each in subject.versions)
            return self._with(name, Subject(subject.compatibility, versions)), [each.number for each in subject.live()]
        if subject.live():
            raise RegistryError(40405, f"Subject '{name}' was not deleted first before being permanently deleted")
        subjects = {key: each for key, each in self.subjects.items() if key != name}
        changed = Registry(self.next_id, self.compatibility, self.schemas, subjects)
        return changed._without_unused(), [each.number for each in subject.versions]

    def delete_version(self, name: str, number: int, *, permanently: bool) -> "tuple[Registry, int]":
        """Delete a version; its number. Raises `RegistryError`."""
        subject = self.subject(name, with_deleted=permanently)
        version = self.version(name, number, with_deleted=permanently)
        if permanently and not version.is_deleted:
            raise RegistryError(
                40407,
                f"Subject '{name}' Version {version.number} was not deleted first before being permanently deleted",
            )
        gone = Version(version.number, version.schema_id, True)
        versions = tuple(
            gone if each is version else each for each in subject.versions if not (permanently and each is version)
        )
        if versions or subject.compatibility:
            changed = self._with(name, Subject(subject.compatibility, versions))
        else:
            subjects = {key: each for key, each in self.subjects.items() if key != name}
            changed = Registry(self.next_id, self.compatibility, self.schemas, subjects)
        return changed._without_unused(), version.number

    def with_level(self, name: str | None, level: Compatibility | None) -> "Registry":
        """Set the level of a subject, of which there need not be a version yet, or of the registry."""
        if name is None:
            return msgspec.structs.replace(self, compatibility=level or "BACKWARD")
        check_name(name)
        subject = self.subjects.get(name)
        if subject is None and len(self.subjects) >= MAX_SUBJECTS:
            raise RegistryError(50701, f"There are {MAX_SUBJECTS} subjects, which is the limit.")
        versions = () if subject is None else subject.versions
        if not versions and level is None:
            subjects = {key: each for key, each in self.subjects.items() if key != name}
            return Registry(self.next_id, self.compatibility, self.schemas, subjects)
        return self._with(name, Subject(level, versions))

    def _with(self, name: str, subject: Subject) -> "Registry":
        return Registry(self.next_id, self.compatibility, self.schemas, {**self.subjects, name: subject})

    def _without_unused(self) -> "Registry":
        used = {each.schema_id for subject in self.subjects.values() for each in subject.versions}
        if len(used) == len(self.schemas):
            return self
        schemas = {number: each for number, each in self.schemas.items() if number in used}
        return Registry(self.next_id, self.compatibility, schemas, self.subjects)


def check_name(name: str) -> None:
    """Raises `RegistryError` for a name that no subject may have: `name:3` means a version of `name`."""
    tail = name.rpartition(":")[2] if ":" in name else ""
    if not name or len(name) > MAX_NAME or not name.isprintable() or (tail.isascii() and tail.isdecimal()):
        raise RegistryError(
            42208, f"The subject {name[:MAX_NAME]!r} is invalid: 1 to {MAX_NAME} printable characters, not 'name:3'."
        )


def check_type(name: str) -> SchemaType:
    """Raises `RegistryError`."""
    for each in SCHEMA_TYPES:
        if each == name:
            return each
    raise RegistryError(42201, f"Invalid schema type {name!r}: there are {' and '.join(SCHEMA_TYPES)}.")


def check_level(name: str) -> Compatibility:
    """Raises `RegistryError`."""
    for each in LEVELS:
        if each == name:
            return each
    raise RegistryError(42203, f"Invalid compatibility level {name!r}: there are {', '.join(LEVELS)}.")


def normal_form(schema: Schema) -> str:
    """The same for texts that differ in white space and the order of keys only."""
    return json.dumps(decode_json(schema.text), sort_keys=True, separators=(",", ":"))
