"""The port for hooks: they get each message of a topic before it is published, and may change or refuse it.

Invariant: a message is shown once, by whatever way it comes in, and what a hook makes of it is checked like what a
client sends.
"""

from typing import Final, Protocol, final

from mqttlite.core.message import Message
from mqttlite.core.source import Source


@final
class HookAnswer:
    """What becomes of a message: with a `message` that one takes its place, with a `code` it is refused, else it is
    published as it is."""

    __slots__ = ("code", "detail", "message", "reason")

    def __init__(self, message: Message | None = None, code: int = 0, reason: str = "", detail: str = "") -> None:
        self.message: Final = message
        self.code: Final = code
        """The reason code for its publisher, 0x80 or higher; 0: it is not refused."""
        self.reason: Final = reason
        """The sentence for its publisher."""
        self.detail: Final = detail
        """The sentence for operators, which also names the hook."""


UNCHANGED: Final = HookAnswer()


class Hook(Protocol):
    """What is asked about the messages of a topic."""

    def ask(self, message: Message, source: Source, held: object) -> HookAnswer | None:
        """The answer; or None, and it comes later, once, by `Broker.on_hooked(held, …)`. Must not raise."""
        ...


class SubscriptionHook(Protocol):
    """What is asked about subscriptions that the rules allow, before they are granted."""

    def refusal(self, source: Source, topic_filter: bytes, qos: int) -> tuple[int, str]:
        """The reason code of SUBACK and the sentence that refuse a subscription; 0 and an empty one if it is granted.
        Must not raise."""
        ...


class HookFinder(Protocol):
    """Finds the hook of a topic."""

    def hook_of(self, topic: bytes) -> Hook | None:
        """The hook for the messages of a topic, if there is one. Asked once for each route."""
        ...
