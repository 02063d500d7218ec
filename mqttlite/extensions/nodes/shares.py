"""What nodes tell each other of shared subscriptions: how many members each has. It goes with the topic filters.

Invariant: a node that has members is a member itself at all others, so that the broker there chooses a node for each
message, and that node a member.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

from mqttlite.core.share_interest import qos_of, weights_of
from mqttlite.wire.packets import Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties

_SHARE: Final = b"$share/"

News: TypeAlias = tuple[bytes, int]
"""A topic filter with its QoS, or the name of a shared subscription with its summary; below 0, there is none."""


def is_share(name: bytes) -> bool:
    """Whether news are of a shared subscription."""
    return name.startswith(_SHARE)


def shares_of(news: Iterable[News]) -> list[News]:
    """Those of shared subscriptions."""
    return [each for each in news if is_share(each[0])]


def membership(packet_id: int, name: bytes, summary: int) -> Subscribe:
    """Makes another node a member, for the members that it has. The packet cannot be encoded if there is no such
    summary."""
    properties = Properties(subscription_identifiers=[weights_of(summary)])
    request = SubscriptionRequest(name, qos_of(summary), retain_as_published=True)
    return Subscribe(packet_id, (request,), properties)
