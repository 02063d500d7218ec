"""The objects that every group uses: the core, the loop driver, the store, the clocks and the event hub.

It does not know the groups. It gets callables for questions that only they can answer.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Final

from mqttlite.config import Config
from mqttlite.core.broker import Broker as Core
from mqttlite.core.ports import Store
from mqttlite.core.question import Authenticate, LoadEntries, LoadPage, Locate, Question
from mqttlite.event_hub import MEMORY_SHORT, STORE_FAILING, EventHub
from mqttlite.extensions.namespaces import NAMESPACES
from mqttlite.filters import Filters
from mqttlite.net.clock_watch import ClockWatch
from mqttlite.net.link import LinkPort
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.net.memory_limit import usable_memory
from mqttlite.net.queue_reader import QueueReader
from mqttlite.operations.overload_watch import OverloadWatch
from mqttlite.operations.standstill import StandstillWatch
from mqttlite.telemetry.timing import LoopLag, TimedStore
from mqttlite.telemetry.wall import Wall

_log = logging.getLogger("mqttlite")


class Runtime:
    """Made on the running loop. `on_connected`, `authenticate` and `locate` are called with links and questions of the
    core."""

    def __init__(
        self,
        config: Config,
        store: Store,
        *,
        on_connected: Callable[[LinkPort], None],
        authenticate: Callable[[Authenticate], None],
        locate: Callable[[Locate], None],
    ) -> None:
        self.config: Final = config
        self.loop: Final = asyncio.get_running_loop()
        self.clock: Final = self.loop.time
        """The broker's seconds, for calls of the core."""
        self.broker_id: Final = secrets.token_hex(8)
        self.wall: Final = Wall(self.clock())
        self.hub: Final = EventHub()
        self.filters: Final = Filters()
        limits = config.limits
        if not limits.max_memory_bytes:
            limits = replace(limits, max_memory_bytes=usable_memory() // 2)
        self.core: Final = Core(
            limits,
            f"mqttlite-{self.broker_id}-",
            {**config.share_policies},
            pages=store.pages,
            retained_expiry_s={key.encode(): seconds for key, seconds in config.retained_expiry_s.items()},
            wall_ahead_us=self.wall.ahead_us,
            filters=self.filters,
            overload_limits=config.overload,
            namespaces=NAMESPACES,
            newest_retained=config.newest_retained or config.nodes is not None,
        )
        self.core.permissions.on_denied = self._on_denied
        self.store: Final = TimedStore(store, lambda failing, error: self.hub.on_alarm(STORE_FAILING, failing, error))
        self._authenticate: Final = authenticate
        self._locate: Final = locate
        self.loop_driver: Final = LoopDriver(
            self.core,
            self.store,
            on_connected=on_connected,
            on_closed=self.hub.on_ended,
            on_question=self._on_question,
            on_memory_short=self._on_memory_short,
        )
        self.loop_driver.shedding.on_shed = self.hub.on_shed
        self._overload_watch: Final = OverloadWatch(self.core, self.hub, self.loop_driver, self.clock)
        self._standstill_watch: Final = StandstillWatch(self.hub, self.clock)
        self.lag: Final = LoopLag(self._on_lag)
        self.clock_watch: Final = ClockWatch(self._on_clock_step)
        self.queue_reader: Final = QueueReader(self.store, self.loop_driver, self.answer)

    def _on_lag(self, lag_s: float) -> bool:
        self._standstill_watch.on_lag(lag_s)
        return self._overload_watch.on_lag(lag_s)

    def _on_denied(self, client_id: str, username: str | None, action: str, topic: bytes, reason: str) -> None:
        session = self.core.sessions.get(client_id)
        outbox = None if session is None else session.outbox
        link = None if outbox is None else self.loop_driver.links.get(outbox.number)
        self.hub.on_denied(client_id, username, action, topic, reason, link)

    def utc_now(self) -> datetime:
        """The UTC time of this iteration of the loop."""
        return self.wall.at(self.clock())

    async def commit(self) -> None:
        """Carry out the effects of a change from inside the process, and wait until they are committed."""
        self.loop_driver.run()
        await self.loop_driver.settled()

    def answer(self, question_id: int, answer: object) -> None:
        """Answer a question of the core."""
        self.core.answer(question_id, answer, self.clock())
        self.loop_driver.wake()

    def _on_question(self, question: Question) -> None:
        if isinstance(question, (LoadPage, LoadEntries)):
            self.queue_reader.read(question)
            return
        if isinstance(question, Locate):
            self._locate(question)
            return
        assert isinstance(question, Authenticate)
        self._authenticate(question)

    def _on_clock_step(self, stepped_s: float) -> None:
        self.core.follow_wall(stepped_s)
        self.loop_driver.wake()

    def _on_memory_short(self, is_short: bool, detail: str) -> None:
        if is_short:
            _log.warning("%s are used (limits.max_memory_bytes): slow clients lose QoS 0 messages", detail)
        else:
            _log.warning("%s are used: there is enough again", detail)
        self.hub.on_alarm(MEMORY_SHORT, is_short, detail)
