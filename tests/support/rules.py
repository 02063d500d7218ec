"""An authorizer that allows everything: tests override what their rules forbid."""

from mqttlite.core.authentication import Grants
from mqttlite.core.drops import Drops
from mqttlite.core.effects import Effects
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy


class OpenRules:
    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 0

    def is_open(self, topic: bytes) -> bool:
        return True

    def is_readable(self, topic: bytes) -> bool:
        return True

    def may_publish(self, role: int, topic: bytes) -> bool:
        return True

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return True

    def may_receive(self, role: int, topic: bytes) -> bool:
        return True

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return NO_POLICY

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return f"role {role} may not {action}"


def permissions() -> Permissions:
    """Everything is allowed."""
    effects = Effects()
    return Permissions(effects, Drops(effects))
