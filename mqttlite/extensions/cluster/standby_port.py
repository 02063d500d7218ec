"""The port for metrics while this machine follows: it is alive and not ready, and tells how far it is behind."""

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mqttlite.config.metrics import NO_LIBRARY, MetricsOptions
from mqttlite.event_hub import EventHub
from mqttlite.extensions.cluster.manifest import MANIFEST
from mqttlite.gateway.late_server import LateServer
from mqttlite.gateway.metrics_port import is_open
from mqttlite.net.endpoints import TcpEndpoint

if TYPE_CHECKING:
    from mqttlite.extensions.cluster.figures import ClusterFigures
    from mqttlite.extensions.cluster.node import Node
    from mqttlite.gateway.http_server import HttpServer
    from mqttlite.gateway.routing import Route


class StandbyPort(LateServer):
    """`options` are those of the broker's port, in whose place it listens until the broker does."""

    def __init__(self, options: MetricsOptions, node: "Node", figures: "ClusterFigures") -> None:
        endpoint = TcpEndpoint(options.host, options.port)

        def build() -> "HttpServer":
            from mqttlite.gateway.operator_servers import build_looking_server  # imported at the first connection

            clock = asyncio.get_running_loop().time
            routes = _routes(node, figures)
            return build_looking_server(routes, EventHub(), endpoint, clock, is_local_only=not is_open(options))

        super().__init__(endpoint, build)


def _routes(node: "Node", figures: "ClusterFigures") -> "Sequence[Route]":
    from starlette.responses import PlainTextResponse, Response

    from mqttlite.gateway.caller import Role
    from mqttlite.gateway.problems import Code, Problem
    from mqttlite.gateway.routing import Routes, ServedOn

    route = Routes(served_on=ServedOn.METRICS_PORT)

    @route.get("/healthz", Role.VIEWER)
    async def alive() -> Response:
        return PlainTextResponse("The machine is alive.\n")

    @route.get("/readyz", Role.VIEWER)
    async def ready() -> Response:
        return PlainTextResponse(f"Not ready: the machine {node.name} {node.role}.\n", 503)

    @route.get("/metrics", Role.VIEWER)
    async def metrics() -> Response:
        if find_spec("prometheus_client") is None:
            raise Problem(Code.NOT_AVAILABLE, f"there are no metrics: {NO_LIBRARY}")
        from mqttlite.telemetry.metrics import CONTENT_TYPE, exposition_of

        values = figures.values()
        text = b"".join(exposition_of((figure, values[figure.name]) for figure in MANIFEST.figures))
        return Response(text, headers={"Content-Type": CONTENT_TYPE})

    return route.made
