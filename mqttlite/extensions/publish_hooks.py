"""Runs the hooks of extensions for the core.

Invariant: each question of the core has one answer, also when a hook raises, never ends, or the broker stops.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final

from mqttlite.core.hook import UNCHANGED, Hook, HookAnswer
from mqttlite.core.message import Message
from mqttlite.core.source import BROKER, Source
from mqttlite.extensions.ending import end
from mqttlite.extensions.hook_failures import HookFailed, HookFailures, in_time
from mqttlite.extensions.incoming import Incoming, incoming, outgoing
from mqttlite.extensions.publish_hook import PublishHook, Reject, Result
from mqttlite.extensions.published import check_properties
from mqttlite.topics.names import check_name, matches

FAILED: Final = 0x83
"""The reason code for a message whose hook raised or was late: *implementation specific error*."""

_PUBACK_CODES: Final = frozenset({0x80, 0x83, 0x87, 0x90, 0x97, 0x99})
"""The reason codes of a `Reject` that PUBACK may have. Others become `FAILED`."""

_CANCELLED: Final = HookAnswer(code=FAILED, reason="a hook of the broker was stopped", detail="its hook was stopped")


class PublishHooks:
    """A `HookFinder`. `clock` gives the broker's seconds; `answer` hands a late answer to the core."""

    def __init__(
        self, clock: Callable[[], float], failures: HookFailures, answer: Callable[[object, HookAnswer], None]
    ) -> None:
        self.clock: Final = clock
        self._failures: Final = failures
        self._answer: Final = answer
        self._hooks: Final[list[PublishHook]] = []
        self._running: Final[dict[asyncio.Task[HookAnswer], object]] = {}
        self.has_stopped: bool = False

    def add(self, hook: PublishHook) -> None:
        """Add a hook. The caller has the core forget its routes."""
        self._hooks.append(hook)
        self._failures.counts[hook.name] += 0

    def hook_of(self, topic: bytes) -> Hook | None:
        """Implements `HookFinder`."""
        found = [each for each in self._hooks if matches(each.topic_filter, topic)]
        return _Chain(self, found) if found else None

    def run_later(self, held: object, rest: Coroutine[None, None, HookAnswer]) -> None:
        """Answer the core when the rest of a chain is done."""
        task = asyncio.get_running_loop().create_task(rest)
        self._running[task] = held
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[HookAnswer]) -> None:
        if task in self._running:  # else `stop` did not wait any longer
            self._answer(self._running.pop(task), _CANCELLED if task.cancelled() else task.result())

    async def stop(self) -> None:
        """Refuse the messages whose hooks still run, and from now on those whose hooks are coroutines."""
        self.has_stopped = True
        await end(list(self._running), "a hook")
        while self._running:
            _, held = self._running.popitem()
            self._answer(held, _CANCELLED)

    def failed(self, hook: PublishHook, topic: str, error: BaseException) -> str:
        """Count and log a failure. Return the sentence for operators."""
        done = "published unchanged" if hook.accepts_on_error else "refused"
        return self._failures.note(hook.name, error, f"a message to {topic[:200]!r} is {done}")


class _Chain:
    """A `Hook`: all hooks of one topic."""

    def __init__(self, hooks: PublishHooks, chain: list[PublishHook]) -> None:
        self._hooks: Final = hooks
        self._chain: Final = chain

    def ask(self, message: Message, source: Source, held: object) -> HookAnswer | None:
        """Implements `Hook`: runs functions at once, and from the first coroutine on in a task."""
        if source.kind == BROKER:
            return UNCHANGED
        seen = current = incoming(message, source)
        for number, hook in enumerate(self._chain):
            try:
                result = hook.function(current)
            except Exception as error:  # the program's own code may raise anything
                if not hook.accepts_on_error:
                    return self._refused(hook, current, error)
                self._hooks.failed(hook, current.topic, error)
                continue
            if isinstance(result, Awaitable):
                if self._hooks.has_stopped:
                    if isinstance(result, Coroutine):
                        result.close()
                    return _CANCELLED
                self._hooks.run_later(held, self._rest(message, seen, current, number, result))
                return None
            answer = self._judge(hook, current, result)
            if isinstance(answer, HookAnswer):
                return answer
            current = answer
        return self._changed(message, seen, current)

    async def _rest(
        self, message: Message, seen: Incoming, current: Incoming, first: int, waits: Awaitable[Result]
    ) -> HookAnswer:
        """The answer of the hooks from number `first` on, of which that one was called and is awaited."""
        for number in range(first, len(self._chain)):
            hook = self._chain[number]
            try:
                result = waits if number == first else hook.function(current)
                if isinstance(result, Awaitable):
                    result = await in_time(result, hook.deadline_s)
            except Exception as error:
                if not hook.accepts_on_error:
                    return self._refused(hook, current, error)
                self._hooks.failed(hook, current.topic, error)
                continue
            answer = self._judge(hook, current, result)
            if isinstance(answer, HookAnswer):
                return answer
            current = answer
        return self._changed(message, seen, current)

    def _judge(self, hook: PublishHook, current: Incoming, result: Result) -> HookAnswer | Incoming:
        """What a hook's result makes of a message: the refusal, or the message for the next hook."""
        if result is None:
            return current
        if isinstance(result, Reject):
            reason = result.reason or "refused by a hook"
            code = result.code if result.code in _PUBACK_CODES else FAILED
            return HookAnswer(code=code, reason=reason, detail=f"hook {hook.name}: {reason}")
        try:
            return _checked(result)
        except HookFailed as error:
            if not hook.accepts_on_error:
                return self._refused(hook, current, error)
            self._hooks.failed(hook, current.topic, error)
            return current

    def _refused(self, hook: PublishHook, current: Incoming, error: Exception) -> HookAnswer:
        detail = self._hooks.failed(hook, current.topic, error)
        return HookAnswer(code=FAILED, reason="a hook of the broker failed", detail=detail)

    def _changed(self, message: Message, seen: Incoming, current: Incoming) -> HookAnswer:
        return UNCHANGED if current is seen else HookAnswer(outgoing(current, message, self._hooks.clock()))


def _checked(result: object) -> Incoming:
    """A message that a hook returned. Raises `HookFailed`."""
    if not isinstance(result, Incoming):
        raise HookFailed(f"returned {type(result).__name__}, and not None, an Incoming or a Reject")
    if not isinstance(result.topic, str) or not isinstance(result.payload, bytes):
        raise HookFailed(f"gave topic {type(result.topic).__name__} and payload {type(result.payload).__name__}")
    if result.qos not in (0, 1, 2) or not isinstance(result.retain, bool):
        raise HookFailed(f"gave qos {result.qos!r} and retain {result.retain!r}")
    try:
        check_name(result.topic.encode())
        check_properties(result.properties)
    except Exception as error:  # properties of wrong types raise whatever their encoding does
        raise HookFailed(f"gave a wrong topic or properties: {error}") from None
    return result
