"""Options of the metrics port: its address."""

from typing import Final

import msgspec

NO_LIBRARY: Final = "they need prometheus-client: pip install 'mqttlite[metrics]'"
"""Why there are no metrics for Prometheus."""


class MetricsOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where metrics, health and status are served."""

    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 9883
    """The port; 0: the system chooses."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port is {self.port}: it may be 0 to 65535")
