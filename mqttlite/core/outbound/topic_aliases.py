"""The topic aliases of the messages to one client. Invariant: an alias stands for one topic at a time."""

from typing import Final, final

from mqttlite.core.limits import ONCE_SEEN


@final
class TopicAliases:
    """Which topics have which alias on one connection (5.0 §3.3.2.3.4)."""

    __slots__ = ("_alias_of", "_maximum", "_next", "_once", "_topics")

    def __init__(self, maximum: int) -> None:
        self._maximum: Final = maximum
        self._alias_of: Final[dict[bytes, int]] = {}
        self._topics: Final[list[bytes]] = []  # by alias, from 1
        self._once: Final[set[bytes]] = set()  # seen once since all aliases were taken
        self._next = 0

    def use(self, topic: bytes) -> int:
        """Like `Outbox.topic_alias`: from 1 to the maximum [MQTT-3.1.2-26] [MQTT-3.3.2-8] [MQTT-3.3.2-11]."""
        alias = self._alias_of.get(topic, 0)
        if alias:
            return alias
        if len(self._topics) < self._maximum:
            self._topics.append(topic)
            alias = len(self._topics)
        elif topic in self._once:
            self._once.discard(topic)
            alias = self._next + 1
            self._next = alias % self._maximum
            del self._alias_of[self._topics[alias - 1]]
            self._topics[alias - 1] = topic
        else:
            if len(self._once) >= ONCE_SEEN * self._maximum:
                self._once.clear()
            self._once.add(topic)
            return 0
        self._alias_of[topic] = alias
        return -alias
