"""Topics made over HTTP, each with an owner and a policy, and how many of them there may be.

`gateway.topics` makes and changes them, `topic_file` keeps them; the rules hold them as policies of single topics, also
while there is no gateway. Invariant: a record that is here says nothing that contradicts itself.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from mqttlite.security.topic_policies import Access, TopicClass, TopicPolicyOptions
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import TopicNameInvalid

MAX_TOPICS: Final = 10_000
"""As many as there may be policies: rules for more are made too slowly to hold within a second."""

MAX_TOPIC_BYTES: Final = 262_144
"""Of one topic, as JSON: a thousand members whose names are long."""

MAX_TOPICS_BYTES: Final = 67_108_864
"""Of all topics, as JSON."""

MAX_OWNED_TOPICS: Final = 1_000
"""Of one owner that is no admin."""

MAX_OWNED_BYTES: Final = 4_194_304
"""The same, as JSON: the rules are made again for each change, and hold all members."""

MAX_MEMBERS: Final = 1_000
"""Of one topic; for more there are groups in the configuration."""

MAX_GROUPS: Final = 100
"""Of one topic."""

MAX_TEXT: Final = 1_000
"""Characters of a description."""

DEFAULT_RETENTION_DAYS: Final = 7
MAX_RETENTION_DAYS: Final = 31
"""As of subscriptions of Google Pub/Sub."""


class TopicRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One topic. Raises `ValueError` for values that do not go together."""

    topic_id: str
    name: str
    owner: str | None = None
    """The user who made it; None: somebody without a user name."""
    permissions: Access = "PUBLIC"
    members: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    topic_class: TopicClass = msgspec.field(default="standard", name="class")
    ttl_s: int = 0
    min_qos: int = 0
    max_qos: int = 2
    max_payload_bytes: int = 0
    presence: bool = False
    tell_publisher: bool = False
    description: str = ""
    payload_schema: str = msgspec.field(default="", name="schema")
    """A subject of the schema registry, or `subject:version`."""
    message_retention_days: int = DEFAULT_RETENTION_DAYS
    """How long its subscriptions keep messages that nobody acknowledges, unless they say something else."""
    created_at: float
    """In seconds since 1970."""

    def __post_init__(self) -> None:
        try:
            name = self.name.encode()
        except UnicodeEncodeError:
            raise ValueError("name is no UTF-8") from None
        try:
            check_name(name)
        except TopicNameInvalid as error:
            raise ValueError(str(error)) from None
        if self.name.startswith("$"):
            raise ValueError(f"name is {self.name[:80]!r}: topics that begin with $ are the broker's")
        for what, names, most in (("members", self.members, MAX_MEMBERS), ("groups", self.groups, MAX_GROUPS)):
            if len(names) > most:
                raise ValueError(f"{what} has {len(names)} names: {most} at most")
            if not all(0 < len(each) <= MAX_TEXT for each in names):
                raise ValueError(f"{what} has a name that is empty, or longer than {MAX_TEXT} characters")
        if not 1 <= self.message_retention_days <= MAX_RETENTION_DAYS:
            raise ValueError(f"message_retention_days is {self.message_retention_days}: 1 to {MAX_RETENTION_DAYS}")
        if len(self.description) > MAX_TEXT:
            raise ValueError(f"description has {len(self.description)} characters: {MAX_TEXT} at most")
        if self.owner is None and self.permissions != "PUBLIC":
            raise ValueError(f"permissions is {self.permissions}: a topic that nobody owns is PUBLIC; log in first")
        self.policy()

    def policy(self) -> TopicPolicyOptions:
        """What holds for its messages. Raises `ValueError`."""
        return TopicPolicyOptions(
            filter=self.name,
            access=self.permissions,
            owner=self.owner or "",
            members=self.members,
            groups=self.groups,
            topic_class=self.topic_class,
            ttl_s=self.ttl_s,
            min_qos=self.min_qos,
            max_qos=self.max_qos,
            max_payload_bytes=self.max_payload_bytes,
            schema=self.payload_schema,
            presence=self.presence,
            tell_publisher=self.tell_publisher,
        )

    @property
    def is_plain(self) -> bool:
        """Whether nothing holds for it that does not hold for every topic."""
        return (
            *(self.permissions == "PUBLIC", self.topic_class == "standard", not self.ttl_s, not self.min_qos),
            *(self.max_qos == 2, not self.max_payload_bytes, not self.payload_schema, not self.presence),
            not self.tell_publisher,
        ) == (True,) * 9


class TopicFileError(ValueError):
    """Which file cannot be used, why, and what to do."""


def policies_of(topics: Iterable[TopicRecord]) -> list[TopicPolicyOptions]:
    """The policies that the rules have to hold."""
    return [topic.policy() for topic in topics if not topic.is_plain]
