"""The values of the figures of push."""

import heapq
from collections.abc import Iterator, Mapping
from typing import Final

from mqttlite.extensions.push.service import Push
from mqttlite.extensions.queues.figures import MAX_PUBLISHED
from mqttlite.extensions.queues.push_state import PushState
from mqttlite.extensions.queues.service import Queues
from mqttlite.telemetry.figures import MAX_REPORTED, Values
from mqttlite.telemetry.histograms import Histogram

STATES: Final = ("pushing", "failing", "waiting", "stopped")
"""The states of a push."""


def values(push: Push, queues: Queues, latency: Histogram) -> Mapping[str, Values]:
    """Of the first queues by name; by the names in the manifest."""
    pushed = list(_pushed(push, queues, MAX_REPORTED))
    return {
        "push_requests": [
            ({"queue": name, "result": result}, count)
            for name, state in pushed
            for result, count in state.requests.items()
        ],
        "push_open": [({"queue": name}, state.open) for name, state in pushed],
        "push_window": [({"queue": name}, state.window) for name, state in pushed],
        "push_state": [
            ({"queue": name, "state": each}, each == state.state) for name, state in pushed for each in STATES
        ],
        "push_duration_seconds": latency,
    }


def sys_values(push: Push, queues: Queues) -> Iterator[tuple[str, str]]:
    """The names below `$SYS/broker`, and their values."""
    for name, state in _pushed(push, queues, MAX_PUBLISHED):
        yield f"queues/{name}/push/state", state.state
        yield f"queues/{name}/push/open", str(state.open)
        yield f"queues/{name}/push/window", str(state.window)
        for result, count in state.requests.items():
            if count:
                yield f"queues/{name}/push/requests/{result}", str(count)


def _pushed(push: Push, queues: Queues, most: int) -> Iterator[tuple[str, PushState]]:
    """Those of the first queues by name that are pushed."""
    for name in heapq.nsmallest(most, queues.names):
        state = push.state(name)
        if state is not None:
            yield name, state
