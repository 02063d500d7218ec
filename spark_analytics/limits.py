"""What a limit may be given for, and what `reports/capacity` projects: the columns of the table `load_by_hour`.

Imports nothing, so that the command line knows a wrong name before Spark starts.
"""

from __future__ import annotations

from typing import Final

CONNECTIONS: Final = "connections"
QUEUED_BYTES: Final = "queued_bytes"
METRICS: Final = (
    CONNECTIONS,
    "messages_received_per_s",
    "messages_sent_per_s",
    "bytes_received_per_s",
    "bytes_sent_per_s",
    QUEUED_BYTES,
)
