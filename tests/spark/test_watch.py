"""Watching a folder that grows: late files, restarts and crashes, and the findings that must be there exactly once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from .watched import Folder, Row, at, connects, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Folder:
    return Folder(spark, tmp_path)


def test_a_finding_is_told_once_though_rows_come_late_and_the_watch_crashes_and_starts_again(folder: Folder) -> None:
    """It crashes between the file of findings and the checkpoint, and makes the same file again."""

    def crash(rows: list[Row]) -> None:
        raise RuntimeError("the power fails")

    from spark_analytics.errors import AnalyticsError

    folder.add("events", *connects("flapper", 1), *connects("calm", 1, 2), *connects("late", 1, 3), event(14, "other"))
    folder.watch()
    folder.add("events", *connects("late", 2, 3))
    folder.watch()
    assert folder.found() == []  # more of it may come
    folder.add("events", event(40, "other"))
    with pytest.raises(AnalyticsError, match="failed"):
        folder.watch(crash)
    once = [("flapping", "flapper", at(0)), ("flapping", "late", at(0))]
    assert folder.found() == once
    folder.watch()
    folder.add("events", *connects("late", 3, 6))  # its five minutes are told of already
    folder.add("events", event(80, "other"))
    folder.watch()
    assert folder.found() == once
    told = [(row["id"], row["status"], row["number"], row["end"], row["sentence"]) for row in folder.reported]
    began, over = ("connected 6 times in 5 minutes", "connected 6 times in 5 min; it is steady again")
    assert sorted(told) == [
        (f"flapping/{client_id}/{at(0)}", status, 6, at(5), f"{client_id} {sentence}")
        for client_id in ("flapper", "late")
        for status, sentence in (("began", began), ("ended", over))
    ]


def test_a_trouble_that_lasts_is_told_when_it_begins_and_ends_and_counted_between(folder: Folder) -> None:
    """Also if the watch ends and starts again meanwhile."""
    for first in (1, 6, 21):  # five minutes, the next, and a quarter of an hour later
        folder.add("events", *connects("flapper", first))
    folder.add("events", event(36, "other"))
    folder.watch()
    assert [row["status"] for row in folder.reported] == ["began", "goes_on", "goes_on"]
    folder.add("events", *connects("flapper", 41), event(75, "other"))
    folder.watch()
    folder.add("events", event(120, "other"))
    folder.watch()
    identity = f"flapping/flapper/{at(0)}"
    told = [(row["id"], row["status"], row["number"], row["end"]) for row in folder.reported]
    assert told == [
        (identity, "began", 6, at(5)),
        (identity, "goes_on", 12, at(10)),
        (identity, "goes_on", 18, at(25)),
        (identity, "goes_on", 24, at(45)),
        (identity, "ended", 24, at(45)),
    ]
    assert [len(folder.lines(status)) for status in ("began", "goes_on", "ended")] == [1, 0, 1]
    assert folder.reported[-1]["sentence"] == "flapper connected 24 times in 45 min; it is steady again"


# ---------------------------------------------------------------------------------------------------------- alerts


def finding(kind: str, client_id: str | None) -> Row:
    named: Row = {"client_id": client_id, "queue": None, "ordering_key": None}
    return {"id": f"{kind}/{client_id}", "kind": kind, "start": at(0), "sentence": "…"} | named


def test_an_alert_has_a_topic_that_its_client_cannot_choose() -> None:
    from spark_analytics.alerts import topic_of

    assert topic_of(finding("silent", "meter-7")) == "$SYS/analytics/alerts/silent/meter-7"
    assert topic_of(finding("silent", "a/+/#")) == "$SYS/analytics/alerts/silent/a%2F%2B%2F%23"
    assert topic_of(finding("reconnect_storm", None)) == "$SYS/analytics/alerts/reconnect_storm"
    stuck = finding("stuck_key", None) | {"queue": "jobs", "ordering_key": "a/b"}
    assert topic_of(stuck) == "$SYS/analytics/alerts/stuck_key/jobs/a%2Fb"


@pytest.mark.parametrize(
    ("url", "meant"),
    [
        ("mqtt://host", ("host", 1883, False, None, None)),
        ("mqtts://me:p%40ss@host", ("host", 8883, True, "me", "p@ss")),
        ("mqtt://[::1]:1884/", ("::1", 1884, False, None, None)),
    ],
)
def test_where_alerts_go(url: str, meant: tuple[object, ...]) -> None:
    from spark_analytics.alerts import Target

    assert Target.parse(url) == Target(*meant)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["host:1883", "http://host", "mqtt://", "mqtt://host:x", "mqtt://host/topic"])
def test_a_server_that_is_no_broker_is_reported(url: str) -> None:
    from spark_analytics.alerts import Target

    with pytest.raises(ValueError, match="names no broker"):
        Target.parse(url)


async def test_alerts_reach_subscribers_where_the_broker_permits_it(capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from mqttlite import Broker, Client
    from mqttlite.config import Config, ListenerOptions
    from mqttlite.telemetry.sys_topics import SysOptions
    from spark_analytics.alerts import Alerts, Target

    findings = [finding("silent", "meter/7"), finding("reconnect_storm", None)]
    config = Config(listeners=(ListenerOptions(port=0),), sys=SysOptions(publishers=("spark-analytics",)))
    async with Broker(config) as broker, Client("127.0.0.1", broker.port) as client:
        await client.subscribe("$SYS/analytics/alerts/#", qos=1)
        await asyncio.to_thread(Alerts(Target("127.0.0.1", broker.port, False, None, None)).publish, findings)
        got = [await anext(client.messages) for _ in findings]
    assert [message.topic for message in got] == [
        "$SYS/analytics/alerts/silent/meter%2F7",
        "$SYS/analytics/alerts/reconnect_storm",
    ]
    assert [json.loads(message.payload) for message in got] == findings
    assert capsys.readouterr().err == ""


async def test_a_broker_that_refuses_or_is_gone_costs_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    import asyncio

    from mqttlite import Broker
    from spark_analytics.alerts import Alerts, Target

    async with Broker(port=0) as broker:
        port = broker.port
        alerts = Alerts(Target("127.0.0.1", port, False, None, None))
        await asyncio.to_thread(alerts.publish, [finding("silent", "c1")])
    await asyncio.to_thread(alerts.publish, [finding("silent", "c1")])
    refused, gone = capsys.readouterr().err.splitlines()
    assert refused.startswith(f"warning: alerts did not reach 127.0.0.1:{port}: ")
    assert "$SYS/analytics/alerts/silent/c1" in refused
    assert gone.startswith(f"warning: alerts did not reach 127.0.0.1:{port}: ")


def test_without_mqttlite_only_alerts_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from spark_analytics.alerts import Alerts, Target
    from spark_analytics.errors import EnvironmentMissing

    monkeypatch.setitem(sys.modules, "mqttlite.client", None)
    with pytest.raises(EnvironmentMissing, match="pip install mqttlite"):
        Alerts(Target("127.0.0.1", 1883, False, None, None))


# ------------------------------------------------------------------------------------------------------ the command


def test_it_prints_what_it_finds_until_ctrl_c(tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    folder = Folder(None, tmp_path)
    folder.add("events", *connects("flapper", 1), event(30, "other"))
    command = [sys.executable, "-m", "spark_analytics", "watch", "--master", "local[2]"]
    command += ["--input", str(folder.source), "--out", str(folder.out)]
    soon_over = {**os.environ, "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}  # else Java optimises for half a minute
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], env=soon_over, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Watching; nothing to tell so far.\n"
        assert process.stdout.readline() == f"{at(0)}  flapping began  flapper connected 6 times in 5 minutes\n"
        process.send_signal(signal.SIGINT)
        _, complaints = process.communicate(timeout=400)
    assert (process.returncode, complaints) == (130, "")
