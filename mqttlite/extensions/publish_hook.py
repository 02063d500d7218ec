"""One function that gets messages before they are published, and what it returns."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from mqttlite.extensions.incoming import Incoming
from mqttlite.topics.names import check_filter, shown
from mqttlite.wire.errors import TopicFilterInvalid

CODES: Final = frozenset({0x80, 0x83, 0x86, 0x87, 0x88, 0x89, 0x90, 0x97, 0x99, 0x9F})
"""The reason codes that refuse a message (5.0 §3.4.2.1), a connection (§3.2.2.2) or a subscription (§3.9.3)."""


MAX_REASON_BYTES: Final = 1_000
"""The rest of a longer reason is cut off: it goes into packets and log lines."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A hook returns it to refuse a message, a connection or a subscription. A client of 5.0 gets `code` and `reason`.

    `code` is one of 0x80, 0x83 (*implementation specific*), 0x87 (*not authorized*), 0x90, 0x97 (*quota exceeded*) and
    0x99 (*payload format invalid*) for a message; 0x86, 0x87, 0x88, 0x89 or 0x9F for a connection; 0x80, 0x83, 0x87 or
    0x97 for a subscription. One that a packet cannot have becomes 0x83, or for a connection 0x87. A publisher of 3.1.1
    can only be acknowledged, and learns nothing. Raises `ValueError` for other codes."""

    code: int = 0x83
    reason: str = ""

    def __post_init__(self) -> None:
        if self.code not in CODES:
            allowed = ", ".join(f"0x{each:02X}" for each in sorted(CODES))
            raise ValueError(f"code is {self.code!r}: a hook refuses with one of {allowed}")
        if not isinstance(self.reason, str):
            raise ValueError(f"reason is {type(self.reason).__name__}: it is a sentence")
        told = self.reason.replace("\0", "?").encode(errors="replace")[:MAX_REASON_BYTES].decode(errors="ignore")
        object.__setattr__(self, "reason", told)


Result = Incoming | Reject | None
"""What a hook returns: another message, a refusal, or None for the message as it is."""

OnPublish = Callable[[Incoming], Result | Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class PublishHook:
    """One registered function."""

    name: str
    topic_filter: bytes
    function: OnPublish
    deadline_s: float
    accepts_on_error: bool


def check_hook_filter(topic_filter: str) -> bytes:
    """A topic filter in bytes. Raises `ValueError` for one that no message for extensions matches."""
    try:
        name = topic_filter.encode()
        check_filter(name)
    except (TopicFilterInvalid, UnicodeEncodeError) as error:
        raise ValueError(str(error)) from None
    if name.startswith((b"$share/", b"$queue/", b"$delayed/", b"$CONTROL/")):
        raise ValueError(f"extensions get no messages of {shown(name)}: these are subscriptions and commands")
    return name
