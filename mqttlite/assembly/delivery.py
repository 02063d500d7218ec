"""Builds queues and their push to web services, if the broker has these extensions."""

from functools import partial
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.runtime import Runtime
from mqttlite.config import Config, ConfigError
from mqttlite.event_hub import PUSH_STOPPED
from mqttlite.extensions.built_in import BUILT_IN, refusal
from mqttlite.security.tls import client_context
from mqttlite.telemetry.histograms import Histogram

if TYPE_CHECKING:
    from mqttlite.extensions.push.service import Push
    from mqttlite.extensions.queues.queueing import Queueing
    from mqttlite.extensions.queues.service import Queues


class Delivery:
    """Before the store is loaded: they take what it has of queues. Raises `ConfigError` for push targets that are not
    allowed."""

    def __init__(self, runtime: Runtime) -> None:
        self.queueing: Queueing | None = None
        self.push: Push | None = None
        self.push_latency: Final = Histogram()
        if "queues" not in BUILT_IN:
            return
        from mqttlite.extensions.queues import queueing, service

        core, config = runtime.core, runtime.config
        queues = service.Queues(
            *(core, config.queues, config.delivery, runtime.clock, runtime.wall.ahead_us, runtime.filters)
        )
        core.serve(queues)
        if refused := refusal("push"):
            _refuse_push(queues, config, refused)
        else:
            self.push = self._build_push(runtime, queues)
        self.queueing = queueing.Queueing(
            *(core, queues, self.push),
            commit=runtime.commit,
            wake=runtime.loop_driver.wake,
            clock=runtime.clock,
            tell=runtime.hub.on_administered,
        )

    def _build_push(self, runtime: Runtime, queues: "Queues") -> "Push":
        from mqttlite.extensions.push.guard import Guard, check_push
        from mqttlite.extensions.push.problems import problems as push_problems
        from mqttlite.extensions.push.service import Push
        from mqttlite.extensions.queues.resources import subscription_name

        config = runtime.config
        if wrong := [str(each) for each in push_problems(config)]:
            raise ConfigError(*wrong)
        guard = Guard(config.push)
        queues.check_push = partial(check_push, guard)
        return Push(
            *(queues, guard),
            make_tls=partial(client_context, config.push.ca_file),
            committed=runtime.loop_driver.settled,
            wake=runtime.loop_driver.wake,
            clock=runtime.clock,
            latency=self.push_latency,
            subscription_of=subscription_name,
            on_alarm=partial(runtime.hub.on_alarm, PUSH_STOPPED),
        )


def _refuse_push(queues: "Queues", config: Config, refused: str) -> None:
    from mqttlite.extensions.queues.errors import PushRefused

    if problems := [f"queues[{at}].push{refused}" for at, each in enumerate(config.queues) if each.push]:
        raise ConfigError(*problems)

    def refuse(_target: object) -> None:
        raise PushRefused(f"push{refused}")

    queues.check_push = refuse
