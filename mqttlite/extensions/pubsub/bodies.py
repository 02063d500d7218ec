"""Google's JSON: what requests hold, and how messages are written. Subscriptions are in `subscription_bodies`.

Bytes are in base64. Invariant: a member that the broker cannot do is refused by its name.
"""

from typing import Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from mqttlite.extensions.pubsub.proto_json import decode
from mqttlite.extensions.queues.limits import MAX_ACK_IDS
from mqttlite.extensions.queues.message_json import message_json
from mqttlite.extensions.queues.properties import ORDERING_KEY
from mqttlite.extensions.queues.service import Pulled
from mqttlite.gateway.problems import Code, Problem
from mqttlite.wire.properties import Properties

MAX_MESSAGES: Final = 1_000
"""Of one publish, as with Google."""

MAX_ATTRIBUTES: Final = 100
MAX_ATTRIBUTE_KEY_BYTES: Final = 256
MAX_ATTRIBUTE_BYTES: Final = 1_024
MAX_ORDERING_KEY_BYTES: Final = 1_024
"""Of one message, as with Google."""


T = TypeVar("T")


class PubsubMessage(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A message of a publish. What the broker assigns is read and not used, as with Google."""

    data: bytes = b""
    attributes: dict[str, str] = {}
    ordering_key: str = ""
    message_id: str = ""
    publish_time: str = ""


class PublishRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`:publish`."""

    messages: list[PubsubMessage] = []
    topic: str = ""


class PullRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`:pull`."""

    max_messages: int = 0
    return_immediately: bool = False
    subscription: str = ""


class AcknowledgeRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`:acknowledge`."""

    ack_ids: list[str] = []
    subscription: str = ""


class ModifyAckDeadlineRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`:modifyAckDeadline`."""

    ack_ids: list[str] = []
    ack_deadline_seconds: int | None = None
    subscription: str = ""


class TopicBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A topic that is to be made. `Any`: a member that is refused, unless it is empty."""

    name: str = ""
    labels: Any = None
    message_storage_policy: Any = None
    kms_key_name: Any = None
    schema_settings: Any = None
    message_retention_duration: Any = None
    ingestion_data_source_settings: Any = None
    message_transforms: Any = None
    tags: Any = None
    state: Any = None
    satisfies_pzs: bool = False


_TOPIC_REFUSALS: Final[dict[str, str]] = {
    "labels": "labels are not kept",
    "message_storage_policy": "a broker is in one place",
    "kms_key_name": "messages are on disk as they are",
    "schema_settings": "bind a schema to the topic by a topic policy (PATCH /api/v1/topics/{topic_id})",
    "message_retention_duration": "subscriptions keep messages, and topics do not",
    "ingestion_data_source_settings": "there is no ingestion",
    "message_transforms": "there are no transforms",
    "tags": "tags are not kept",
}


def answer(body: object) -> Response:
    """A body of Google's as an answer."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def decoded(body: bytes, kind: type[T]) -> T:
    """The body of a request; an empty one has no members. Raises `Problem`."""
    try:
        return decode(body or b"{}", kind)
    except msgspec.ValidationError as error:
        raise Problem(Code.INVALID_VALUE, f"the body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(Code.BAD_REQUEST, f"the body is no JSON: {error}") from None


def invalid(detail: str) -> Problem:
    """A value that may not be."""
    return Problem(Code.INVALID_VALUE, detail)


def refuse(body: msgspec.Struct, refusals: dict[str, str]) -> None:
    """Raises `Problem` for a member that the broker cannot do."""
    for name, reason in refusals.items():
        if getattr(body, name):
            raise Problem(Code.NOT_AVAILABLE, f"{camel(name)}: {reason}")


def camel(name: str) -> str:
    """A member's name in JSON."""
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


def check_messages(messages: list[PubsubMessage]) -> None:
    """Raises `Problem` for what Google refuses to publish."""
    if not 1 <= len(messages) <= MAX_MESSAGES:
        raise invalid(f"messages has {len(messages)} messages: 1 to {MAX_MESSAGES} are meant")
    for at, message in enumerate(messages):
        if not message.data and not message.attributes:
            raise invalid(f"messages[{at}] has neither data nor attributes: it needs one of them")
        if len(message.attributes) > MAX_ATTRIBUTES:
            raise invalid(f"messages[{at}] has {len(message.attributes)} attributes: {MAX_ATTRIBUTES} at most")
        for key, value in message.attributes.items():
            if not 1 <= _size(key) <= MAX_ATTRIBUTE_KEY_BYTES or key.startswith("goog"):
                raise invalid(
                    f"messages[{at}] has an attribute {key[:80]!r}: its name has 1 to {MAX_ATTRIBUTE_KEY_BYTES} bytes "
                    "and does not begin with goog"
                )
            if key == ORDERING_KEY:
                raise invalid(f"messages[{at}] has an attribute {ORDERING_KEY}: write it as orderingKey")
            if _size(value) > MAX_ATTRIBUTE_BYTES:
                raise invalid(f"messages[{at}].attributes[{key!r}] has more than {MAX_ATTRIBUTE_BYTES} bytes")
        if _size(message.ordering_key) > MAX_ORDERING_KEY_BYTES:
            raise invalid(f"messages[{at}].orderingKey has more than {MAX_ORDERING_KEY_BYTES} bytes")
        if message.ordering_key != messages[0].ordering_key:
            raise invalid("the messages have several values of orderingKey: one request has one")


def properties_of(message: PubsubMessage) -> Properties:
    """Attributes and ordering key as user properties."""
    pairs = list(message.attributes.items())
    if message.ordering_key:
        pairs.append((ORDERING_KEY, message.ordering_key))
    return Properties(user_properties=pairs)


def received(pulled: Pulled) -> dict[str, Any]:
    """A `ReceivedMessage`."""
    return {"ackId": pulled.ack_id, "message": message_json(pulled.message), "deliveryAttempt": pulled.attempt}


def check_ack_ids(ack_ids: list[str]) -> None:
    """Raises `Problem`."""
    if not 1 <= len(ack_ids) <= MAX_ACK_IDS:
        raise invalid(f"ackIds has {len(ack_ids)} ids: 1 to {MAX_ACK_IDS} are meant")


def check_topic(body: TopicBody) -> None:
    """Raises `Problem` for what a topic cannot have."""
    refuse(body, _TOPIC_REFUSALS)


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
