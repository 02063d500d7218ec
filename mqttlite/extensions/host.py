"""What an extension gets of the broker, and nothing more."""

import logging
from collections.abc import Callable
from typing import Final, Protocol

from mqttlite import event_hub
from mqttlite.extensions.client_hook import ConnectHook, DisconnectHook, SubscribeHook
from mqttlite.extensions.handler_sink import Handler
from mqttlite.extensions.local_subscription import Callback, LocalSubscription
from mqttlite.extensions.pages import Show
from mqttlite.extensions.publish_hook import PublishHook
from mqttlite.extensions.published import Published
from mqttlite.wire.properties import NONE, Properties

Hook = PublishHook | ConnectHook | SubscribeHook | DisconnectHook


class Publish(Protocol):
    """As `Broker.publish`."""

    async def __call__(
        self,
        topic: str,
        payload: bytes | bytearray | memoryview | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        properties: Properties = NONE,
    ) -> Published: ...


class Inbound(Protocol):
    """The way in for messages."""

    @property
    def publish(self) -> Publish:
        """Publish from inside the broker, as `Broker.publish` does."""
        ...

    @property
    def add_hook(self) -> Callable[[Hook], None]:
        """Run a hook from now on. `Hooks` makes them."""
        ...


class OpenSession(Protocol):
    """As `Broker.subscribe`."""

    def __call__(
        self,
        topic_filter: str,
        callback: Callback | None = None,
        *,
        qos: int = 0,
        receive_maximum: int = 100,
        where: str | None = None,
        client_id: str = "",
        session_expiry_s: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> LocalSubscription: ...


class Host:
    """One for each extension. Its methods and functions are called on the broker's event loop."""

    def __init__(
        self,
        name: str,
        inbound: Inbound,
        session: OpenSession,
        bind: Callable[[str, str, Handler], None],
        events: Callable[[event_hub.Listener], None],
        clock: Callable[[], float],
        page: Callable[[str, str, Show], None],
    ) -> None:
        self.name: Final = name
        """As it is in the configuration: `module:object`."""
        self.inbound: Final = inbound
        self.session: Final = session
        """Subscribe: a session inside the broker, kept if it has a client identifier and an expiry."""
        self.clock: Final = clock
        """Monotonic seconds of the broker."""
        self.log: Final = logging.getLogger(f"mqttlite.extensions.{name.partition(':')[0]}")
        self.events: Final = events
        """Register an `event_hub.Listener`, which is told what happens to clients."""
        self._bind: Final = bind
        self._page: Final = page

    def bind(self, topic_filter: str, handler: Handler) -> None:
        """Call `handler` with each message of a filter, one after the other; it may be a coroutine function.

        A publisher of QoS 1 or 2 is acknowledged when the handler is done, and with 0x83 if it raises. At most
        `handler_sink.MAX_WAITING` messages wait; one more is refused with 0x97. Raises `ValueError` for a wrong filter.
        """
        self._bind(self.name, topic_filter, handler)

    def page(self, name: str, title: str, show: Show) -> None:
        """Add a page to the dashboard, at `/ui/x/<name>` and in the menu. `show` returns its content as HTML, for each
        request: it escapes what it puts in, and is quick, because nothing else runs meanwhile.

        The page is for viewers, and runs no scripts or styles of its own. Without `[http]` nobody sees it. Raises
        `ValueError` for a name that is wrong or taken, and for more than `pages.MAX_PAGES` pages.
        """
        self._page(name, title, show)
