"""Builds the reports of the broker's state: reports and metrics, `$SYS`, presence and the log of connections.

To add a listener to events, add a line in `Telemetry.event_listeners`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.delivery import Delivery
from mqttlite.assembly.network import Network
from mqttlite.assembly.runtime import Runtime
from mqttlite.assembly.tracing import Tracing
from mqttlite.event_hub import Listener
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.operations.reports import Reports
from mqttlite.security.topic_policies import TopicPolicies
from mqttlite.telemetry.alarms import Alarms
from mqttlite.telemetry.client_events import ClientEvents
from mqttlite.telemetry.connection_log import ConnectionLog
from mqttlite.telemetry.counters import ConnectionCounters
from mqttlite.telemetry.following import Following
from mqttlite.telemetry.publish_queue import PublishQueue
from mqttlite.telemetry.recent_events import RecentEvents
from mqttlite.telemetry.snapshot import Snapshots
from mqttlite.telemetry.sys_topics import SysTopics

if TYPE_CHECKING:
    from mqttlite.extensions.presence.presence import TopicPresence
    from mqttlite.extensions.schemas.schemas import Schemas
    from mqttlite.extensions.streams.archive import Archive
    from mqttlite.extensions.streams.service import Streams


class Telemetry:
    """`not_ready` returns a sentence that says why no clients may connect. `node` is the name of this machine of a
    cluster or of this node, None for a broker alone; `is_node` tells whether another node has a name."""

    def __init__(
        self,
        runtime: Runtime,
        delivery: Delivery,
        schemas: "Schemas | None",
        streams: "Streams | None",
        archive: "Archive | None",
        network: Network,
        not_ready: Callable[[], str],
        node: str | None,
        is_node: Callable[[str], bool],
    ) -> None:
        self._runtime: Final = runtime
        self._certificates: Final = network.certificates
        self.counters: Final = ConnectionCounters(runtime.core)
        links = runtime.loop_driver.links
        self.snapshots: Final = Snapshots(runtime.core, lambda: list(links.values()), self.counters, runtime.clock)
        self.reports: Final = Reports(
            *(self.snapshots, network.listeners, network.certificates, runtime.store, runtime.lag),
            following=Following(lambda filters, clients: self.tracing.follow(filters, clients)),
            broker_id=runtime.broker_id,
            not_ready=not_ready,
        )
        if schemas is not None:
            self.reports.of_extensions.show(BUILT_IN["schemas"].figures, schemas.figures)
        if streams is not None:
            from mqttlite.extensions.streams.figures import StreamFigures

            stream_figures = StreamFigures(streams, archive, runtime.clock)
            self.reports.of_extensions.show(
                BUILT_IN["streams"].figures, stream_figures.values, stream_figures.sys_values
            )
        queueing = delivery.queueing
        if queueing is not None:
            self.reports.of_extensions.show(
                BUILT_IN["queues"].figures, queueing.figures.values, queueing.figures.sys_values
            )
        if queueing is not None and delivery.push is not None:
            from mqttlite.extensions.push import figures as push

            self.reports.of_extensions.show(
                BUILT_IN["push"].figures,
                partial(push.values, delivery.push, queueing.queues, delivery.push_latency),
                partial(push.sys_values, delivery.push, queueing.queues),
            )
        self.recent_events: Final = RecentEvents(runtime.utc_now)
        """For the dashboard and the `why` command."""
        self.tracing: Final = Tracing(runtime, queueing, streams, self.reports, self.recent_events, node, is_node)
        self._publish_queue: Final = PublishQueue(runtime.core, runtime.loop_driver.wake, runtime.clock)
        if "delayed" in BUILT_IN:
            from mqttlite.extensions.delayed import figures as delayed

            self.reports.of_extensions.show(BUILT_IN["delayed"].figures, partial(delayed.values, runtime.core.delayed))
        self._topic_presence: TopicPresence | None = None
        """None where no topic policy ever asked for it."""
        self._sys_topics: asyncio.Task[None] | None = None

    def event_listeners(self) -> list[Listener]:
        """The listeners to events, in order. Call it after the files are open."""
        runtime, options = self._runtime, self._runtime.config.sys
        found: list[Listener] = [self.counters, ConnectionLog(), self.reports]
        config = runtime.config
        if config.http is not None or config.metrics is not None or config.delivery_log is not None:
            found.append(self.recent_events)
        found += self.tracing.event_listeners()
        if options.interval_s:
            found.append(Alarms(self._publish_queue, runtime.utc_now))
        if options.presence:
            found.append(ClientEvents(runtime.core, self._publish_queue, runtime.wall.offset))
        return found

    def start_sys_topics(self) -> None:
        """Start to publish `$SYS`, if the config says so."""
        runtime, interval_s = self._runtime, self._runtime.config.sys.interval_s
        if interval_s:
            sys_topics = SysTopics(
                *(self.snapshots, self._publish_queue, interval_s, runtime.clock()),
                certificates=self._certificates.ends_at,
                of_extensions=self.reports.of_extensions.sys_values,
            )
            self._sys_topics = runtime.loop.create_task(sys_topics.run())

    def on_policies(self, policies: TopicPolicies) -> None:
        """Start to publish presence with the first policy that asks for it."""
        if self._topic_presence is None:
            if not policies.ask_for_presence:
                return
            from mqttlite.extensions.presence.presence import TopicPresence

            runtime = self._runtime
            self._topic_presence = TopicPresence(
                *(runtime.core, self._publish_queue, policies, runtime.clock, runtime.wall.at)
            )
            runtime.hub.register(self._topic_presence)
            self.tracing.trace()
            self.reports.of_extensions.show(BUILT_IN["presence"].figures, self._topic_presence.figures)
        self._topic_presence.on_policies(policies)

    async def stop_publishing(self) -> None:
        """Stop to publish, before the end of the broker itself would be published."""
        if self._topic_presence is not None:
            self._topic_presence.stop()
        if self._sys_topics is not None:
            self._sys_topics.cancel()
            await asyncio.wait([self._sys_topics])

    async def close_files(self, within_s: float) -> None:
        """Write the remaining rows. Call it after all connections are closed."""
        self._publish_queue.clear()
        await self.tracing.close(within_s)

    async def stop_reports(self) -> None:
        """Stop the reports."""
        self.reports.following.stop()
        self._runtime.lag.stop()
        self._runtime.clock_watch.stop()
        await self.snapshots.stop()
