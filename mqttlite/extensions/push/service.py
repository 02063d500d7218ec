"""Manages the pushers of all queues: starts and stops them as queues are created, changed and deleted.

Invariant: a queue with a target has exactly one active pusher, unless its push is stopped.
"""

import asyncio
import importlib
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Final

from mqttlite.extensions.push.guard import Guard
from mqttlite.extensions.push.pusher import Latency, NotReady, Pusher, Sender
from mqttlite.extensions.queues.errors import NoSuchQueue
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.push_state import PushState
from mqttlite.extensions.queues.push_target import PushTarget, Target
from mqttlite.extensions.queues.service import Queues

CONSUMER: Final = "push"
"""The name of a pusher in place of a client identifier."""

MAX_SHOWN: Final = 20
"""The most queues that an alarm names."""

STALE_S: Final = 5.0
"""How long a seek waits for open requests whose messages it took back. After that they are cancelled, and the endpoint
may or may not have the messages."""

_log = logging.getLogger("mqttlite.push")


class Push:
    """`committed` waits until all changes are committed, `wake` makes the loop driver carry out effects, and
    `subscription_of` returns the name of a queue in bodies. `on_alarm` is called with whether a push is stopped or
    cannot begin, and of which queues."""

    def __init__(
        self,
        queues: Queues,
        guard: Guard,
        *,
        make_tls: Callable[[], ssl.SSLContext],
        committed: Callable[[], Awaitable[None]],
        wake: Callable[[], None],
        clock: Callable[[], float],
        latency: Latency,
        subscription_of: Callable[[str], str],
        on_alarm: Callable[[bool, str], None],
    ) -> None:
        self._queues: Final = queues
        self._guard: Final = guard
        self._make_tls: Final = make_tls
        self._committed: Final = committed
        self._wake: Final = wake
        self._clock: Final = clock
        self._latency: Final = latency
        self._subscription_of: Final = subscription_of
        self._on_alarm: Final = on_alarm
        self._pushers: Final[dict[str, Pusher]] = {}
        self._retired: Final[set[Pusher]] = set()
        self._ends: Final[set[asyncio.Task[None]]] = set()
        self._tls: asyncio.Future[ssl.SSLContext] | None = None
        self._stopped: Final[dict[str, str]] = {}
        """The reason for each queue whose push is stopped."""

    def start(self) -> None:
        """Push from now on."""
        self._queues.on_changed.append(self._on_changed)
        for name in self._queues.names:
            self._on_changed(name)

    async def finish(self) -> None:
        """Take no more messages, and wait for open requests."""
        self._retire_all()
        if self._ends:
            await asyncio.wait(list(self._ends))

    async def abort(self) -> None:
        """Cancel open requests. Their messages go back to their queues."""
        self._retire_all()
        await asyncio.gather(*(each.abort() for each in list(self._retired)))
        if self._ends:
            await asyncio.wait(list(self._ends))

    def state(self, name: str) -> PushState | None:
        """The state of a queue's push; None for a queue without one. Raises `NoSuchQueue`."""
        target = self._queues.options(name).push
        if target is None:
            return None
        pusher = self._pushers.get(name)
        why = self._queues.push_stopped(name)
        state = "stopped"
        if not why and pusher is not None:
            why = pusher.trouble or pusher.latest_failure
            is_failing = bool(pusher.trouble) or pusher.window.is_failing
            state = "waiting" if pusher.held_s else "failing" if is_failing else "pushing"
        return PushState(
            url=target.url,
            state=state,
            why=why,
            open=0 if pusher is None else pusher.open,
            window=0 if pusher is None else pusher.window.size,
            held_s=0.0 if pusher is None else round(pusher.held_s, 1),
            secrets=bool(target.secret) + bool(target.previous_secret),
            requests={} if pusher is None else dict(pusher.results),
        )

    async def end_stale(self, name: str) -> None:
        """Wait until no request is open with a message that a seek took back, so that no older message arrives
        later."""
        pushers = [each for each in self._retired if each.queue == name]  # from its former target
        if name in self._pushers:
            pushers.append(self._pushers[name])
        await asyncio.gather(*(each.end_stale(STALE_S) for each in pushers))

    # ------------------------------------------------------------------ inside

    def _on_changed(self, name: str) -> None:
        """A queue was created, changed or deleted."""
        options: QueueOptions | None = None
        why = ""
        try:
            options, why = self._queues.options(name), self._queues.push_stopped(name)
        except NoSuchQueue:
            pass
        self._note_stop(name, why)
        wanted = None if options is None or why else options.push
        pusher = self._pushers.get(name)
        if pusher is not None and options is not None and pusher.target == wanted:
            pusher.deadline_s = options.ack_deadline_s
            self._note_stop(name, pusher.trouble)
            pusher.retry()
            return
        if pusher is not None:
            self._retire(name)
        if wanted is not None and options is not None:
            self._begin(options, wanted)

    def _begin(self, options: QueueOptions, target: PushTarget) -> None:
        name = options.name

        async def connect() -> Sender:
            return await self._connect(target.target)

        pusher = self._pushers[name] = Pusher(
            queue=name,
            subscription=self._subscription_of(name),
            target=target,
            feed=self._queues.feed(name, CONSUMER, self._wake),
            connect=connect,
            committed=self._committed,
            deadline_s=options.ack_deadline_s,
            latency=self._latency,
            clock=self._clock,
            wall=time.time,
            on_gone=lambda why: self._on_gone(name, target, why),
            on_trouble=lambda: self._on_trouble(name),
        )
        pusher.begin()

    def _retire_all(self) -> None:
        if self._on_changed in self._queues.on_changed:
            self._queues.on_changed.remove(self._on_changed)
        for name in list(self._pushers):
            self._retire(name)

    def _retire(self, name: str) -> None:
        pusher = self._pushers.pop(name)
        pusher.retire()
        self._retired.add(pusher)
        task = asyncio.get_running_loop().create_task(pusher.finished())
        self._ends.add(task)

        def forget(done: asyncio.Task[None]) -> None:
            self._ends.discard(done)
            self._retired.discard(pusher)

        task.add_done_callback(forget)

    def _on_gone(self, name: str, target: PushTarget, why: str) -> None:
        try:
            if self._queues.options(name).push != target:
                return  # the operator has set another target meanwhile
        except NoSuchQueue:
            return
        _log.error("queue %s is not pushed any more: %s; `mqttlite queue resume` begins again", name, why)
        self._queues.stop_push(name, why)
        self._wake()

    def _on_trouble(self, name: str) -> None:
        pusher = self._pushers.get(name)
        if pusher is not None:
            self._note_stop(name, pusher.trouble)

    def _note_stop(self, name: str, why: str) -> None:
        if self._stopped.get(name, "") == why:
            return
        self._stopped.pop(name, None)
        if why:
            self._stopped[name] = why
        shown = [f"{each}: {reason}" for each, reason in sorted(self._stopped.items())[:MAX_SHOWN]]
        self._on_alarm(bool(shown), "; ".join(shown))

    async def _connect(self, target: Target) -> Sender:
        """Create the connections to an endpoint. Slow imports run in a thread, once."""
        endpoint = await asyncio.to_thread(importlib.import_module, "mqttlite.extensions.push.endpoint")
        tls = None
        if target.scheme == "https":
            if self._tls is None:
                self._tls = asyncio.ensure_future(asyncio.to_thread(self._make_tls))
            made_by = self._tls
            try:
                tls = await asyncio.shield(made_by)
            except (OSError, ValueError) as error:
                if self._tls is made_by:
                    self._tls = None  # or it would fail for good
                raise NotReady(str(error)) from None
        made: Sender = endpoint.Endpoint(target, self._guard, tls)
        return made
