"""The parts that pages are made with."""

from typing import NamedTuple

from mqttlite.extensions.dashboard.live import Live
from mqttlite.extensions.dashboard.pages import Pages
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.routing import Routes


class Dashboard(NamedTuple):
    """The dashboard of one gateway, while its routes are made."""

    shown: Routes
    """For pages, which answer errors as pages."""
    streams: Routes
    """For what keeps them up to date, which answers errors as problems."""
    context: GatewayContext
    pages: Pages
    live: Live
