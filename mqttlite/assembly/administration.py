"""Builds the interfaces for operators: the admin object, explanations, the admin socket and the metrics port."""

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from mqttlite.admin import Admin
from mqttlite.admin_socket import AdminSocket
from mqttlite.assembly.delivery import Delivery
from mqttlite.assembly.logins import Logins
from mqttlite.assembly.runtime import Runtime
from mqttlite.delivery.queues.api import QueuesApi
from mqttlite.explanations import Explanations
from mqttlite.monitor import Monitor, StatePages
from mqttlite.net.http import JSON, Request, Response
from mqttlite.reports import Reports

if TYPE_CHECKING:
    from mqttlite.extensions.schemas.api import RegistryApi
    from mqttlite.extensions.schemas.schemas import Schemas

_log = logging.getLogger("mqttlite")


class Administration:
    """Opens the admin socket if there is a data directory, and the metrics port if the config has `metrics`."""

    def __init__(
        self, runtime: Runtime, logins: Logins, delivery: Delivery, schemas: "Schemas | None", reports: Reports
    ) -> None:
        config = runtime.config
        self.admin: Final = Admin(
            *(runtime.core, runtime.loop_driver.links, runtime.loop_driver.run, runtime.clock, runtime.wall.at),
            runtime.queue_reader.page,
        )
        self.explanations: Final = Explanations(runtime.core, logins.explain, runtime.clock)
        queues = _queues_answerer(delivery.api)
        pages = StatePages(reports, self.admin)
        answerers = {"queues": queues, "snapshots": queues, "dead-letters": queues}
        if schemas is not None:
            from mqttlite.extensions.schemas.api import RegistryApi

            answerers["registry"] = _registry_answerer(RegistryApi(schemas.registry))
        answerers |= {path[1:]: answer for path, answer in pages.answers.items()}
        """The handlers of the admin socket other than `admin`, by the first level of the path."""
        self._socket: Final = (
            AdminSocket(*(config.data_dir, self.admin, self.explanations, answerers), tell=runtime.hub.on_administered)
            if config.data_dir
            else None
        )
        self.monitor: Final = None if config.metrics is None else Monitor(config.metrics, reports, pages)

    async def open_socket(self) -> None:
        """Open the admin socket."""
        if self._socket is not None:
            await self._socket.start()

    async def close_socket(self) -> None:
        """Close the admin socket, so that operators can change nothing more."""
        if self._socket is not None:
            await self._socket.stop()

    async def start_monitor(self) -> None:
        """Start to serve metrics over HTTP."""
        if self.monitor is not None:
            await self.monitor.start()

    async def stop_monitor(self) -> None:
        """Stop to serve metrics."""
        if self.monitor is not None:
            await self.monitor.stop()

    def log_addresses(self) -> None:
        """Log the addresses of the metrics port."""
        if self.monitor is not None:
            for address in self.monitor.addresses:
                _log.info("metrics, health and status are at http://%s", address)


def _queues_answerer(api: QueuesApi) -> Callable[[Request], Awaitable[Response]]:
    """The handler of requests for queues and dead letters."""

    async def answer(request: Request) -> Response:
        found = await api.answer(request.method, request.segments, request.query, request.body)
        return Response(found.status, found.body, JSON)

    return answer


def _registry_answerer(api: "RegistryApi") -> Callable[[Request], Awaitable[Response]]:
    """The handler of requests for the schema registry."""

    from mqttlite.extensions.schemas.api import CONTENT_TYPE

    async def answer(request: Request) -> Response:
        found = await api.answer(request.method, request.segments[1:], request.query, request.body)
        return Response(found.status, found.body, CONTENT_TYPE)

    return answer
