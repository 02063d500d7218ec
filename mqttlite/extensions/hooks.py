"""Hooks as a program writes them: functions that are asked before a message is published, a client accepted or a
subscription granted.

```python
hooks = Hooks()


@hooks.on_publish("plant/+/temp")
def round_it(message: Incoming) -> Incoming:
    return message.replace(payload=b"%.1f" % float(message.payload))
```
"""

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar

from mqttlite.extensions.client_hook import (
    ConnectHook,
    DisconnectHook,
    OnConnect,
    OnDisconnect,
    OnSubscribe,
    SubscribeHook,
)
from mqttlite.extensions.host import Hook, Host
from mqttlite.extensions.publish_hook import OnPublish, PublishHook, check_hook_filter

DEADLINE_S: Final = 5.0
"""How long a coroutine may take for one message or client, unless its hook says otherwise."""

OnError = Literal["reject", "accept"]
F = TypeVar("F", bound=OnPublish)
C = TypeVar("C", bound=OnConnect)
S = TypeVar("S", bound=OnSubscribe)
D = TypeVar("D", bound=OnDisconnect)


class Hooks:
    """An `Extension`: the hooks of one module, or of one class."""

    def __init__(self) -> None:
        self._hooks: Final[list[Hook]] = []

    def on_publish(
        self, topic_filter: str, *, deadline_s: float = DEADLINE_S, on_error: OnError = "reject"
    ) -> Callable[[F], F]:
        """Decorate a function that gets each message to a topic of the filter before it is published.

        It returns None, a changed message (`Incoming.replace`) or a `Reject`. A coroutine may take `deadline_s`
        seconds; until it is done, the publisher's next messages wait. If the function raises or is late, the message is
        refused, or with `on_error="accept"` published unchanged. Hooks of one topic run in the order in which they were
        registered. Raises `ValueError` for a wrong filter or option.
        """
        name = check_hook_filter(topic_filter)
        accepts = _accepts("on_publish", deadline_s, on_error)

        def register(function: F) -> F:
            self._hooks.append(PublishHook(_name(function), name, function, deadline_s, accepts))
            return function

        return register

    def on_connect(self, *, deadline_s: float = DEADLINE_S, on_error: OnError = "reject") -> Callable[[C], C]:
        """Decorate a function that gets each client (`ConnectingClient`) whose login succeeded, before it is accepted.

        It returns None, or a `Reject`. A coroutine may take `deadline_s` seconds; if the function raises or is late,
        the client is refused with 0x88, or with `on_error="accept"` accepted. The first refusal ends the chain. The
        program's own sessions and callers over HTTP, who send no CONNECT, are not asked about. Raises `ValueError` for
        a wrong option.
        """
        accepts = _accepts("on_connect", deadline_s, on_error)

        def register(function: C) -> C:
            self._hooks.append(ConnectHook(_name(function), function, deadline_s, accepts))
            return function

        return register

    def on_subscribe(self, *, on_error: OnError = "reject") -> Callable[[S], S]:
        """Decorate a function that gets each subscription (`Subscribing`) that the rules allow, before it is granted.

        It returns None, or a `Reject`, and is no coroutine: a SUBSCRIBE is answered at once. If it raises, the
        subscription is refused with 0x83, or with `on_error="accept"` granted. Subscriptions of kept sessions are asked
        about when they are made, not when their client comes back; the program's own are not asked about. Raises
        `ValueError` for a wrong option.
        """
        accepts = _accepts("on_subscribe", DEADLINE_S, on_error)

        def register(function: S) -> S:
            self._hooks.append(SubscribeHook(_name(function), function, accepts))
            return function

        return register

    def on_disconnect(self) -> Callable[[D], D]:
        """Decorate a function that gets each accepted client whose connection has ended (`DisconnectedClient`).

        The program's own sessions, and callers over HTTP, are left out.
        """

        def register(function: D) -> D:
            self._hooks.append(DisconnectHook(_name(function), function))
            return function

        return register

    async def start(self, host: Host) -> None:
        """Implements `Extension`."""
        for hook in self._hooks:
            host.inbound.add_hook(hook)


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _accepts(decorator: str, deadline_s: float, on_error: str) -> bool:
    """Whether a hook accepts on an error. Raises `ValueError` for a wrong option."""
    if not 0 < deadline_s < float("inf"):
        raise ValueError(f"{decorator}: deadline_s is {deadline_s!r}: more than 0, and finite")
    if on_error not in ("reject", "accept"):
        raise ValueError(f"{decorator}: on_error is {on_error!r}: it may be 'reject' or 'accept'")
    return on_error == "accept"
