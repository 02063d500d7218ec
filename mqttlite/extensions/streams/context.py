"""What all streams of a broker share."""

from collections.abc import Callable
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.jobs import Jobs
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.permissions import Permissions
from mqttlite.core.session.queue_pages import QueuePages
from mqttlite.core.source import Source


@final
class StreamContext:
    """`has_pages`: the store is on disk, and only the newest messages are in memory, too. `take_acks` finishes what a
    publisher says that it has finished as a member of groups, or returns why not. `look` compacts a partition of a
    stream if it is due."""

    __slots__ = (
        "effects",
        "has_pages",
        "jobs",
        "latest",
        "look",
        "pages",
        "permissions",
        "take_acks",
        "wall_ahead_us",
    )

    def __init__(
        self,
        effects: Effects,
        jobs: Jobs,
        pages: QueuePages,
        has_pages: bool,
        permissions: Permissions,
        wall_ahead_us: int,
        take_acks: Callable[[Source, list[str]], str],
        look: Callable[[str, int], None],
    ) -> None:
        self.effects: Final = effects
        self.jobs: Final = jobs
        self.pages: Final = pages
        self.has_pages: Final = has_pages
        self.permissions: Final = permissions
        self.wall_ahead_us: Final = wall_ahead_us
        self.take_acks: Final = take_acks
        self.look: Final = look
        self.latest: Delivery | None = None
        """The delivery of the latest message. The next stream usually takes the same one, and shares it."""

    @property
    def now_us(self) -> int:
        """The wall clock, in microseconds."""
        return self.wall_ahead_us + int(self.effects.now * 1_000_000)

    def delivery_of(self, message: Message) -> Delivery:
        """What the store gets of a message."""
        latest = self.latest
        if latest is None or latest.message is not message:
            latest = self.latest = Delivery(message, 1, False)
        return latest


SaveSegments = Callable[[int], None]
"""Records the segments of a partition, by its number."""
