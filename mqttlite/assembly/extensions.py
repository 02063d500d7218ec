"""Makes the extensions of a configuration and of the program, starts and stops them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.runtime import Runtime
from mqttlite.config import Config, ConfigError
from mqttlite.core.hook import HookAnswer
from mqttlite.extensions.client_hook import ConnectHook, SubscribeHook
from mqttlite.extensions.client_hooks import ConnectHooks, DisconnectListener, SubscribeHooks
from mqttlite.extensions.ending import STOP_S, end
from mqttlite.extensions.extension import Extension
from mqttlite.extensions.handler_sink import Handler, HandlerSink
from mqttlite.extensions.hook_failures import HookFailures
from mqttlite.extensions.host import Hook, Host, OpenSession, Publish
from mqttlite.extensions.load import ExtensionError, load
from mqttlite.extensions.pages import ExtensionPages
from mqttlite.extensions.publish_hook import PublishHook, check_hook_filter
from mqttlite.extensions.publish_hooks import PublishHooks

if TYPE_CHECKING:
    from mqttlite.extensions.routes.routes import Routes

_log = logging.getLogger("mqttlite")


class Extensions:
    """`publish` and `session` are those of the `Broker`. Raises `ConfigError` for extensions that cannot be made."""

    def __init__(self, config: Config, given: Sequence[Extension], publish: Publish, session: OpenSession) -> None:
        self._named: Final[list[tuple[str, Extension]]] = []
        if config.sparkplug:
            from mqttlite.extensions.sparkplug.sparkplug import Sparkplug

            self._named.append(("sparkplug", Sparkplug()))
        for number, options in enumerate(config.extensions):
            try:
                self._named.append((options.use, load(options)))
            except ExtensionError as error:
                raise ConfigError(f"extensions[{number}].{error}") from error
        for each in given:
            self._named.append((f"{type(each).__module__}:{type(each).__qualname__}", each))
        self.routes: Routes | None = None
        """None where the configuration has none. They see what the others made of a message."""
        if config.routes:
            from mqttlite.extensions.routes import routes

            self.routes = routes.Routes(config.routes)
            self._named.append(("routes", self.routes))
        self.pages: Final = ExtensionPages()
        self._started: Final[list[tuple[str, Extension]]] = []
        self._sinks: Final[list[HandlerSink]] = []
        self._publish: Final = publish
        self._session: Final = session
        self._runtime: Runtime
        self._failures: HookFailures
        self.hooks: PublishHooks
        self.connect_hooks: ConnectHooks | None = None
        """Asked about each client; None while there are none."""
        self._subscribe_hooks: SubscribeHooks | None = None

    def build(self, runtime: Runtime) -> None:
        """Connect them with the core of a run."""
        self._runtime = runtime
        self._failures = HookFailures(runtime.clock)
        self.hooks = PublishHooks(runtime.clock, self._failures, self._on_hooked)

    async def start(self) -> None:
        """Start them, in order. What one raises ends the start of the broker."""
        runtime = self._runtime
        for name, extension in self._named:
            host = Host(
                *(name, _Inbound(self, self._publish), self._session, self._bind),
                events=runtime.hub.register,
                clock=runtime.clock,
                page=self.pages.add,
            )
            await extension.start(host)
            self._started.append((name, extension))

    async def stop(self) -> None:
        """Refuse the messages that still wait for them, and stop them, the last one first."""
        await self.hooks.stop()
        if self._sinks:
            await asyncio.gather(*(sink.stop() for sink in self._sinks))
        while self._started:
            name, extension = self._started.pop()
            stop = getattr(extension, "stop", None)
            if stop is None:
                continue
            task = asyncio.get_running_loop().create_task(_stopped(stop))
            _, late = await asyncio.wait([task], timeout=STOP_S)
            await end(late, f"the extension {name}")
            if late:
                _log.error("the extension %s did not stop within %g s", name, STOP_S)
            elif task.cancelled() or task.exception() is not None:
                error = None if task.cancelled() else task.exception()
                _log.error("the extension %s did not stop as it should", name, exc_info=error)
        self._runtime.loop_driver.wake()

    def failures(self) -> Mapping[str, int]:
        """How often each hook raised or was late."""
        return self._failures.counts

    def add_hook(self, hook: Hook) -> None:
        """Run a hook from now on."""
        core = self._runtime.core
        if isinstance(hook, PublishHook):
            self.hooks.add(hook)
            core.hook_with(self.hooks)
        elif isinstance(hook, ConnectHook):
            if self.connect_hooks is None:
                self.connect_hooks = ConnectHooks(self._failures)
                core.ask_about_clients()
            self.connect_hooks.add(hook)
        elif isinstance(hook, SubscribeHook):
            if self._subscribe_hooks is None:
                self._subscribe_hooks = SubscribeHooks(self._failures)
                core.ask_about_subscriptions(self._subscribe_hooks)
            self._subscribe_hooks.add(hook)
        else:
            self._runtime.hub.register(DisconnectListener(hook, self._failures))

    def _bind(self, name: str, topic_filter: str, handler: Handler) -> None:
        runtime = self._runtime
        core = runtime.core
        sink = HandlerSink(f"extension {name}", handler, core.effects, core.router.drops, runtime.loop_driver.wake)
        core.bind(check_hook_filter(topic_filter), sink)
        self._sinks.append(sink)

    def _on_hooked(self, held: object, answer: HookAnswer) -> None:
        self._runtime.core.on_hooked(held, answer, self._runtime.clock())
        self._runtime.loop_driver.wake()


class _Inbound:
    """The `Inbound` of one host."""

    def __init__(self, extensions: Extensions, publish: Publish) -> None:
        self.publish: Final = publish
        self.add_hook: Final = extensions.add_hook


async def _stopped(stop: Callable[[], Awaitable[None]]) -> None:
    await stop()
