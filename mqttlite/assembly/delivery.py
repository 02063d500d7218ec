"""Builds the queues of `$queue/<name>`, their commands, and their push to web services."""

import heapq
from functools import partial
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.runtime import Runtime
from mqttlite.config import ConfigError
from mqttlite.core.source import THE_BROKER
from mqttlite.delivery.queues.api import QueuesApi
from mqttlite.delivery.queues.commands import QueueCommands
from mqttlite.delivery.queues.control import ACTIONS, QueueControl
from mqttlite.delivery.queues.errors import PushRefused
from mqttlite.delivery.queues.push_state import PushState
from mqttlite.delivery.queues.push_target import PushTarget
from mqttlite.delivery.queues.resources import subscription_name
from mqttlite.delivery.queues.seek_requests import Seeks
from mqttlite.delivery.queues.service import Queues
from mqttlite.event_hub import PUSH_STOPPED
from mqttlite.extensions.built_in import refusal
from mqttlite.security.tls import client_context
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.push_figures import PushFigures
from mqttlite.telemetry.queue_figures import MAX_REPORTED, Growth, QueueFigures
from mqttlite.wire.properties import Properties

if TYPE_CHECKING:
    from mqttlite.extensions.push.service import Push


class Delivery:
    """The queues and their helpers. Raises `ConfigError` for push targets that are not allowed."""

    def __init__(self, runtime: Runtime) -> None:
        core, config, clock = runtime.core, runtime.config, runtime.clock
        self._runtime: Final = runtime
        self._clock: Final = clock
        self.queues: Final = Queues(
            *(core, config.queues, config.delivery, clock, runtime.wall.ahead_us, runtime.filters)
        )
        core.serve(self.queues)
        for action in ACTIONS:
            control = QueueControl(self.queues, action)
            core.bind(control.topic_filter, control)
        self.push_latency: Final = Histogram()
        self.push: Final = self._build_push()
        self.seeks: Final = Seeks(self.queues, runtime.commit, None if self.push is None else self.push.end_stale)
        self.api: Final = QueuesApi(self.queues, self.seeks, runtime.commit, self._push_state)
        self._commands: Final = QueueCommands(
            *(self.queues, self.api, core.permissions, self._respond), tell=runtime.hub.on_administered
        )
        for topic_filter in self._commands.topic_filters:
            core.bind(topic_filter, self._commands)
        self._growth: Final = Growth()

    def _build_push(self) -> "Push | None":
        runtime, config = self._runtime, self._runtime.config
        if refused := refusal("push"):
            if problems := [f"queues[{at}].push{refused}" for at, each in enumerate(config.queues) if each.push]:
                raise ConfigError(*problems)
            self.queues.check_push = partial(_refuse, f"push{refused}")
            return None
        from mqttlite.extensions.push.guard import Guard, check_push
        from mqttlite.extensions.push.problems import problems as push_problems
        from mqttlite.extensions.push.service import Push

        if wrong := [str(each) for each in push_problems(config)]:
            raise ConfigError(*wrong)
        guard = Guard(config.push)
        self.queues.check_push = partial(check_push, guard)
        return Push(
            *(self.queues, guard),
            make_tls=partial(client_context, config.push.ca_file),
            committed=runtime.loop_driver.settled,
            wake=runtime.loop_driver.wake,
            clock=self._clock,
            latency=self.push_latency,
            subscription_of=subscription_name,
            on_alarm=partial(runtime.hub.on_alarm, PUSH_STOPPED),
        )

    def _push_state(self, name: str) -> PushState | None:
        return None if self.push is None else self.push.state(name)

    async def close_inputs(self) -> None:
        """Stop to accept queue commands."""
        await self._commands.stop()

    def figures(self, most: int = MAX_REPORTED) -> list[QueueFigures]:
        """The metrics of the first `most` queues by name, for the metrics port and `$SYS`."""
        queues, now = self.queues, self._clock()
        names = queues.names
        self._growth.keep(set(names))
        states = (queues.state(name) for name in heapq.nsmallest(most, names))
        return [
            QueueFigures(
                name=each.name,
                depth=each.depth,
                leased=each.leased,
                scheduled=each.scheduled,
                growth_per_s=self._growth.note(each.name, each.depth, now),
                oldest_age_s=each.oldest_age_s,
                consumers=each.consumers,
                dead_letters=each.dead_letters,
                published=each.published,
                refused=each.refused,
                filtered=each.filtered,
                retained=each.retained,
                snapshots=each.snapshots,
                returned=each.returned,
                attempts=each.attempts,
                redeliveries=each.redeliveries,
                nacked_late=each.nacked_late,
                ends=each.ends,
                failures=each.failures,
                dead_letters_total=each.dead_letters_total,
                push=self._push_figures(each.name),
                dead_letter_causes=each.dead_letter_causes,
            )
            for each in states
        ]

    def _respond(self, topic: str, payload: bytes, correlation: bytes | None) -> None:
        """Publish the answer to a command."""
        properties = Properties(content_type="application/json", correlation_data=correlation)
        self._runtime.core.publish(topic.encode(), payload, 1, False, self._clock(), properties, THE_BROKER)
        self._runtime.loop_driver.wake()

    def _push_figures(self, name: str) -> PushFigures | None:
        state = self._push_state(name)
        if state is None:
            return None
        return PushFigures(state=state.state, open=state.open, window=state.window, requests=state.requests)


def _refuse(why: str, target: PushTarget) -> None:
    raise PushRefused(why)
