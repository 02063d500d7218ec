"""One Spark for all tests here that need it, and rows to put into it. Imports pyspark only in its fixtures."""

from __future__ import annotations

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_analytics import environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROW: dict[str, Any] = {
    "schema_version": 2,
    "broker_id": "b1",
    "connection_id": 1,
    "client_id": "thermometer",
    "username": None,
    "listener": "local",
    "transport": "tcp",
    "tls_version": None,
    "tls_cipher": None,
    "peer": "127.0.0.1:50000",
    "protocol_version": "5.0",
    "clean_start": True,
    "session_present": False,
    "session_expiry_s": None,
    "keep_alive_s": 60,
    "opened_at": "2026-11-21T11:00:00.000000Z",
    "connected_at": "2026-11-21T11:00:00.250000Z",
    "ended_at": "2026-11-21T11:00:30.250000Z",
    "duration_s": 30.0,
    "close_reason": "client_disconnected",
    "reason_code": 0,
    "close_detail": None,
    "will_published": False,
    "bytes_received": 0,
    "bytes_sent": 0,
    "received_qos0": 0,
    "received_qos1": 0,
    "received_qos2": 0,
    "sent_qos0": 0,
    "sent_qos1": 0,
    "sent_qos2": 0,
    "drops": {},
    "dropped": 0,
    "outbox_high_water_bytes": 0,
    "outbox_high_water_messages": 0,
    "queue_high_water_messages": 0,
    "inflight_high_water": 0,
    "backpressure_s": 0.0,
    "backpressure_count": 0,
    "subscriptions": 0,
    "last_heard_at": None,
    "keep_alive_late_s": None,
    "node": None,
}

WriteFile = Callable[..., Path]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Its JVM is in a zone far from UTC: no time may depend on it."""
    from .made import nothing

    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TZ", "Pacific/Kiritimati")
            session = stack.enter_context(environment.spark_session("local[2]", environment.SMALL))
        yield session
    nothing.cache_clear()
    # py4j leaves its sockets to the garbage collector, which would warn during somebody else's test.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """`write_file({"client_id": "a"}, "rubbish", …, name="part-b1-000001.jsonl")`: a session or a raw line each."""

    def write(*lines: dict[str, Any] | str, name: str = "part-b1-000001.jsonl", hour: int = 11) -> Path:
        path = tmp_path / f"dump/table=sessions/date=2026-11-21/hour={hour}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = [
            line if isinstance(line, str) else json.dumps(ROW | {"connection_id": number} | line)
            for number, line in enumerate(lines, 1)
        ]
        path.write_text("".join(f"{line}\n" for line in text))
        return path

    return write
