"""Builds the interfaces for operators: the admin object, the admin socket and the metrics port."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqttlite.assembly.delivery import Delivery
from mqttlite.assembly.logins import Logins
from mqttlite.assembly.runtime import Runtime
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.gateway.admin_socket import AdminSocket
from mqttlite.gateway.metrics_port import MetricsPort
from mqttlite.operations.admin import Admin
from mqttlite.operations.reports import Reports
from mqttlite.operations.shared_bans import FILE_NAME as BAN_FILE
from mqttlite.operations.surroundings import Surroundings

if TYPE_CHECKING:
    from mqttlite.extensions.bridge.bridges import Bridges
    from mqttlite.extensions.explain.explanations import Explanations
    from mqttlite.extensions.nodes.answering import Answering
    from mqttlite.extensions.nodes.nodes import Nodes
    from mqttlite.extensions.schemas.schemas import Schemas
    from mqttlite.extensions.streams.service import Streams
    from mqttlite.gateway.app import HttpApp
    from mqttlite.gateway.context import OperatorContext
    from mqttlite.gateway.elsewhere import Elsewhere
    from mqttlite.gateway.gateway import Gateway

_log = logging.getLogger("mqttlite")


class Administration:
    """Opens the admin socket if there is a data directory, and the metrics port if the config has `metrics`."""

    def __init__(
        self,
        runtime: Runtime,
        logins: Logins,
        delivery: Delivery,
        schemas: "Schemas | None",
        streams: "Streams | None",
        bridges: "Bridges | None",
        nodes: "Nodes | None",
        *,
        reports: Reports,
        reload: Callable[[], None],
        surroundings: Surroundings | None,
        gateway: "Callable[[], Gateway | None]",
    ) -> None:
        config = runtime.config
        self.admin: Final = Admin(
            *(runtime.core, runtime.loop_driver.links, runtime.loop_driver.run, runtime.clock, runtime.wall.at),
            runtime.queue_reader.page,
            None if nodes is None or config.data_dir is None else Path(config.data_dir, BAN_FILE),
        )
        self.explanations: Final = _explanations(runtime, logins)

        @functools.cache
        def context() -> "OperatorContext":
            from mqttlite.gateway.context import OperatorContext  # imported at the first connection, or by the gateway

            return OperatorContext(
                config=config,
                admin=self.admin,
                reports=reports,
                hub=runtime.hub,
                schemas=None if schemas is None else schemas.registry,
                streams=streams,
                bridges=bridges,
                nodes=nodes,
                queueing=delivery.queueing,
                surroundings=surroundings,
                explanations=self.explanations,
                read_page=runtime.queue_reader.page,
                read_entries=runtime.queue_reader.entries,
                commit=runtime.commit,
                reload=reload,
                elsewhere=_elsewhere(nodes, runtime),
            )

        self.context: Final[Callable[[], OperatorContext]] = context
        """What the routes for operators need."""

        if nodes is not None:
            nodes.calls.answer = _answering(context, gateway).answer

        self._socket: Final = AdminSocket(config.data_dir, context, runtime.clock) if config.data_dir else None
        self.monitor: Final = (
            None if config.metrics is None else MetricsPort(config.metrics, reports, context, runtime.clock)
        )

    async def open_socket(self) -> None:
        """Open the admin socket."""
        if self._socket is not None:
            await self._socket.open()

    async def close_socket(self) -> None:
        """Close the admin socket, so that operators can change nothing more."""
        if self._socket is not None:
            await self._socket.stop()

    async def start_monitor(self) -> None:
        """Start to serve metrics over HTTP."""
        if self.monitor is not None:
            await self.monitor.open()

    async def stop_monitor(self) -> None:
        """Stop to serve metrics."""
        if self.monitor is not None:
            await self.monitor.stop()

    def log_addresses(self) -> None:
        """Log the addresses of the metrics port."""
        if self.monitor is not None:
            for address in self.monitor.addresses:
                _log.info("metrics, health and status are at http://%s", address)


def _elsewhere(nodes: "Nodes | None", runtime: Runtime) -> "Elsewhere | None":
    """Answers what is about other nodes."""
    if nodes is None:
        return None
    from mqttlite.extensions.nodes.fleet import Fleet

    return Fleet(nodes, runtime.clock)


def _answering(context: "Callable[[], OperatorContext]", gateway: "Callable[[], Gateway | None]") -> "Answering":
    """Answers requests of other nodes."""
    from mqttlite.extensions.nodes.answering import Answering

    def build() -> "HttpApp":
        from mqttlite.gateway.operator_servers import build_node_app  # imported for the first request

        own = gateway()
        return build_node_app(context(), None if own is None else own.callers)

    return Answering(build)


def _explanations(runtime: Runtime, logins: Logins) -> "Explanations | None":
    if "explain" not in BUILT_IN:
        return None
    from mqttlite.extensions.explain.explanations import Explanations

    return Explanations(runtime.core, logins.explain, runtime.clock)
