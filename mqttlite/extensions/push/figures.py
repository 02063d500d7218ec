"""The values of the figures of push."""

import heapq
from collections.abc import Mapping

from mqttlite.delivery.queues.service import Queues
from mqttlite.extensions.push.service import Push
from mqttlite.telemetry.figures import Values
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.push_figures import STATES
from mqttlite.telemetry.queue_figures import MAX_REPORTED


def values(push: Push, queues: Queues, latency: Histogram) -> Mapping[str, Values]:
    """Of the first queues by name; by the names in the manifest."""
    states = [(name, push.state(name)) for name in heapq.nsmallest(MAX_REPORTED, queues.names)]
    pushed = [(name, state) for name, state in states if state is not None]
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
