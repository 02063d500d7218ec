"""Google's JSON: what requests hold, and how messages and subscriptions are written.

Bytes are in base64, durations are `"10s"`. Invariant: a member that the broker cannot do is refused by its name.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.responses import Response

from mqttlite.delivery.filters import Filter, FilterError
from mqttlite.delivery.push.envelope import message_json
from mqttlite.delivery.push.target import PushTarget
from mqttlite.delivery.queues.limits import MAX_ACK_IDS
from mqttlite.delivery.queues.options import MAX_ATTEMPTS, MAX_DEADLINE_S, MIN_DEADLINE_S, QueueOptions, RetryOptions
from mqttlite.delivery.queues.properties import ORDERING_KEY
from mqttlite.delivery.queues.service import Pulled
from mqttlite.gateway.problems import Code, Problem
from mqttlite.gateway.pubsub.names import topic_of_resource, topic_resource
from mqttlite.wire.properties import Properties

MAX_MESSAGES: Final = 1_000
"""Of one publish, as with Google."""

MAX_ATTRIBUTES: Final = 100
MAX_ATTRIBUTE_KEY_BYTES: Final = 256
MAX_ATTRIBUTE_BYTES: Final = 1_024
MAX_ORDERING_KEY_BYTES: Final = 1_024
"""Of one message, as with Google."""

MIN_ATTEMPTS: Final = 5
"""Of a `deadLetterPolicy`, as with Google, and what it has without a number."""

MIN_RETENTION_S: Final = 600
MAX_RETENTION_S: Final = 31 * 86_400
MIN_TTL_S: Final = 86_400
MAX_TTL_S: Final = 366 * 86_400
MAX_BACKOFF_S: Final = 600
"""As with Google."""

VERSION: Final = ("x-goog-version", "v1")
"""The one attribute of a push configuration: the form of what is pushed."""

_AT_ONCE: Final = RetryOptions(min_s=0, max_s=0)
"""What Google does without a `retryPolicy`."""

_DURATION: Final = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)s")

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


class RetryPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    minimum_backoff: str = "10s"
    maximum_backoff: str = "600s"


class DeadLetterPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    max_delivery_attempts: int = 0
    dead_letter_topic: str = ""


class ExpirationPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    ttl: str = ""


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


class PushConfig(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Where messages are pushed to; without an endpoint they are pulled."""

    push_endpoint: str = ""
    attributes: dict[str, str] = {}
    no_wrapper: dict[str, Any] | None = None
    pubsub_wrapper: dict[str, Any] | None = None
    oidc_token: Any = None


class ModifyPushConfigRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """`:modifyPushConfig`."""

    push_config: PushConfig = PushConfig()
    subscription: str = ""


class SubscriptionBody(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A subscription that is to be made or changed. `Any`: as of a topic."""

    name: str = ""
    topic: str = ""
    ack_deadline_seconds: int = 0
    message_retention_duration: str = ""
    enable_message_ordering: bool = False
    retry_policy: RetryPolicy | None = None
    dead_letter_policy: DeadLetterPolicy | None = None
    expiration_policy: ExpirationPolicy | None = None
    filter: str = ""
    push_config: PushConfig | None = None
    bigquery_config: Any = None
    cloud_storage_config: Any = None
    bigtable_config: Any = None
    retain_acked_messages: bool = False
    labels: Any = None
    enable_exactly_once_delivery: Any = None
    message_transforms: Any = None
    tags: Any = None
    detached: Any = None
    state: Any = None
    topic_message_retention_duration: Any = None
    analytics_hub_subscription_info: Any = None


class UpdateSubscriptionRequest(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """PATCH of a subscription."""

    subscription: SubscriptionBody = SubscriptionBody()
    update_mask: str = ""


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

_SUBSCRIPTION_REFUSALS: Final[dict[str, str]] = {
    "bigquery_config": "there is no export to BigQuery",
    "cloud_storage_config": "there is no export to Cloud Storage",
    "bigtable_config": "there is no export to Bigtable",
    "labels": "labels are not kept",
    "enable_exactly_once_delivery": "delivery is at least once",
    "message_transforms": "there are no transforms",
    "tags": "tags are not kept",
    "detached": "subscriptions are not detached; delete the subscription",
}


def answer(body: object) -> Response:
    """A body of Google's as an answer."""
    return Response(msgspec.json.encode(body), media_type="application/json")


def decoded(body: bytes, kind: type[T]) -> T:
    """The body of a request; an empty one has no members. Raises `Problem`."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise Problem(Code.INVALID_VALUE, f"the body: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Problem(Code.BAD_REQUEST, f"the body is no JSON: {error}") from None


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def check_messages(messages: list[PubsubMessage]) -> None:
    """Raises `Problem` for what Google refuses to publish."""
    if not 1 <= len(messages) <= MAX_MESSAGES:
        raise _invalid(f"messages has {len(messages)} messages: 1 to {MAX_MESSAGES} are meant")
    for at, message in enumerate(messages):
        if not message.data and not message.attributes:
            raise _invalid(f"messages[{at}] has neither data nor attributes: it needs one of them")
        if len(message.attributes) > MAX_ATTRIBUTES:
            raise _invalid(f"messages[{at}] has {len(message.attributes)} attributes: {MAX_ATTRIBUTES} at most")
        for key, value in message.attributes.items():
            if not 1 <= _size(key) <= MAX_ATTRIBUTE_KEY_BYTES or key.startswith("goog"):
                raise _invalid(
                    f"messages[{at}] has an attribute {key[:80]!r}: its name has 1 to {MAX_ATTRIBUTE_KEY_BYTES} bytes "
                    "and does not begin with goog"
                )
            if key == ORDERING_KEY:
                raise _invalid(f"messages[{at}] has an attribute {ORDERING_KEY}: write it as orderingKey")
            if _size(value) > MAX_ATTRIBUTE_BYTES:
                raise _invalid(f"messages[{at}].attributes[{key!r}] has more than {MAX_ATTRIBUTE_BYTES} bytes")
        if _size(message.ordering_key) > MAX_ORDERING_KEY_BYTES:
            raise _invalid(f"messages[{at}].orderingKey has more than {MAX_ORDERING_KEY_BYTES} bytes")
        if message.ordering_key != messages[0].ordering_key:
            raise _invalid("the messages have several values of orderingKey: one request has one")


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
        raise _invalid(f"ackIds has {len(ack_ids)} ids: 1 to {MAX_ACK_IDS} are meant")


# ── topics and subscriptions ─────────────────────────────────────────────────────────────────────────────────────────


def check_topic(body: TopicBody) -> None:
    """Raises `Problem` for what a topic cannot have."""
    _refuse(body, _TOPIC_REFUSALS)


def options_of(body: SubscriptionBody) -> dict[str, Any]:
    """What of a queue's options a new subscription says. Raises `Problem`."""
    _refuse(body, _SUBSCRIPTION_REFUSALS)
    found: dict[str, Any] = {"ordering": body.enable_message_ordering, **_filter(body)}
    for read in _FIELDS.values():
        found.update(read(body))
    return found


def changes_of(request: UpdateSubscriptionRequest) -> dict[str, Any]:
    """What of a queue's options a change says. Raises `Problem`."""
    body = request.subscription
    _refuse(body, _SUBSCRIPTION_REFUSALS)
    mask = [each.partition(".")[0] for each in request.update_mask.split(",") if each]
    if not mask:
        raise _invalid("updateMask is missing: it names the members that are to be changed")
    found: dict[str, Any] = {}
    for member in mask:
        read = _FIELDS.get(member)
        if member == "filter":
            raise _invalid("filter: the filter of a subscription cannot be changed; make another subscription")
        if read is None:
            raise _invalid(f"updateMask has {member[:80]!r}: one of {', '.join(_FIELDS)} can be changed")
        found.update(read(body))
    return found


def subscription_json(name: str, topic: str, options: QueueOptions) -> dict[str, Any]:
    """A subscription, by its name and topic in Google's words."""
    found: dict[str, Any] = {
        "name": name,
        "topic": topic,
        "ackDeadlineSeconds": math.ceil(options.ack_deadline_s),
        "messageRetentionDuration": _duration_text(options.expiry_s),
        "expirationPolicy": {"ttl": _duration_text(options.idle_expiry_s)} if options.idle_expiry_s else {},
        "state": "ACTIVE",
    }
    if options.dead_letter:
        found["deadLetterPolicy"] = {"maxDeliveryAttempts": options.max_attempts}
        dead_letter_topic = topic_resource(options.dead_letter_topic)
        if dead_letter_topic:
            found["deadLetterPolicy"]["deadLetterTopic"] = dead_letter_topic
    if options.filter:
        found["filter"] = options.filter
    if options.retain_acked:
        found["retainAckedMessages"] = True
    if options.ordering:
        found["enableMessageOrdering"] = True
    if options.retry != _AT_ONCE:
        found["retryPolicy"] = {
            "minimumBackoff": _duration_text(options.retry.min_s),
            "maximumBackoff": _duration_text(options.retry.max_s),
        }
    if options.push is not None:
        found["pushConfig"] = _push_json(options.push)
    return found


def push_of(config: PushConfig | None) -> dict[str, Any]:
    """What of a queue's options a push configuration says. Raises `Problem`."""
    if config is None:
        return {"push": None}
    if config.oidc_token:
        raise Problem(
            Code.NOT_AVAILABLE,
            "pushConfig.oidcToken: there are no tokens; requests are signed (docs/howto/webhooks.md)",
        )
    for name, value in config.attributes.items():
        if (name, value) != VERSION:
            raise Problem(Code.NOT_AVAILABLE, f"pushConfig.attributes has {name[:80]!r}: x-goog-version is v1")
    if config.no_wrapper and any(config.no_wrapper.values()):
        raise Problem(
            Code.NOT_AVAILABLE, "pushConfig.noWrapper.writeMetadata: metadata is in the wrapper; leave it out, or false"
        )
    if not config.push_endpoint:
        if config.attributes or config.no_wrapper is not None or config.pubsub_wrapper is not None:
            raise _invalid("pushConfig.pushEndpoint is missing")
        return {"push": None}
    try:
        return {"push": PushTarget(url=config.push_endpoint, wrapper=config.no_wrapper is None)}
    except ValueError as error:
        raise _invalid(f"pushConfig.pushEndpoint: {error}") from None


def _push_json(target: PushTarget) -> dict[str, Any]:
    found: dict[str, Any] = {"pushEndpoint": target.url, "attributes": dict((VERSION,))}
    if not target.wrapper:
        found["noWrapper"] = {"writeMetadata": False}
    return found


def _push(body: SubscriptionBody) -> dict[str, Any]:
    return push_of(body.push_config)


def _deadline(body: SubscriptionBody) -> dict[str, Any]:
    seconds = body.ack_deadline_seconds or MIN_DEADLINE_S
    if not MIN_DEADLINE_S <= seconds <= MAX_DEADLINE_S:
        raise _invalid(f"ackDeadlineSeconds is {seconds:g}: it may be {MIN_DEADLINE_S:g} to {MAX_DEADLINE_S:g}, or 0")
    return {"ack_deadline_s": float(seconds)}


def _retention(body: SubscriptionBody) -> dict[str, Any]:
    text = body.message_retention_duration
    seconds = 7 * 86_400 if not text else math.ceil(_seconds(text, "messageRetentionDuration"))
    if not MIN_RETENTION_S <= seconds <= MAX_RETENTION_S:
        raise _invalid(f"messageRetentionDuration is {text}: it may be {MIN_RETENTION_S}s to {MAX_RETENTION_S}s")
    return {"expiry_s": seconds}


def _retain_acked(body: SubscriptionBody) -> dict[str, Any]:
    return {"retain_acked": body.retain_acked_messages}


def _retry(body: SubscriptionBody) -> dict[str, Any]:
    policy = body.retry_policy
    if policy is None:
        return {"retry": _AT_ONCE}
    min_s = _seconds(policy.minimum_backoff, "retryPolicy.minimumBackoff")
    max_s = _seconds(policy.maximum_backoff, "retryPolicy.maximumBackoff")
    if not min_s <= max_s <= MAX_BACKOFF_S:
        raise _invalid(
            f"retryPolicy has {policy.minimum_backoff} and {policy.maximum_backoff}: up to {MAX_BACKOFF_S}s, and "
            "minimumBackoff is not the longer"
        )
    return {"retry": RetryOptions(min_s=min_s, max_s=max_s)}


def _dead_letters(body: SubscriptionBody) -> dict[str, Any]:
    policy = body.dead_letter_policy
    if policy is None:
        return {"max_attempts": MAX_ATTEMPTS, "dead_letter_topic": ""}
    attempts = policy.max_delivery_attempts or MIN_ATTEMPTS
    if not MIN_ATTEMPTS <= attempts <= MAX_ATTEMPTS:
        raise _invalid(
            f"deadLetterPolicy.maxDeliveryAttempts is {attempts}: it may be {MIN_ATTEMPTS} to {MAX_ATTEMPTS}, or 0"
        )
    topic = policy.dead_letter_topic
    return {"max_attempts": attempts, "dead_letter_topic": topic_of_resource(topic) if topic else ""}


def _expiration(body: SubscriptionBody) -> dict[str, Any]:
    policy = body.expiration_policy
    text = "" if policy is None else policy.ttl
    seconds = math.ceil(_seconds(text, "expirationPolicy.ttl")) if text else 0
    if seconds and not MIN_TTL_S <= seconds <= MAX_TTL_S:
        raise _invalid(f"expirationPolicy.ttl is {text}: it may be {MIN_TTL_S}s to {MAX_TTL_S}s, or absent for never")
    return {"idle_expiry_s": seconds}


def _filter(body: SubscriptionBody) -> dict[str, Any]:
    try:
        return {"filter": Filter(body.filter).expression} if body.filter else {"filter": ""}
    except FilterError as error:
        raise _invalid(f"filter: {error}") from None


_FIELDS: Final[dict[str, Callable[[SubscriptionBody], dict[str, Any]]]] = {
    "ackDeadlineSeconds": _deadline,
    "messageRetentionDuration": _retention,
    "retainAckedMessages": _retain_acked,
    "retryPolicy": _retry,
    "deadLetterPolicy": _dead_letters,
    "expirationPolicy": _expiration,
    "pushConfig": _push,
}
"""What of a queue's options each member says that may be changed."""


def _refuse(body: msgspec.Struct, refusals: dict[str, str]) -> None:
    for name, reason in refusals.items():
        if getattr(body, name):
            raise Problem(Code.NOT_AVAILABLE, f"{_camel(name)}: {reason}")


def _seconds(text: str, member: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise _invalid(f'{member} is {text[:40]!r}: write seconds, such as "10s"')
    return float(found[1])


def _duration_text(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(each.capitalize() for each in rest)


def _size(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _invalid(detail: str) -> Problem:
    return Problem(Code.INVALID_VALUE, detail)
