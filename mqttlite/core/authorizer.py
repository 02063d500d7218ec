"""The port for permissions, and the rules that hold without any: clients do not publish below `$SYS`.

A client has a *role*, a small number for all identities with the same permissions. The router keeps the verdict for a
role on the route of a topic, so that a known topic costs one look-up, and one that is open to all costs none.
"""

from typing import Final, Protocol, final

from mqttlite.topics.names import is_analytics, is_own

ANYBODY: Final = 0
ANALYST: Final = 1


class Authorizer(Protocol):
    """Says who may do what. A new set of rules is set with `Broker.authorize`, which forgets all verdicts."""

    def role_of(self, client_id: str, username: str | None) -> int:
        """The role of a client that connects."""
        ...

    def is_open(self, topic: bytes) -> bool:
        """Whether every client may publish to a topic; asked once for each route."""
        ...

    def may_publish(self, role: int, topic: bytes) -> bool:
        """Whether a role may publish to a topic that is not open; asked once for each route and role."""
        ...

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        """Whether a role may subscribe to a topic filter; asked for each SUBSCRIBE."""
        ...


@final
class DefaultRules:
    """Everybody may do everything, but below `$SYS` only the broker publishes.

    Clients and users of the names in `analysts` may publish below `$SYS/analytics`.
    """

    def __init__(self, analysts: frozenset[str] = frozenset()) -> None:
        self._analysts: Final = analysts

    def role_of(self, client_id: str, username: str | None) -> int:
        return ANALYST if username in self._analysts or client_id in self._analysts else ANYBODY

    def is_open(self, topic: bytes) -> bool:
        return not is_own(topic)

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == ANALYST and is_analytics(topic)

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return True
