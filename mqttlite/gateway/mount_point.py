"""The mount point of HTTP callers: added to the topics that they name, and removed from topics that they see.

Subscribers get it by their `Peer`, and the core mounts what they subscribe to; here it is for everything else.
Invariant: a caller below a mount point reaches no topic that is not below it, as a client of MQTT does not.
"""

from typing import Final

from mqttlite.gateway.problems import Code, Problem
from mqttlite.topics.names import check_name
from mqttlite.topics.namespaces import Namespaces, split_share, unmounted
from mqttlite.wire.errors import TopicNameInvalid


class MountPoint:
    """One for each gateway; `prefix` is empty where callers have none."""

    def __init__(self, prefix: str, namespaces: Namespaces) -> None:
        self.prefix: Final = prefix.encode()
        self._namespaces: Final = namespaces

    def topic_of(self, name: str) -> bytes:
        """The topic that a caller means. Raises `Problem` for a name that is no UTF-8 or, below a mount point, that is
        invalid; without one the core checks it."""
        try:
            topic = name.encode()
        except UnicodeEncodeError:
            raise Problem(Code.BAD_REQUEST, "the topic's name is no UTF-8") from None
        if not self.prefix:
            return topic
        try:
            check_name(topic)
        except TopicNameInvalid as error:
            raise Problem(Code.INVALID_TOPIC, str(error)) from None
        return self._namespaces.mounted_name(self.prefix, topic)

    def filter_of(self, subscribed: bytes) -> bytes:
        """The topic filter of a caller that the core keeps as that one."""
        if not self.prefix:
            return subscribed
        rest = split_share(subscribed)[1]
        return subscribed[: len(subscribed) - len(rest)] + unmounted(self.prefix, rest)

    def shown(self, name: str) -> str:
        """Callers' name of a topic; empty for one that is not below their mount point."""
        return unmounted(self.prefix, name.encode()).decode() if self.prefix else name
