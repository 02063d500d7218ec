"""The schema of a topic policy: says of each message whether its payload is what the schema says, and counts and logs
those that are not.

The schema that a message was written with is a version of the policy's subject. The user property `schema-id` names
it, or the first bytes of the payload do (0 and the schema's id in four bytes, as Confluent's clients write them); else
it is the version that the policy names, or the latest. Invariant: a message is read with one schema, or with none.
"""

import logging
import time
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple, final

from mqttlite.core.payload_check import PayloadViolation
from mqttlite.core.source import Source
from mqttlite.extensions.schemas.parsed import ParsedSchema, SchemaError, SchemaType, printable
from mqttlite.extensions.schemas.registry import LATEST, Registry, RegistryError, parse_reference
from mqttlite.extensions.schemas.service import SchemaRegistry
from mqttlite.wire.properties import NONE, Properties

PROPERTY: Final = "schema-id"
"""The user property that names the schema of a message: its id, or `subject:version`."""

LOG_EVERY_S: Final = 10.0
"""A policy logs one message in this time, and how many there were since the last one."""

FRAME_BYTES: Final = 5
"""A byte 0, and the id of the schema."""

PAYLOAD_FORMAT_INVALID: Final = 0x99
IMPLEMENTATION_SPECIFIC: Final = 0x83
"""Where the payload is wrong, and where the schema is."""

OnViolation = Literal["reject", "dead_letter", "count"]

_DONE: Final[dict[OnViolation, str]] = {
    "reject": "schema_invalid, dropped",
    "dead_letter": "schema_invalid, kept from subscribers",
    "count": "schema_invalid, let through",
}

_log = logging.getLogger("mqttlite.schemas")


class _Known(NamedTuple):
    """What a policy names, in one state of the registry."""

    registry: Registry
    titles: Mapping[int, str]
    """`subject:version` of each schema that messages may be written with, by id."""
    ids: Mapping[str, int]
    """The id of each, by what `schema-id` may say."""
    default_id: int
    default: ParsedSchema


class _Violated(Exception):
    """Why a message is not right."""

    def __init__(self, reason: str, code: int = PAYLOAD_FORMAT_INVALID) -> None:
        super().__init__(printable(reason))
        self.code: Final = code


@final
class TopicSchema:
    """A `PayloadCheck` for the topics of one policy. `clock` gives seconds."""

    def __init__(
        self,
        registry: SchemaRegistry,
        reference: str,
        on_violation: OnViolation,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry: Final = registry
        self.reference: Final = parse_reference(reference)
        self.on_violation: Final[OnViolation] = on_violation
        self.violations: int = 0
        self._clock: Final = clock
        self._logged_at = -LOG_EVERY_S
        self._logged = 0
        self._known: _Known | None = None

    def violation(
        self, source: Source, topic: bytes, payload: bytes, properties: Properties
    ) -> PayloadViolation | None:
        try:
            known = self._current()
            if properties is NONE and payload[:1] != b"\0" and not known.default.fault(payload):
                return None  # the short way, which most messages take
            self._check(known, payload, properties)
        except _Violated as violated:
            self.violations += 1
            self._note(source, topic, str(violated))
            if self.on_violation == "count":
                return None
            is_kept = self.on_violation == "dead_letter" and violated.code == PAYLOAD_FORMAT_INVALID
            return PayloadViolation(violated.code, str(violated), is_kept)
        return None

    def look(self, payload: bytes, properties: Properties) -> PayloadViolation | None:
        try:
            self._check(self._current(), payload, properties)
        except _Violated as violated:
            return PayloadViolation(0 if self.on_violation == "count" else violated.code, str(violated))
        return None

    def _current(self) -> _Known:
        """What holds in the state of the registry. Raises `_Violated`."""
        known = self._known
        if known is None or known.registry is not self._registry.registry:
            known = self._known = self._look_up()
        return known

    def prepare(self) -> str:
        """Do now what the first message would wait for, in a thread; why messages will be refused, or nothing."""
        try:
            self._known = self._look_up()
        except _Violated as violated:
            return str(violated)
        return ""

    def _check(self, known: _Known, payload: bytes, properties: Properties) -> None:
        """Raises `_Violated`."""
        if properties.payload_format_indicator == 1 and not _is_utf8(payload):
            raise _Violated("the payload says that it is UTF-8, and is not")
        named_id = self._named_id(known, properties)
        framed_id = int.from_bytes(payload[1:FRAME_BYTES], "big") if payload[:1] == b"\0" else 0
        is_framed = framed_id in known.titles and len(payload) >= FRAME_BYTES and named_id in (0, framed_id)
        used_id = framed_id if is_framed else named_id or known.default_id
        schema_type = known.registry.schemas[used_id].type
        _check_content_type(properties.content_type, schema_type)
        if framed_id and not is_framed and schema_type == "JSON":
            raise _Violated(f"the payload begins with the schema id {framed_id}: another one than {self.reference} has")
        fault = self._parsed(known, used_id).fault(payload[FRAME_BYTES:] if is_framed else payload)
        if fault and is_framed and schema_type == "AVRO":  # a payload without frame may begin with the same bytes
            fault = self._parsed(known, named_id or known.default_id).fault(payload) and fault
        if fault:
            raise _Violated(f"{fault}, by the schema {known.titles[used_id]}")

    def _named_id(self, known: _Known, properties: Properties) -> int:
        """The id of the schema that the user property names; 0 where there is none. Raises `_Violated`."""
        for name, value in properties.user_properties:
            if name == PROPERTY:
                named_id = known.ids.get(value)
                if named_id is None:
                    raise _Violated(f"{PROPERTY} is {printable(value, 100)!r}: {self.reference} has no such schema")
                return named_id
        return 0

    def _parsed(self, known: _Known, schema_id: int) -> ParsedSchema:
        if schema_id == known.default_id:
            return known.default
        try:
            return self._registry.parsed(schema_id)
        except SchemaError as error:
            raise _Violated(f"the schema {schema_id} cannot be used: {error}", IMPLEMENTATION_SPECIFIC) from None

    def _look_up(self) -> _Known:
        """Raises `_Violated`."""
        registry = self._registry.registry
        subject, number = self.reference
        try:
            default = registry.version(subject, LATEST if number is None else number)
            parsed = self._registry.parsed(default.schema_id)
        except RegistryError:
            reason = f"the topic has the schema {self.reference}, which is not registered"
            raise _Violated(reason, IMPLEMENTATION_SPECIFIC) from None
        except SchemaError as error:
            reason = f"the schema {self.reference} cannot be used: {error}"
            raise _Violated(reason, IMPLEMENTATION_SPECIFIC) from None
        versions = registry.subject(subject).live() if number is None else [default]
        titles = {each.schema_id: f"{subject}:{each.number}" for each in versions}
        ids = {str(each.schema_id): each.schema_id for each in versions}
        ids |= {f"{subject}:{each.number}": each.schema_id for each in versions}
        return _Known(registry, titles, ids, default.schema_id, parsed)

    def _note(self, source: Source, topic: bytes, reason: str) -> None:
        now = self._clock()
        if now - self._logged_at < LOG_EVERY_S:
            return
        more = self.violations - self._logged - 1
        _log.warning(
            "%s: a message of %s to %s: %s%s",
            _DONE[self.on_violation],
            f"client {source.client_id!r}" if source.client_id else "the program",
            printable(topic.decode("utf-8", "replace"), 200),
            reason,
            f" ({more} more since the last line)" if more else "",
            extra={"fields": {"client_id": source.client_id or None, "schema": str(self.reference)}},
        )
        self._logged_at, self._logged = now, self.violations


def _check_content_type(content_type: str | None, schema_type: SchemaType) -> None:
    """Raises `_Violated` for a content type that says that the payload is something else."""
    if content_type is None:
        return
    kind = content_type.partition(";")[0].strip().lower()
    if schema_type.lower() not in kind and kind != "application/octet-stream":
        raise _Violated(f"Content Type is {printable(content_type, 100)!r}: the schema is {schema_type}")


def _is_utf8(payload: bytes) -> bool:
    try:
        payload.decode()
    except UnicodeDecodeError:
        return False
    return True


@final
class TopicSchemas:
    """Makes the checks of the topic policies. Rules that are read again get the checks that they had, and their
    counters."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry: Final = registry
        self._checks: Final[dict[tuple[str, OnViolation], TopicSchema]] = {}

    def check(self, reference: str, on_violation: OnViolation) -> TopicSchema:
        """The check of a policy; policies with the same schema share it."""
        key = (reference, on_violation)
        if key not in self._checks:
            self._checks[key] = TopicSchema(self._registry, reference, on_violation)
        return self._checks[key]

    def prepare(self) -> list[str]:
        """As that of each check: what is not as it should be."""
        return [problem for problem in (check.prepare() for check in list(self._checks.values())) if problem]

    def violations(self) -> dict[tuple[str, str], int]:
        """Messages that were not what their schema says, by the schema and what was done."""
        return {(str(each.reference), each.on_violation): each.violations for each in self._checks.values()}
