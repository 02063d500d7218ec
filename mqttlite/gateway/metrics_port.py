"""The metrics port: a listener of the HTTP application for scrapers, supervisors and `mqttlite top`.

Invariant: it changes nothing, so it asks for no login; where it listens only on this machine, it answers only requests
that were sent to this machine by its own names.
"""

import logging
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from mqttlite.config.metrics import NO_LIBRARY, MetricsOptions
from mqttlite.gateway.late_server import LateServer
from mqttlite.net.endpoints import TcpEndpoint
from mqttlite.operations.reports import Reports

if TYPE_CHECKING:
    from mqttlite.gateway.context import OperatorContext
    from mqttlite.gateway.http_server import HttpServer

_log = logging.getLogger("mqttlite.telemetry")


def is_open(options: MetricsOptions) -> bool:
    """Whether others than this machine may reach the port."""
    return not (options.host.startswith("127.") or options.host in ("localhost", "::1"))


class MetricsPort(LateServer):
    """`options` say where to listen. `context` makes what the routes need, at the first connection."""

    def __init__(
        self,
        options: MetricsOptions,
        reports: Reports,
        context: "Callable[[], OperatorContext]",
        clock: Callable[[], float],
    ) -> None:
        self.reports: Final = reports
        self._is_open: Final = is_open(options)
        """Whether others than this machine may reach it."""
        self._has_metrics: Final = find_spec("prometheus_client") is not None
        endpoint = TcpEndpoint(options.host, options.port)

        def build() -> "HttpServer":
            from mqttlite.gateway.operator_servers import build_metrics_server  # imported at the first connection

            return build_metrics_server(context(), endpoint, clock, is_local_only=not self._is_open)

        super().__init__(endpoint, build, *(["mqttlite.telemetry.metrics"] if self._has_metrics else []))

    async def open(self) -> None:
        """Listen. Raises `CannotListen`."""
        if not self._has_metrics:
            _log.warning("there will be no /metrics: %s", NO_LIBRARY)
        await self.start("metrics")
        if self._is_open:
            _log.warning(
                "metrics, health and status on %s are open to the network: they show which clients are connected",
                ", ".join(self.addresses),
            )
