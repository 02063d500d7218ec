"""What it takes to publish to a topic of a feature, where that is not the permission to publish to the topic itself."""

from typing import Final, final


@final
class Right:
    """`topic` is what the rules are asked about: to subscribe to it, with `takes_subscribing`, else to publish to it.

    With `takes_rule` a client may publish only if a rule says so. Without a topic nobody may publish but the broker.
    `denial` is the sentence for the latter two.
    """

    __slots__ = ("denial", "takes_rule", "takes_subscribing", "topic")

    def __init__(
        self, topic: bytes, *, takes_subscribing: bool = False, takes_rule: bool = False, denial: str = ""
    ) -> None:
        self.topic: Final = topic
        self.takes_subscribing: Final = takes_subscribing
        self.takes_rule: Final = takes_rule
        self.denial: Final = denial
