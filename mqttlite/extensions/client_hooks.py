"""Asks the hooks of extensions about clients.

Invariant: a hook that raises or is late refuses the client or subscription, unless it was registered otherwise.
"""

from collections.abc import Awaitable
from typing import Final

from mqttlite.core.authentication import Verdict
from mqttlite.core.source import Source
from mqttlite.event_hub import Link, Listener
from mqttlite.extensions.client_hook import (
    ConnectHook,
    ConnectingClient,
    DisconnectedClient,
    DisconnectHook,
    SubscribeHook,
    Subscribing,
)
from mqttlite.extensions.hook_failures import HookFailed, HookFailures, in_time
from mqttlite.extensions.publish_hook import Reject
from mqttlite.wire.reason_codes import ReasonCode

_ACCEPTED: Final = Verdict(0)
_FAILED: Final = "a hook of the broker failed"
_REFUSED: Final = "refused by a hook"

_CONNACK_CODES: Final = frozenset({0x86, 0x87, 0x88, 0x89, 0x9F})
_SUBACK_CODES: Final = frozenset({0x80, 0x83, 0x87, 0x97})
"""The reason codes of a `Reject` that these packets may have. Others become 0x87 and 0x83."""


class ConnectHooks:
    """A question about each client that would be accepted."""

    def __init__(self, failures: HookFailures) -> None:
        self._failures: Final = failures
        self._hooks: Final[list[ConnectHook]] = []

    def add(self, hook: ConnectHook) -> None:
        self._hooks.append(hook)
        self._failures.counts[hook.name] += 0

    async def verdict(self, link: Link, username: str | None) -> Verdict:
        """What the hooks say about a client: the first refusal, or 0."""
        connection = link.connection
        client = ConnectingClient(connection.client_id, username, link.address, link.listener)
        for hook in self._hooks:
            try:
                result = hook.function(client)
                if isinstance(result, Awaitable):
                    result = await in_time(result, hook.deadline_s)
                refusal = _checked(result)
            except Exception as error:  # the program's own code may raise anything
                done = "accepted" if hook.accepts_on_error else "refused"
                self._failures.note(hook.name, error, f"client {client.client_id!r} is {done}")
                if not hook.accepts_on_error:
                    return Verdict(ReasonCode.SERVER_UNAVAILABLE, reason=_FAILED)
                continue
            if refusal is not None:
                code = refusal.code if refusal.code in _CONNACK_CODES else ReasonCode.NOT_AUTHORIZED
                return Verdict(code, reason=refusal.reason or _REFUSED)
        return _ACCEPTED


class SubscribeHooks:
    """A question about each subscription that would be granted."""

    def __init__(self, failures: HookFailures) -> None:
        self._failures: Final = failures
        self._hooks: Final[list[SubscribeHook]] = []

    def add(self, hook: SubscribeHook) -> None:
        self._hooks.append(hook)
        self._failures.counts[hook.name] += 0

    def refusal(self, source: Source, topic_filter: bytes, qos: int) -> tuple[int, str]:
        """Implements `core.hook.SubscriptionHook`."""
        asked = Subscribing(source.client_id, source.username, topic_filter.decode(), qos)
        for hook in self._hooks:
            try:
                refusal = _checked(hook.function(asked))
            except Exception as error:  # the program's own code may raise anything
                done = "granted" if hook.accepts_on_error else "refused"
                what = f"the subscription of {asked.client_id!r} to {asked.topic_filter!r} is {done}"
                self._failures.note(hook.name, error, what)
                if not hook.accepts_on_error:
                    return ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR, _FAILED
                continue
            if refusal is not None:
                code = refusal.code if refusal.code in _SUBACK_CODES else ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR
                return code, refusal.reason or _REFUSED
        return 0, ""


class DisconnectListener(Listener):
    """Tells a hook which clients are gone."""

    def __init__(self, hook: DisconnectHook, failures: HookFailures) -> None:
        self._hook: Final = hook
        self._failures: Final = failures
        failures.counts[hook.name] += 0

    def on_closed(self, link: Link) -> None:
        connection = link.connection
        if connection.peer.is_inside:
            return
        client = DisconnectedClient(
            connection.client_id, connection.username, link.address, link.listener, connection.close_reason.value
        )
        try:
            self._hook.function(client)
        except Exception as error:  # the program's own code may raise anything
            self._failures.note(self._hook.name, error, f"client {client.client_id!r} has gone all the same")


def _checked(result: object) -> Reject | None:
    """The result of a hook. Raises `HookFailed` for another."""
    if result is None or isinstance(result, Reject):
        return result
    if isinstance(result, Awaitable):
        close = getattr(result, "close", None)
        if close is not None:
            close()
        raise HookFailed("is a coroutine, and must be a plain function")
    raise HookFailed(f"returned {type(result).__name__}, and not None or a Reject")
