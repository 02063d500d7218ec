"""Which resources of Google Pub/Sub a reader sees.

A viewer with a user name sees what the rules let its user use, so that one broker serves projects that are apart; other
viewers, operators and admins see everything. Invariant: what a caller does not see does not exist for it.
"""

from mqttlite.gateway.caller import Caller, Role
from mqttlite.gateway.context import GatewayContext


def sees_topic(context: GatewayContext, caller: Caller, name: str) -> bool:
    """Whether a caller sees the topic that is this topic of MQTT."""
    if _sees_everything(caller):
        return True
    permissions, topic = context.core.permissions, name.encode()
    return permissions.may_publish(caller.source, topic) or permissions.may_receive(caller.source, topic)


def sees_queue(context: GatewayContext, caller: Caller, name: str) -> bool:
    """Whether a caller sees the subscription that is this queue, and its snapshots."""
    return _sees_everything(caller) or context.core.permissions.may_subscribe(caller.source, f"$queue/{name}".encode())


def _sees_everything(caller: Caller) -> bool:
    return caller.username is None or caller.may(Role.OPERATOR)
