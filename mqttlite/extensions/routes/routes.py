"""Sends messages to further topics, by rules of the configuration.

A route is a hook: the message is shown to it before it is published, and its copy is published first. So whoever is
acknowledged has the copy in the store. Invariant: a copy is not routed again, so routes make no loop.
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from mqttlite.extensions.hooks import DEADLINE_S
from mqttlite.extensions.host import Host
from mqttlite.extensions.incoming import Incoming
from mqttlite.extensions.publish_hook import CODES, PublishHook, Reject, Result
from mqttlite.extensions.routes.options import RouteOptions
from mqttlite.extensions.routes.template import Template, Unfilled
from mqttlite.filters import Fields, Filter
from mqttlite.telemetry.figures import Values
from mqttlite.topics.names import matches
from mqttlite.wire.properties import Properties

_REFUSED: Final = 0x80
"""Reason codes from here on refuse."""

_is_copying: Final = ContextVar("is_copying", default=False)
"""Whether what is published now is a copy."""

_OF_THE_ORIGINAL: Final = frozenset({"dedup-id", "acks"})
"""User properties that say something to the stream of the message itself: with them, its copy would take effect in its
place."""

_log: Final = logging.getLogger("mqttlite")


class Routes:
    """An `Extension`."""

    def __init__(self, options: Sequence[RouteOptions]) -> None:
        self._routes: Final = [_Route(each) for each in options]

    async def start(self, host: Host) -> None:
        """Implements `Extension`."""
        for route in self._routes:
            route.start(host)

    def figures(self) -> Mapping[str, Values]:
        """By the names in the manifest."""
        labels = [{"route": each.options.name} for each in self._routes]
        return {
            "routed": [(label, each.routed) for label, each in zip(labels, self._routes, strict=True)],
            "not_routed": [(label, each.unfilled) for label, each in zip(labels, self._routes, strict=True)],
        }


class _Route:
    """One of them."""

    def __init__(self, options: RouteOptions) -> None:
        self.options: Final = options
        self.routed: int = 0
        self.unfilled: int = 0
        self._to: Final = Template(options.to)
        self._where: Final = Filter(options.where) if options.where else None
        self._host: Host

    def start(self, host: Host) -> None:
        self._host = host
        filters = [each.encode() for each in self.options.filters]
        for number, each in enumerate(filters):
            send = partial(self._send, filters[:number])
            host.inbound.add_hook(PublishHook(f"route {self.options.name}", each, send, DEADLINE_S, False))

    def _send(self, earlier: Sequence[bytes], message: Incoming) -> Result | Awaitable[Result]:
        """Of a message that matches one of its filters. The first filter that it matches sends it."""
        if _is_copying.get() or any(matches(each, message.topic.encode()) for each in earlier):
            return None
        if self._where is not None:
            raw = message.topic.encode()
            if not self._where.matches(Fields(raw, message.payload, message.qos, message.retain, message.properties)):
                return None
        try:
            topic = self._to.fill(message.topic, message.payload, message.properties)
        except Unfilled as error:
            if not self.unfilled:  # the first one says what is wrong, and the metric how often
                _log.warning(
                    "route %s: %s: a message to %r is not routed", self.options.name, error, message.topic[:200]
                )
            self.unfilled += 1
            return None
        return self._copy(message, topic)

    async def _copy(self, message: Incoming, topic: str) -> Result:
        """Publish the copy. A message whose copy is refused is refused, so that its publisher sends it again."""
        _is_copying.set(True)  # of this task, which the broker made for this message
        properties = message.properties
        if any(name in _OF_THE_ORIGINAL for name, _value in properties.user_properties):
            fields: dict[str, Any] = dict(properties.present())
            fields["user_properties"] = [each for each in properties.user_properties if each[0] not in _OF_THE_ORIGINAL]
            properties = Properties(**fields)
        sent = await self._host.inbound.publish(
            topic, message.payload, qos=message.qos, retain=message.retain, properties=properties
        )
        if sent.reason_code < _REFUSED:
            self.routed += 1
            return None
        reason = sent.reason or f"0x{sent.reason_code:02X}"
        code = sent.reason_code if sent.reason_code in CODES else 0x83
        return Reject(code, f"the route {self.options.name} to {topic[:200]!r} is refused: {reason}")
