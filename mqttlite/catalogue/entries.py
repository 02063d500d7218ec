"""The catalogue: an entry for each topic policy, and for each topic made over HTTP.

Invariant: entries are values, in the order of their topics; making them needs no broker that runs.
"""

from collections.abc import Iterable, Sequence

import msgspec

from mqttlite.delivery.schemas.parsed import SchemaType
from mqttlite.delivery.schemas.registry import LATEST, Registry, RegistryError
from mqttlite.delivery.schemas.topic_schema import parse_reference
from mqttlite.security.topic_policies import Access, TopicPolicyOptions
from mqttlite.security.topic_records import TopicRecord


class SchemaEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The schema with which messages are read that name none."""

    subject: str
    version: int
    id: int
    type: SchemaType


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


def catalogue(policies: Sequence[TopicPolicyOptions], topics: Iterable[TopicRecord], registry: Registry) -> list[Entry]:
    """All entries."""
    entries = [_entry(each, each.description, None, registry) for each in policies]
    entries += [_entry(each.policy(), each.description, each.topic_id, registry) for each in topics]
    return sorted(entries, key=lambda entry: (entry.topics, entry.topic_id or ""))


def _entry(policy: TopicPolicyOptions, description: str, topic_id: str | None, registry: Registry) -> Entry:
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
        schema_in_use=_schema(policy.schema, registry) if policy.schema else None,
        topic_id=topic_id,
    )


def _schema(reference: str, registry: Registry) -> SchemaEntry | None:
    subject, number = parse_reference(reference)
    try:
        version = registry.version(subject, LATEST if number is None else number)
    except RegistryError:
        return None
    schema_type = registry.schema(version.schema_id).type
    return SchemaEntry(subject=subject, version=version.number, id=version.schema_id, type=schema_type)
