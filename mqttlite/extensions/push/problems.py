"""What is wrong with the push targets of a configuration."""

from collections.abc import Iterator

from mqttlite.config.options import Config
from mqttlite.config.shape import Problem
from mqttlite.extensions.push.guard import Guard, check_push
from mqttlite.extensions.queues.errors import PushRefused


def problems(config: Config) -> Iterator[Problem]:
    """Queues with a push target that is not allowed or not possible."""
    guard = Guard(config.push)
    for number, queue in enumerate(config.queues):
        if queue.push is not None:
            try:
                check_push(guard, queue.push)
            except PushRefused as error:
                yield Problem(f"queues[{number}]", f": {error}")
