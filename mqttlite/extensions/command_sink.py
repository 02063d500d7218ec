"""Takes commands that clients publish to something of a feature, `<first level>/<name>/$<action>`, and answers them.

The rules were asked before whether the publisher may publish to the topic, and are asked again when it is the turn of a
command that waited. The answer goes to the Response Topic, or
for clients without properties to the topic behind the command (`$queue/<name>/$purge/<topic>`), where the publisher may
publish. Invariant: commands are carried out one after the other.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from mqttlite.core.broker import Broker
from mqttlite.core.message import Message
from mqttlite.core.reasons import QUEUE_FULL
from mqttlite.core.route.outlook import PlannedReceiver, planned_sink
from mqttlite.core.route.tally import (
    DROPPED,
    NO_MATCHING_SUBSCRIBERS,
    NOT_AUTHORIZED_CODE,
    POLICY_REFUSES,
    QUOTA_EXCEEDED,
    SENT,
    Tally,
)
from mqttlite.core.source import THE_BROKER, Source
from mqttlite.extensions.simple_sink import SimpleSink
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import PeerError
from mqttlite.wire.properties import Properties

MAX_WAITING: Final = 100
"""Commands that wait. One more is refused with Quota exceeded (0x97)."""

MAX_COMMAND_BYTES: Final = 4_096
"""The payload of one: options, a time, a filter, or a name. A feature may take longer ones."""

Tell = Callable[[str, str, str, bool], None]
"""Reports a change: the actor, the action, its subject, and whether it succeeded."""


class Command(NamedTuple):
    """`action` begins with `$`. Without a `response_topic` nobody wants an answer."""

    source: Source
    name: str
    action: str
    payload: bytes
    response_topic: str
    correlation: bytes | None
    topic: bytes
    """To which it was published."""

    @property
    def mount_point(self) -> bytes:
        return self.source.identity.mount_point

    @property
    def who(self) -> str:
        """The publisher, for the log."""
        return f"client {self.source.client_id!r}"


class CommandSink(SimpleSink):
    """A `Sink` with one task behind it. `serves` says whether a name is there for a publisher and an action, and
    `carry_out` carries out a command, and calls `end`. `wake` has the broker send answers."""

    def __init__(
        self,
        first_level: str,
        actions: Sequence[str],
        serves: Callable[[str, str, Source], bool],
        carry_out: Callable[[Command], Awaitable[None]],
        core: Broker,
        clock: Callable[[], float],
        wake: Callable[[], None],
        tell: Tell,
        max_bytes: int = MAX_COMMAND_BYTES,
    ) -> None:
        self._first_level: Final = first_level
        self._actions: Final = actions
        self._serves: Final = serves
        self._carry_out: Final = carry_out
        self._core: Final = core
        self._clock: Final = clock
        self._wake: Final = wake
        self._tell: Final = tell
        self._max_bytes: Final = max_bytes
        self._log: Final = logging.getLogger(f"mqttlite.{first_level.removeprefix('$')}s")
        self._waiting: Final[deque[Command]] = deque()
        self._task: asyncio.Task[None] | None = None

    @property
    def topic_filters(self) -> list[bytes]:
        """What it is bound to."""
        return [f"{self._first_level}/+/{each}/#".encode() for each in self._actions]

    def outlook(self, message: Message, source: Source, knows_payload: bool) -> list[PlannedReceiver]:
        """Implements `Sink`."""
        name = "/".join(message.topic.decode().split("/", 2)[:2])
        if len(self._waiting) >= MAX_WAITING:
            return [planned_sink(name, DROPPED, QUEUE_FULL)]
        return [planned_sink(name, SENT, "", f"it looks after the {self._first_level.removeprefix('$')}")]

    def accept(self, message: Message, source: Source, tally: Tally) -> None:
        """Implements `Sink`."""
        _, name, action, *response = message.topic.decode().split("/", 3)
        if not self._serves(name, action, source):
            tally.code = NO_MATCHING_SUBSCRIBERS
            return
        if len(message.payload) > self._max_bytes:
            tally.code = POLICY_REFUSES
            tally.refusal = f"the payload of a command has {self._max_bytes} bytes at most"
            return
        properties = message.properties
        wanted = (properties.response_topic or "".join(response)).encode()
        if wanted:
            wanted = self._core.namespaces.mounted_name(source.identity.mount_point, wanted)
            if not _is_ordinary(wanted) or not self._core.permissions.may_publish(source, wanted):
                tally.code = NOT_AUTHORIZED_CODE
                tally.refusal = "an answer goes to a plain topic to which the publisher of the command may publish"
                return
        if len(self._waiting) >= MAX_WAITING:
            tally.drop(QUEUE_FULL)
            tally.code = QUOTA_EXCEEDED
            return
        tally.sent += 1
        command = Command(
            source, name, action, message.payload, wanted.decode(), properties.correlation_data, message.topic
        )
        self._waiting.append(command)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def end(self, command: Command, is_done: bool, answer: bytes) -> None:
        """A command was carried out, or refused."""
        self._tell(command.who, "PUBLISH", f"{self._first_level}/{command.name}/{command.action}", is_done)
        if not is_done:
            kind = self._first_level.removeprefix("$")
            self._log.info("%s: %s of %s %s: %s", command.who, command.action, kind, command.name, answer.decode())
        if command.response_topic:
            properties = Properties(content_type="application/json", correlation_data=command.correlation)
            topic = command.response_topic.encode()
            self._core.publish(topic, answer, 1, False, self._clock(), properties, THE_BROKER)
            self._wake()

    async def stop(self) -> None:
        """End when the command under way is done; forget the others."""
        self._waiting.clear()
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    def _is_allowed(self, command: Command) -> bool:
        """Whether the publisher may send the command, and get its answer, now."""
        may_publish, source = self._core.permissions.may_publish, command.source
        wanted = command.response_topic.encode()
        return may_publish(source, command.topic) and (not wanted or may_publish(source, wanted))

    async def _run(self) -> None:
        try:
            while self._waiting:
                command = self._waiting.popleft()
                if not self._is_allowed(command):  # it has no right to an answer, either
                    self.end(command._replace(response_topic=""), False, b"its right was taken away while it waited")
                    continue
                try:
                    await self._carry_out(command)
                except Exception:  # a defect in one command must not stop the others
                    self._log.exception("%s of %s to %s failed", command.action, command.who, command.name)
        finally:
            self._task = None


def _is_ordinary(topic: bytes) -> bool:
    try:
        check_name(topic)
    except PeerError:
        return False
    return not topic.startswith(b"$")
