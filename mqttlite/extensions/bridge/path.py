"""The way of a message across bridges, in a user property (5.0), so that it does not go in a circle.

Invariant: a message that was at a broker is not published there again, and none crosses more bridges than allowed. A
client can write the property, too, so that its length is limited.
"""

from typing import Final

from mqttlite.wire.properties import NONE, Properties

PROPERTY: Final = "mqttlite-path"
"""The user property: the ids of the brokers that sent the message over a bridge, with commas between them."""

MAX_BYTES: Final = 4_096
"""The longest path. The ids of 64 brokers, the most that `max_hops` allows, take 1,087 bytes."""


def refusal(properties: Properties, broker_id: str, max_hops: int) -> str:
    """Why a message from another broker is not published here; empty if it is."""
    if not properties.user_properties:
        return ""
    ids = _ids(properties)
    if broker_id in ids:
        return "it was here before"
    return _over(ids, max_hops)


def refusal_to_send(properties: Properties, max_hops: int) -> str:
    """Why the message, with its path as `with_sender` left it, is not sent; empty if it is."""
    return _over(_ids(properties), max_hops)


def with_sender(properties: Properties, broker_id: str) -> Properties:
    """The properties of a message that leaves a broker. Changes them, unless they are `NONE`."""
    if properties is NONE:
        return Properties(user_properties=[(PROPERTY, broker_id)])
    ids = _ids(properties)
    kept = [each for each in properties.user_properties if each[0] != PROPERTY]
    properties.user_properties = [*kept, (PROPERTY, ",".join([*ids, broker_id]))]
    return properties


def _over(ids: list[str], max_hops: int) -> str:
    if sum(map(len, ids)) + len(ids) > MAX_BYTES:
        return "its path is too long"
    return f"it crossed more than {max_hops} bridges" if len(ids) > max_hops else ""


def _ids(properties: Properties) -> list[str]:
    values = [value for name, value in properties.user_properties if name == PROPERTY]
    return [each for value in values for each in value.split(",")]
