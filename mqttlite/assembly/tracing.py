"""Opens the dataset, and builds the tracers of messages: for the dataset, the delivery log, or a trace at run time.

Invariant: while nothing is traced, the core has a tracer only if a listener to events needs one.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.runtime import Runtime
from mqttlite.event_hub import CoreTracer, Listener, NoMessages
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.operations.reports import Reports
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.telemetry.observer import Observer
from mqttlite.telemetry.recent_events import RecentEvents

if TYPE_CHECKING:
    from mqttlite.extensions.dataset.dataset import Dataset
    from mqttlite.extensions.dataset.start import RunningDataset
    from mqttlite.extensions.queues.queueing import Queueing
    from mqttlite.extensions.streams.service import Streams
    from mqttlite.telemetry.queue_attempts import QueueAttempts


class Tracing:
    """The constructor raises nothing; `open` may. `node` is the name of this machine of a cluster or of this node,
    None for a broker alone; `is_node` tells whether another node has a name."""

    def __init__(
        self,
        runtime: Runtime,
        queueing: "Queueing | None",
        streams: "Streams | None",
        reports: Reports,
        recent_events: RecentEvents,
        node: str | None,
        is_node: Callable[[str], bool],
    ) -> None:
        self._runtime: Final = runtime
        self._queueing: Final = queueing
        self._streams: Final = streams
        self._reports: Final = reports
        self._recent_events: Final = recent_events
        self._node: Final = node
        self._is_node: Final = is_node
        self._dataset: RunningDataset | None = None
        self.observer: Observer | None = None
        """Traces messages permanently; None without a dataset and delivery log."""
        self._follower: Observer | None = None
        """Serves traces at run time if there is no permanent observer."""

    def open(self) -> None:
        """Open the files. Raises `ConfigError`."""
        runtime, reports = self._runtime, self._reports
        config = runtime.config
        if config.telemetry is not None:
            from mqttlite.extensions.dataset.start import RunningDataset

            dataset = self._dataset = RunningDataset(
                *(config.telemetry, runtime.core, runtime.loop_driver.links, runtime.broker_id, runtime.wall),
                clock=runtime.clock,
                node=self._node,
                is_node=self._is_node,
                groups=None if self._streams is None else self._streams.group_readings,
            )
            reports.of_extensions.show(BUILT_IN["dataset"].figures, dataset.figures)
        reports.dataset = self.files
        if self._dataset is None and config.delivery_log is None:
            return
        observer = self.observer = self._new_observer(config.delivery_log)
        reports.latency = lambda: observer.latency
        reports.oldest_unacknowledged_s = observer.oldest_unacknowledged_s
        self._show(observer)
        observer.start()
        if self._dataset is not None:
            self._dataset.recorder.start(sum(listener.max_connections for listener in config.listeners))

    @property
    def files(self) -> "Dataset | None":
        """The writer of the dataset; None if there is none."""
        return None if self._dataset is None else self._dataset.dataset

    async def close(self, within_s: float) -> None:
        """Write the remaining rows. Call it after all connections are closed."""
        self._runtime.core.watch(None)
        if self.observer is not None:
            await self.observer.stop()
        if self._dataset is not None:
            await self._dataset.close(within_s)

    def event_listeners(self) -> list[Listener]:
        """The listeners that write events."""
        found: list[Listener] = [] if self.observer is None else [self.observer]
        return found if self._dataset is None else [*found, *self._dataset.listeners]

    def trace(self) -> None:
        """Set a tracer in the core if a listener needs the events that only tracers get."""
        messages = self._follower if self.observer is None else self.observer
        hub = self._runtime.hub
        if messages is not None or hub.needs_tracer:
            self._runtime.core.watch(CoreTracer(hub, NoMessages() if messages is None else messages))

    def follow(self, filters: frozenset[bytes], clients: frozenset[str]) -> None:
        """Set the filters and clients to trace at run time; with none of them, the tracing ends."""
        core, hub = self._runtime.core, self._runtime.hub
        if self.observer is not None:
            self.observer.follow(filters, clients)
            core.ask_tracer_again()
            return
        follower = self._follower = self._follower or self._new_observer(DeliveryLogOptions(sampled=False))
        follower.follow(filters, clients)
        hub.unregister(follower)
        if filters or clients:
            hub.register(follower)
            self._show(follower)
            core.watch(CoreTracer(hub, follower))
        else:
            core.watch(CoreTracer(hub, NoMessages()) if hub.needs_tracer else None)
            self._watch_attempts(None)

    def _new_observer(self, delivery_log: DeliveryLogOptions | None) -> Observer:
        runtime = self._runtime
        return Observer(
            *(runtime.core, runtime.wall),
            clock=runtime.clock,
            recorder=None if self._dataset is None else self._dataset.recorder,
            delivery_log_options=delivery_log,
            recent_events=self._recent_events,
        )

    def _show(self, observer: Observer) -> None:
        """Connect an observer to the writer, to queues and shared groups, and to `why`."""
        self._runtime.loop_driver.writer.on_written = observer.on_written
        self._watch_attempts(observer.attempts)
        self._reports.answers = lambda: observer.answers

    def _watch_attempts(self, attempts: "QueueAttempts | None") -> None:
        if self._queueing is not None:
            self._queueing.queues.watch(attempts)
        if self._streams is not None:
            self._streams.watch(attempts)
