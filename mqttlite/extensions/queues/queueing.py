"""The queues of one broker, with what serves them: the API, the commands of clients, and seeks.

`assembly` makes it, and gives it to gateway, dashboard and metrics. Invariant: it knows push by a port alone.
"""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from mqttlite.core.broker import Broker
from mqttlite.extensions.command_sink import Tell
from mqttlite.extensions.queues.api import QueuesApi
from mqttlite.extensions.queues.commands import QueueCommands
from mqttlite.extensions.queues.control import ACTIONS, QueueControl
from mqttlite.extensions.queues.figures import QueueFigures
from mqttlite.extensions.queues.push_state import PushState
from mqttlite.extensions.queues.seek_requests import Seeks
from mqttlite.extensions.queues.service import Queues


class PushPort(Protocol):
    """What pushes the messages of queues."""

    def state(self, name: str) -> PushState | None:
        """How the push of a queue stands; None for a queue that is not pushed."""

    async def end_stale(self, name: str) -> None:
        """End the requests whose messages a seek took back."""


class Queueing:
    """`push` is None where nothing pushes. `commit` carries out changes and waits until they are committed, `wake` does
    not wait. `tell` is told of each command."""

    def __init__(
        self,
        core: Broker,
        queues: Queues,
        push: PushPort | None,
        *,
        commit: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
        clock: Callable[[], float],
        tell: Tell,
    ) -> None:
        self.queues: Final = queues
        self.seeks: Final = Seeks(queues, commit, None if push is None else push.end_stale)
        self.api: Final = QueuesApi(queues, self.seeks, commit, _no_push if push is None else push.state)
        self.figures: Final = QueueFigures(queues, clock)
        for action in ACTIONS:
            control = QueueControl(queues, action)
            core.bind(control.topic_filter, control, hears_others=True)
        self._commands: Final = QueueCommands(queues, self.api, core, clock, wake, tell)
        for topic_filter in self._commands.sink.topic_filters:
            core.bind(topic_filter, self._commands.sink, hears_others=True)

    async def close_inputs(self) -> None:
        """Stop to accept commands."""
        await self._commands.stop()


def _no_push(_name: str) -> None:
    return None
