"""A message of a queue in Google's JSON, as it is pulled and pushed."""

from typing import Any

from mqttlite.core.message import Message
from mqttlite.core.outbound.told_properties import PUBLISH_TIME, time_text
from mqttlite.extensions.queues.dead_letters import ATTEMPTS, QUEUE
from mqttlite.extensions.queues.properties import ORDERING_KEY, user_property
from mqttlite.extensions.queues.resources import subscription_resource


def message_json(message: Message) -> dict[str, Any]:
    """A Google `PubsubMessage`. The JSON encoder writes bytes as base64."""
    found: dict[str, Any] = {"messageId": str(message.number), "publishTime": time_text(message.number)}
    if message.payload:
        found["data"] = message.payload
    attributes: dict[str, str] = {}
    for name, value in message.properties.user_properties:
        if name != ORDERING_KEY:
            attributes.setdefault(name, value)  # the first of several values counts, as for queues
    if QUEUE in attributes:
        attributes.update(_dead_letter_source(attributes))
    if attributes:
        found["attributes"] = attributes
    ordering_key = user_property(ORDERING_KEY, message)
    if ordering_key:
        found["orderingKey"] = ordering_key
    return found


def _dead_letter_source(attributes: dict[str, str]) -> dict[str, str]:
    """The attributes that Google adds to messages on a dead letter topic."""
    source = subscription_resource(attributes[QUEUE]).split("/")
    if len(source) != 4:
        return {}
    return {
        "CloudPubSubDeadLetterSourceDeliveryCount": attributes.get(ATTEMPTS, "0"),
        "CloudPubSubDeadLetterSourceSubscription": source[3],
        "CloudPubSubDeadLetterSourceSubscriptionProject": source[1],
        "CloudPubSubDeadLetterSourceTopicPublishTime": attributes.get(PUBLISH_TIME, ""),
    }
