"""Hooks as a program writes them: functions that get each message of a topic filter before it is published.

```python
hooks = Hooks()


@hooks.on_publish("plant/+/temp")
def round_it(message: Incoming) -> Incoming:
    return message.replace(payload=b"%.1f" % float(message.payload))
```
"""

from collections.abc import Callable
from typing import Final, Literal, TypeVar

from mqttlite.extensions.host import Host
from mqttlite.extensions.publish_hook import OnPublish, PublishHook, check_hook_filter

DEADLINE_S: Final = 5.0
"""How long a coroutine may take for one message, unless its hook says otherwise."""

F = TypeVar("F", bound=OnPublish)


class Hooks:
    """An `Extension`: the hooks of one module, or of one class."""

    def __init__(self) -> None:
        self._on_publish: Final[list[PublishHook]] = []

    def on_publish(
        self, topic_filter: str, *, deadline_s: float = DEADLINE_S, on_error: Literal["reject", "accept"] = "reject"
    ) -> Callable[[F], F]:
        """Decorate a function that gets each message to a topic of the filter before it is published.

        It returns None, a changed message (`Incoming.replace`) or a `Reject`. A coroutine may take `deadline_s`
        seconds; until it is done, the publisher's next messages wait. If the function raises or is late, the message is
        refused, or with `on_error="accept"` published unchanged. Hooks of one topic run in the order in which they were
        registered. Raises `ValueError` for a wrong filter or option.
        """
        name = check_hook_filter(topic_filter)
        if not 0 < deadline_s < float("inf"):
            raise ValueError(f"on_publish: deadline_s is {deadline_s!r}: more than 0, and finite")
        if on_error not in ("reject", "accept"):
            raise ValueError(f"on_publish: on_error is {on_error!r}: it may be 'reject' or 'accept'")

        def register(function: F) -> F:
            called = f"{function.__module__}.{function.__qualname__}"
            self._on_publish.append(PublishHook(called, name, function, deadline_s, on_error == "accept"))
            return function

        return register

    async def start(self, host: Host) -> None:
        """Implements `Extension`."""
        for hook in self._on_publish:
            host.inbound.add_hook(hook)
