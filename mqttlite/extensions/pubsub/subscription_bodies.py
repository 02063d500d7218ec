"""Google's subscriptions as JSON, and the options of a queue that they are.

Durations are `"10s"`. Invariant: a member that the broker cannot do is refused by its name.
"""

import math
import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from mqttlite.extensions.pubsub.bodies import camel, invalid, refuse
from mqttlite.extensions.pubsub.names import is_detached, topic_of_resource, topic_resource
from mqttlite.extensions.queues.options import MAX_ATTEMPTS, MAX_DEADLINE_S, MIN_DEADLINE_S, QueueOptions, RetryOptions
from mqttlite.extensions.queues.push_target import PushTarget
from mqttlite.filters import Filter, FilterError
from mqttlite.gateway.problems import Code, Problem

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


class RetryPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    minimum_backoff: str = "10s"
    maximum_backoff: str = "600s"


class DeadLetterPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    max_delivery_attempts: int = 0
    dead_letter_topic: str = ""


class ExpirationPolicy(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    ttl: str = ""


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


_SUBSCRIPTION_REFUSALS: Final[dict[str, str]] = {
    "bigquery_config": "there is no export to BigQuery",
    "cloud_storage_config": "there is no export to Cloud Storage",
    "bigtable_config": "there is no export to Bigtable",
    "labels": "labels are not kept",
    "enable_exactly_once_delivery": "delivery is at least once",
    "message_transforms": "there are no transforms",
    "tags": "tags are not kept",
    "detached": "a subscription is detached by :detach",
}


def options_of(body: SubscriptionBody) -> dict[str, Any]:
    """What of a queue's options a new subscription says. Raises `Problem`."""
    refuse(body, _SUBSCRIPTION_REFUSALS)
    found: dict[str, Any] = {"ordering": body.enable_message_ordering, **_filter(body)}
    for read in _FIELDS.values():
        found.update(read(body))
    return found


def changes_of(request: UpdateSubscriptionRequest) -> dict[str, Any]:
    """What of a queue's options a change says. Raises `Problem`."""
    body = request.subscription
    refuse(body, _SUBSCRIPTION_REFUSALS)
    mask = [camel(each.partition(".")[0]) for each in request.update_mask.split(",") if each]
    if not mask:
        raise invalid("updateMask is missing: it names the members that are to be changed")
    found: dict[str, Any] = {}
    for member in mask:
        read = _FIELDS.get(member)
        if member == "filter":
            raise invalid("filter: the filter of a subscription cannot be changed; make another subscription")
        if read is None:
            raise invalid(f"updateMask has {member[:80]!r}: one of {', '.join(_FIELDS)} can be changed")
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
    if is_detached(options):
        found["detached"] = True
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
            raise invalid("pushConfig.pushEndpoint is missing")
        return {"push": None}
    try:
        return {"push": PushTarget(url=config.push_endpoint, wrapper=config.no_wrapper is None)}
    except ValueError as error:
        raise invalid(f"pushConfig.pushEndpoint: {error}") from None


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
        raise invalid(f"ackDeadlineSeconds is {seconds:g}: it may be {MIN_DEADLINE_S:g} to {MAX_DEADLINE_S:g}, or 0")
    return {"ack_deadline_s": float(seconds)}


def _retention(body: SubscriptionBody) -> dict[str, Any]:
    text = body.message_retention_duration
    seconds = 7 * 86_400 if not text else math.ceil(_seconds(text, "messageRetentionDuration"))
    if not MIN_RETENTION_S <= seconds <= MAX_RETENTION_S:
        raise invalid(f"messageRetentionDuration is {text}: it may be {MIN_RETENTION_S}s to {MAX_RETENTION_S}s")
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
        raise invalid(
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
        raise invalid(
            f"deadLetterPolicy.maxDeliveryAttempts is {attempts}: it may be {MIN_ATTEMPTS} to {MAX_ATTEMPTS}, or 0"
        )
    topic = policy.dead_letter_topic
    return {"max_attempts": attempts, "dead_letter_topic": topic_of_resource(topic) if topic else ""}


def _expiration(body: SubscriptionBody) -> dict[str, Any]:
    policy = body.expiration_policy
    text = "" if policy is None else policy.ttl
    seconds = math.ceil(_seconds(text, "expirationPolicy.ttl")) if text else 0
    if seconds and not MIN_TTL_S <= seconds <= MAX_TTL_S:
        raise invalid(f"expirationPolicy.ttl is {text}: it may be {MIN_TTL_S}s to {MAX_TTL_S}s, or absent for never")
    return {"idle_expiry_s": seconds}


def _filter(body: SubscriptionBody) -> dict[str, Any]:
    try:
        return {"filter": Filter(body.filter).expression} if body.filter else {"filter": ""}
    except FilterError as error:
        raise invalid(f"filter: {error}") from None


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

CHANGEABLE: Final = tuple(option for read in _FIELDS.values() for option in read(SubscriptionBody()))
"""All of these options."""


def _seconds(text: str, member: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise invalid(f'{member} is {text[:40]!r}: write seconds, such as "10s"')
    return float(found[1])


def _duration_text(seconds: float) -> str:
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"
