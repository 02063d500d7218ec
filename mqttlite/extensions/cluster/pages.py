"""The dashboard's page of a cluster: what each machine does and how far it is, the lease, and the log.

Invariant: the page shows what the route `/api/v1/cluster` answers.
"""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from mqttlite.extensions.cluster.lease import LEASE_S
from mqttlite.extensions.cluster.routes import figures_of, state_of
from mqttlite.extensions.cluster.status import Role as MachineRole
from mqttlite.extensions.dashboard.dashboard import Dashboard
from mqttlite.gateway.caller import Caller, Role

CLUSTER: Final = "/ui/cluster"

KINDS: Final[dict[MachineRole, str]] = {
    "serves": "good",
    "follows": "good",
    "starts": "",
    "takes over": "",
    "waits for a snapshot": "warn",
    "stopped": "warn",
    "cannot serve": "bad",
    "silent": "bad",
}
"""The colour of each role."""


def add(dashboard: Dashboard) -> None:
    """The page, if the broker is a machine of a cluster."""
    figures = figures_of(dashboard.context)
    if figures is None:
        return

    @dashboard.shown.get(CLUSTER, Role.VIEWER)
    async def cluster(request: Request, caller: Caller) -> Response:
        state = state_of(figures)
        return dashboard.pages.render(
            "cluster.html", request, caller, cluster=state, kinds=KINDS, is_late=state.lease_age_s >= LEASE_S
        )
