"""The catalogue: an entry for each topic policy, and for each topic made over HTTP.

Invariant: entries are values, in the order of their topics; making them needs no broker that runs.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol

import msgspec

from mqttlite.security.topic_policies import Access, TopicPolicyOptions
from mqttlite.security.topic_records import TopicRecord


class SchemaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The schema with which messages are read that name none."""

    subject: str
    version: int
    id: int
    type: Literal["AVRO", "JSON"]


class Lookup(Protocol):
    """The registered schemas."""

    def in_use(self, reference: str) -> SchemaEntry | None:
        """The schema that a topic policy names; None if it is not registered."""
        ...

    def text(self, schema_id: int) -> str: ...


class NoSchemas:
    """The `Lookup` of a broker without schemas."""

    def in_use(self, reference: str) -> SchemaEntry | None:
        return None

    def text(self, schema_id: int) -> str:
        raise LookupError(schema_id)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Topics with one policy."""

    topics: str
    """As a topic filter."""
    description: str
    owner: str | None
    access: Access
    topic_class: str = msgspec.field(name="class")
    min_qos: int
    max_qos: int
    max_payload_bytes: int
    ttl_s: int
    schema: str | None
    """The schema that the policy names: a subject, or `subject:version`."""
    schema_in_use: SchemaEntry | None
    """None where there is no schema, or it is not registered."""
    topic_id: str | None
    """Of a topic made over HTTP; None: the configuration has it."""


def catalogue(policies: Sequence[TopicPolicyOptions], topics: Iterable[TopicRecord], schemas: Lookup) -> list[Entry]:
    """All entries."""
    entries = [_entry(each, each.description, None, schemas) for each in policies]
    entries += [_entry(each.policy(), each.description, each.topic_id, schemas) for each in topics]
    return sorted(entries, key=lambda entry: (entry.topics, entry.topic_id or ""))


def _entry(policy: TopicPolicyOptions, description: str, topic_id: str | None, schemas: Lookup) -> Entry:
    return Entry(
        topics=policy.topic_filter().decode(),
        description=description,
        owner=policy.owner or None,
        access=policy.access,
        topic_class=policy.topic_class,
        min_qos=policy.min_qos,
        max_qos=policy.max_qos,
        max_payload_bytes=policy.max_payload_bytes,
        ttl_s=policy.ttl_s,
        schema=policy.schema or None,
        schema_in_use=schemas.in_use(policy.schema) if policy.schema else None,
        topic_id=topic_id,
    )
