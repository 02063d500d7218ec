"""What an operator sees of a running broker over HTTP: the figures are right, and looking costs the clients little."""

import asyncio
import dataclasses
import json
import re
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.config.quotas import QuotaOptions
from mqttlite.core.changes import Change
from mqttlite.core.limits import Limits
from mqttlite.core.memory import DELAYED_BYTES, ENTRY_BYTES, MESSAGE_BYTES, RETAINED_BYTES
from mqttlite.extensions.built_in import BUILT_IN
from mqttlite.extensions.dataset.options import TelemetryOptions
from mqttlite.extensions.routes.options import RouteOptions
from mqttlite.gateway.metrics_port import MetricsPort
from mqttlite.net.endpoints import CannotListen
from mqttlite.operations import reports
from mqttlite.security.certificate_files import ends_at
from mqttlite.security.tls import TlsOptions
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.server import Broker
from mqttlite.store.memory import MemoryStore
from mqttlite.telemetry import metrics, snapshot
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.telemetry.following import LEASE_S, MAX_FOLLOWED
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.snapshot import SLICE
from mqttlite.telemetry.status import status as format_status
from mqttlite.telemetry.sys_topics import SysOptions
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Will
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of, loop_driver_of

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "metrics.md"

MORE_THAN_LEAVE_AT_ONCE = 21


@pytest.fixture(autouse=True)
def always_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """No snapshot serves twice."""
    monkeypatch.setattr(reports, "FRESH_S", 0.0)


@dataclass
class Sample:
    name: str
    labels: dict[str, str]
    value: float


def config(*listeners: ListenerOptions, **options: Any) -> Config:
    quiet = SysOptions(interval_s=0, presence=False)
    listeners = listeners or (ListenerOptions(port=0, name="front"),)
    return Config(listeners=listeners, metrics=MetricsOptions(port=0), sys=quiet, **options)


def of(broker: Broker) -> MetricsPort:
    assert broker.monitor is not None
    return broker.monitor


async def get(broker: Broker, target: str, method: str = "GET", host: str = "localhost") -> tuple[int, str, str]:
    """Status, content type and body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", of(broker).port)
    writer.write(f"{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    async with asyncio.timeout(60):
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    kind = re.search(rb"(?i)content-type: (.*)", head)
    assert kind is not None
    return int(head.split()[1]), kind[1].decode().strip(), body.decode()


async def samples(broker: Broker) -> list[Sample]:
    """All that a Prometheus would read."""
    status, kind, body = await get(broker, "/metrics")
    assert status == 200
    assert kind.startswith("text/plain; version=")
    return [
        Sample(sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(body)
        for sample in family.samples
    ]


async def value(broker: Broker, name: str, **labels: str) -> float:
    """The sum over those that have these labels."""
    found = [each for each in await samples(broker) if each.name == name and labels.items() <= each.labels.items()]
    assert found, name
    return sum(each.value for each in found)


async def status(broker: Broker) -> dict[str, Any]:
    code, kind, body = await get(broker, "/status")
    assert (code, kind) == (200, "application/json")
    found: dict[str, Any] = json.loads(body)
    return found


async def test_without_the_section_nothing_listens(rig: Rig) -> None:
    assert (await rig.broker()).monitor is None


@pytest.mark.long
async def test_messages_and_bytes_are_those_of_the_clients(rig: Rig) -> None:
    broker = await rig.broker(config())
    publisher = await rig.device(broker.port, "publisher")
    subscriber = await rig.device(broker.port, "subscriber", V311)
    await subscriber.subscribe("t/#", 2)
    for qos in (0, 1, 1, 2, 2, 2):
        publisher.publish("t/1", b"payload", qos)
    await publisher.ping()
    for _ in range(6):
        await subscriber.message()
    await subscriber.ping()
    for qos, count in ((0, 1), (1, 2), (2, 3)):
        assert await value(broker, "mqttlite_messages_received_total", qos=str(qos)) == count
        assert await value(broker, "mqttlite_messages_sent_total", qos=str(qos)) == count
    moved = publisher.bytes_sent + subscriber.bytes_sent
    assert await value(broker, "mqttlite_received_bytes_total") == moved
    await publisher.disconnect()
    await until(lambda: len(loop_driver_of(broker).links) == 1)
    assert await value(broker, "mqttlite_received_bytes_total") == publisher.bytes_sent + subscriber.bytes_sent
    assert await value(broker, "mqttlite_messages_received_total") == 6


@pytest.mark.long
async def test_connections_are_told_by_listener_transport_and_protocol(rig: Rig, certs: Path) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    broker = await rig.broker(config(ListenerOptions(port=0, name="a"), ListenerOptions(port=0, name="b", tls=tls)))
    await rig.device(broker.port, "old", V311)
    await rig.device(broker.port, "new", V5)
    await rig.dial(broker.port)
    await until(lambda: len(loop_driver_of(broker).links) == 3)
    found = {
        (each.labels["listener"], each.labels["transport"], each.labels["protocol"]): each.value
        for each in await samples(broker)
        if each.name == "mqttlite_connections"
    }
    assert found == {("a", "tcp", "3.1.1"): 1, ("a", "tcp", "5.0"): 1, ("a", "tcp", "none"): 1}
    assert await value(broker, "mqttlite_connects_total", listener="a") == 2
    assert await value(broker, "mqttlite_connections_opened_total") == 3
    ends = await value(broker, "mqttlite_tls_certificate_not_after_timestamp_seconds", listener="b")
    assert ends == ends_at(certs / "server.crt").timestamp()
    assert [each["certificate_ends_at"] for each in (await status(broker))["listeners"]] == [None, ends]


async def test_ends_and_refusals_are_told_with_their_reason(rig: Rig) -> None:
    broker = await rig.broker(config())
    leaves = await rig.device(broker.port, "leaves")
    await leaves.disconnect()
    rude = await rig.dial(broker.port)
    rude.send_bytes(b"\xff\xff\xff\xff\xff\xff")
    await rude.goodbye()
    await until(lambda: not loop_driver_of(broker).links)
    assert await value(broker, "mqttlite_disconnects_total", reason="client_disconnected") == 1
    assert await value(broker, "mqttlite_connections_refused_total", listener="front", reason="protocol_error") == 1


async def test_failed_handshakes_and_those_turned_away_are_counted(rig: Rig, certs: Path) -> None:
    tls = TlsOptions(str(certs / "server.crt"), str(certs / "server.key"))
    listeners = ListenerOptions(port=0, name="a", max_connections=1), ListenerOptions(port=0, name="b", tls=tls)
    broker = await rig.broker(config(*listeners))
    await rig.device(broker.port, "only")
    await (await rig.dial(broker.port)).goodbye()
    plain = await rig.dial(broker.listeners[1].port)
    plain.send_bytes(b"\x10\x0c\x00\x04MQTT\x05\x02\x00\x3c\x00")
    await until(lambda: broker.listeners[1].failed_handshakes == 1)
    assert await value(broker, "mqttlite_connections_turned_away_total", listener="a") == 1
    assert await value(broker, "mqttlite_handshakes_failed_total", listener="b") == 1


@pytest.mark.long
async def test_the_contents_of_sessions_are_reported(rig: Rig) -> None:
    broker = await rig.broker(config())
    away = await rig.device(broker.port, "away", expiry=100)
    await away.subscribe("t", 1)
    await away.subscribe("$share/g/t", 0)
    await away.disconnect()
    await until(lambda: not loop_driver_of(broker).links)
    for _ in range(3):
        await broker.publish("t", b"12345", qos=1)
    await broker.publish("kept", b"123456", retain=True)
    await broker.publish("$delayed/60/t", b"later")
    expected = {
        "mqttlite_delayed_messages": 1,
        "mqttlite_delayed_bytes": DELAYED_BYTES + MESSAGE_BYTES + 6,
        "mqttlite_queued_messages": 3,
        "mqttlite_queued_bytes": 3 * (ENTRY_BYTES + MESSAGE_BYTES + 6),
        "mqttlite_retained_messages": 1,
        "mqttlite_retained_bytes": RETAINED_BYTES + 8 + MESSAGE_BYTES + 10,
        "mqttlite_retained_tombstones": 0,
        "mqttlite_retained_outdated_total": 0,
        "mqttlite_inflight_messages": 0,
    }
    for name, expectation in expected.items():
        assert await value(broker, name) == expectation
    assert await value(broker, "mqttlite_sessions", state="away") == 1
    assert await value(broker, "mqttlite_subscriptions", kind="plain") == 1
    assert await value(broker, "mqttlite_subscriptions", kind="shared") == 1
    (longest,) = (await status(broker))["top"]["queue"]
    assert (longest["client_id"], longest["queued"], longest["connection_id"]) == ("away", 3, None)


@pytest.mark.long
async def test_a_client_that_does_not_read_is_named(rig: Rig) -> None:
    broker = await rig.broker(config(limits=Limits(max_outbox_bytes=100_000)))
    frozen = await rig.device(broker.port, "frozen", small_buffers=True)
    await frozen.subscribe("flood", 0)
    frozen.freeze()
    publisher = await rig.device(broker.port, "publisher")
    for _ in range(300):
        publisher.publish("flood", bytes(20_000))
        await publisher.ping()
    found = await status(broker)
    for ranking in ("outbox", "drops"):
        (worst,) = found["top"][ranking]
        assert worst["client_id"] == "frozen"
        assert worst["blocked"]
        assert worst["listener"] == "front"
        assert worst["peer"].startswith("127.0.0.1:")
    assert found["top"]["bytes"][0]["client_id"] == "publisher"
    assert found["clients"]["blocked"] == 1
    assert found["held"]["outbox_bytes"] >= 80_000
    assert found["drops"]["buffer_full"] == found["top"]["drops"][0]["dropped"] > 0
    assert await value(broker, "mqttlite_messages_dropped_total", reason="buffer_full") > 0
    assert await value(broker, "mqttlite_connections_blocked") == 1


async def test_rates_and_greed_are_those_since_the_look_before(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "INTERVAL_S", 0.0)
    broker = await rig.broker(config())
    early = await rig.device(broker.port, "early")
    early.publish("t", bytes(50_000))
    await early.ping()
    assert (await status(broker))["top"]["bytes"][0]["client_id"] == "early"
    late = await rig.device(broker.port, "late")
    late.publish("t", bytes(10_000))
    await late.ping()
    report = await of(broker).reports.latest()
    assert [each.client_id for each in report.snapshot.rankings["bytes"]] == ["late"]
    assert report.snapshot.growth["messages_received"] == 1
    assert report.snapshot.totals.messages_received == 2
    found = json.loads(format_status(report))
    assert found["rates"]["messages_received"] == pytest.approx(1 / report.snapshot.interval_s, abs=0.001)


@pytest.mark.long
async def test_counters_do_not_fall_when_clients_go_and_come(rig: Rig) -> None:
    broker = await rig.broker(config())
    former: dict[str, float] = {}
    for _ in range(5):
        device = await rig.device(broker.port, "comes", will=Will(b"w", b"", 0, False))
        await device.subscribe("t")
        device.publish("t", b"x")
        device.publish("nobody", b"x")
        await device.ping()
        await device.close()
        counters = {f"{each.name}{each.labels}": each.value for each in await samples(broker) if "_total" in each.name}
        assert all(counters.get(name, 0) >= before for name, before in former.items())
        former = counters


@pytest.mark.long
async def test_rows_of_telemetry_are_counted(rig: Rig, tmp_path: Path) -> None:
    broker = await rig.broker(config(telemetry=TelemetryOptions(directory=str(tmp_path))))
    device = await rig.device(broker.port, "device")
    await device.disconnect()
    dataset = broker.dataset
    assert dataset is not None
    await until(lambda: dataset.written_rows["sessions"] == 1)
    assert await value(broker, "mqttlite_telemetry_rows_written_total", table="sessions") == 1
    assert await value(broker, "mqttlite_telemetry_rows_dropped_total") == 0
    assert (await status(broker))["telemetry"]["sessions"] == {"written": 1, "dropped": 0}


async def test_the_loop_s_lag_is_measured(rig: Rig) -> None:
    broker = await rig.broker(config())
    await until(lambda: of(broker).reports._lag.histogram.messages > 0)
    time.sleep(0.5)  # noqa: ASYNC251 the stall is what is to be seen
    await until(lambda: of(broker).reports._lag.histogram.max_us > 100_000)
    assert (await status(broker))["loop_lag_s"]["max"] > 0.1
    found = {(each.name, each.labels.get("le")): each.value for each in await samples(broker)}
    count = found["mqttlite_event_loop_lag_seconds_count", None]
    assert count == found["mqttlite_event_loop_lag_seconds_bucket", "+Inf"] > 0


class SickStore(MemoryStore):
    """Fails while it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.sick = False

    def commit(self, changes: list[Change]) -> None:
        if self.sick:
            raise OSError(28, "No space left on device")
        super().commit(changes)


@pytest.mark.long
async def test_a_store_that_fails_is_not_ready_until_it_recovers(rig: Rig) -> None:
    store = SickStore()
    broker = await rig.broker(msgspec.structs.replace(config(), sys=SysOptions()), store=store)
    loop_driver_of(broker).commits.retry_commit_s = 0.01
    store.sick = True
    device = await rig.device(broker.port, "device")
    device.publish("t", b"kept", 1, retain=True)
    await until(lambda: of(broker).reports.alarms)
    code, _, sentence = await get(broker, "/readyz")
    assert (code, sentence) == (
        503,
        "Not ready: the store fails, and what is to be kept waits until it recovers.\n",
    )
    assert await value(broker, "mqttlite_ready") == 0
    assert await value(broker, "mqttlite_store_failing") == 1
    watcher = await rig.device(broker.port, "watcher")
    await watcher.subscribe("$SYS/broker/alarms/store")
    topic, payload = await watcher.message()
    alarm = json.loads(payload)
    assert (topic, alarm["active"]) == ("$SYS/broker/alarms/store", True)
    assert alarm["detail"] == "[Errno 28] No space left on device"
    store.sick = False
    await until(lambda: not of(broker).reports.alarms)
    ended = json.loads((await watcher.message())[1])
    assert (ended["active"], ended["detail"], ended["since"] > alarm["since"]) == (False, "", True)
    assert (await get(broker, "/readyz"))[0] == 200
    assert await value(broker, "mqttlite_store_commit_failures_total") >= 1
    assert await value(broker, "mqttlite_store_commit_duration_seconds_count") == 1


async def test_it_is_alive_and_ready_until_it_stops(rig: Rig) -> None:
    broker = await rig.broker(config(stop_timeout_s=5))
    assert (await get(broker, "/healthz"))[0] == 200
    assert (await get(broker, "/readyz"))[2] == "The broker is ready.\n"
    device = await rig.device(broker.port, "stays")
    stop = asyncio.create_task(broker.stop())
    await asyncio.sleep(0)
    assert (await get(broker, "/readyz"))[::2] == (503, "Not ready: the broker stops.\n")
    assert (await get(broker, "/healthz"))[0] == 200
    await device.close()
    await stop
    assert broker.monitor is None


async def test_a_broker_that_is_to_be_replaced_is_not_ready(rig: Rig) -> None:
    broker = await rig.broker(config())
    for number in range(MORE_THAN_LEAVE_AT_ONCE):
        await rig.device(broker.port, f"c{number}")
    drain = asyncio.create_task(broker.drain())
    await asyncio.sleep(0)
    code, _, text = await get(broker, "/readyz")
    assert (code, text) == (503, "Not ready: the broker disconnects its clients before it stops.\n")
    await broker.stop()
    await drain


async def test_why_without_a_delivery_log_says_how_to_keep_one(rig: Rig) -> None:
    broker = await rig.broker(config())
    code, _, text = await get(broker, "/why?target=t")
    assert code == 404
    assert "[delivery_log]" in text


class Said:
    """Answers with the question."""

    def why(self, target: str, client: str | None) -> dict[str, object]:
        return {"sentences": [f"{target} for {client}"]}


async def test_why_is_what_the_delivery_log_says(rig: Rig) -> None:
    broker = await rig.broker(config())
    of(broker).reports.answers = lambda: Said()  # type: ignore[assignment, return-value]
    _, kind, body = await get(broker, "/why?target=plant/7&client=c7")
    assert (kind, json.loads(body)) == ("application/json", {"sentences": ["plant/7 for c7"]})
    assert json.loads((await get(broker, "/why?target=plant/7"))[2])["sentences"] == ["plant/7 for None"]
    assert json.loads((await get(broker, "/why?client=c7"))[2])["sentences"] == [" for c7"]
    assert (await get(broker, "/why"))[0] == 400


async def test_why_tells_of_a_client_that_was_cut_by_a_quota(rig: Rig) -> None:
    quotas = QuotaOptions(messages_per_s=5, on_rate="disconnect")
    broker = await rig.broker(config(quotas=quotas, delivery_log=DeliveryLogOptions()))
    device = await rig.device(broker.port, "greedy")
    for _ in range(9):
        device.publish("t")
    await device.goodbye()
    found = json.loads((await get(broker, "/why?target=greedy"))[2])
    assert found["known"]
    assert "quota_exceeded: the client sends more messages a second than its quota allows" in found["sentences"][-1]


@pytest.mark.parametrize(
    ("query", "code", "said"),
    [
        ("follow=a/%23/b", 400, "'a/#/b' is no topic filter"),
        ("follow=", 400, "'' is no topic filter"),
        ("follow=a&after=x", 400, "after is 'x'"),
        ("follow=a&after=-1", 400, "after is '-1'"),
    ],
)
async def test_a_client_that_cannot_be_followed_is_reported(rig: Rig, query: str, code: int, said: str) -> None:
    broker = await rig.broker(config())
    status, _, text = await get(broker, f"/why?{query}")
    assert (status, said in text) == (code, True)


async def test_so_many_filters_can_be_followed_and_no_more(rig: Rig) -> None:
    broker = await rig.broker(config())
    for number in range(MAX_FOLLOWED):
        assert (await get(broker, f"/why?follow=t{number}"))[0] == 200
    assert (await get(broker, "/why?follow=t0"))[0] == 200
    status, _, text = await get(broker, "/why?follow=more")
    assert (status, f"{MAX_FOLLOWED} filters are followed already" in text) == (503, True)


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("beside", ["nothing", "delivery log", "dataset"])
async def test_a_filter_is_traced_while_somebody_asks_for_it(
    rig: Rig, jump: Callable[[float], None], tmp_path: Path, beside: str
) -> None:
    options: dict[str, Any] = {
        "nothing": {},
        "delivery log": {"delivery_log": DeliveryLogOptions(topics=("other",), sampled=False)},
        "dataset": {"telemetry": TelemetryOptions(directory=str(tmp_path), samples_per_s=0)},
    }[beside]
    broker = await rig.broker(config(**options))
    for _ in range(2):  # it can begin again
        await broker.publish("plant/7", "not traced")
        first = json.loads((await get(broker, "/why?follow=plant/%23"))[2])
        await broker.publish("plant/7", "traced")
        await broker.publish("office", "not traced")
        after = json.loads((await get(broker, f"/why?follow=plant/%23&after={first['latest']}"))[2])
        assert [entry["topic"] for entry in after["entries"]] == ["plant/7"]
        assert after["latest"] == int(after["entries"][0]["message_id"]) > first["latest"]
        found = json.loads((await get(broker, f"/why?target={after['entries'][0]['message_id']}"))[2])
        assert found["known"]
        jump(LEASE_S + 1)
        await asyncio.sleep(0.01)
        await broker.publish("plant/7", "not traced")
        assert broker.observer is not None or core_of(broker).effects.tracer is None
    last = json.loads((await get(broker, "/why?target=plant/7"))[2])
    assert len(last["entries"]) == 2


async def test_clients_are_listed_by_page_and_looked_at_one_by_one(rig: Rig) -> None:
    broker = await rig.broker(config())
    for name in ("b", "a", "c/1"):
        device = await rig.device(broker.port, name)
    await device.subscribe("t/#", 1)
    first = json.loads((await get(broker, "/clients?limit=2"))[2])
    assert ([each["client_id"] for each in first["entries"]], first["cursor"]) == (["a", "b"], "c/1")
    second = json.loads((await get(broker, "/clients?cursor=c/1"))[2])
    assert ([each["client_id"] for each in second["entries"]], second["cursor"]) == (["c/1"], "")
    found = json.loads((await get(broker, "/clients?contains=/"))[2])
    assert [each["client_id"] for each in found["entries"]] == ["c/1"]
    details = json.loads((await get(broker, "/client?id=c/1"))[2])
    assert (details["entry"]["peer"], details["topic_filters"]) == (device.address, {"t/#": 1})
    assert (await get(broker, "/client?id=nobody"))[::2] == (404, "There is no client 'nobody'.\n")
    assert (await get(broker, "/clients?limit=x"))[0] == 400


async def test_another_path_says_which_there_are(rig: Rig) -> None:
    broker = await rig.broker(config())
    code, _, text = await get(broker, "/")
    assert code == 404
    assert "/metrics, /status, /healthz, /readyz, /why, /clients, /client" in text


async def test_without_prometheus_client_metrics_say_what_to_install(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.setitem(sys.modules, "mqttlite.telemetry.metrics", None)
    broker = await rig.broker(config())
    assert "there will be no /metrics: they need prometheus-client: pip install 'mqttlite[metrics]'" in caplog.messages
    code, _, text = await get(broker, "/metrics")
    assert (code, "pip install 'mqttlite[metrics]'" in text) == (501, True)
    assert (await get(broker, "/status"))[0] == 200


async def test_many_callers_at_once_cost_one_snapshot(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "FRESH_S", 60.0)  # as long as a busy machine may take for this
    taken: list[object] = []
    collection = snapshot.Collection
    monkeypatch.setattr(snapshot, "Collection", lambda *a: taken.append(a) or collection(*a))
    broker = await rig.broker(config())
    await get(broker, "/metrics")
    answers = await asyncio.gather(*[get(broker, target) for target in ("/metrics", "/status") * 5])
    assert len(taken) == 1
    assert len({body for _, _, body in answers}) == 2  # nor are they written anew


async def test_a_port_in_use_stops_the_start_and_is_said(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = MetricsOptions(port=taken.getsockname()[1])
        with pytest.raises(CannotListen, match=r"\(metrics\): the port is in use"):
            await rig.broker(Config(listeners=(ListenerOptions(port=0),), metrics=options))


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("localhost", False), ("0.0.0.0", True)])
async def test_a_port_that_is_open_to_the_network_is_warned_of(
    rig: Rig, caplog: pytest.LogCaptureFixture, host: str, warns: bool
) -> None:
    await rig.broker(Config(listeners=(ListenerOptions(port=0),), metrics=MetricsOptions(host=host, port=0)))
    assert any("are open to the network" in line for line in caplog.messages) is warns


async def test_metrics_follow_the_conventions_and_are_documented(rig: Rig, tmp_path: Path) -> None:
    """What `promtool check metrics` looks for, and the reference has each name."""
    policies = (TopicPolicyOptions(prefix="rooms", presence=True),)
    broker = await rig.broker(
        config(
            telemetry=TelemetryOptions(directory=str(tmp_path)),
            topic_policies=policies,
            http=HttpOptions(port=0),
            routes=(RouteOptions(name="r", filters=("a",), to="b"),),
        )
    )
    of(broker).reports.oldest_unacknowledged_s = lambda: 1.0
    of(broker).reports.hook_failures = lambda: {"shop.check": 1}
    of(broker).reports.latency = lambda: {"total": of(broker).reports._lag.histogram}
    await rig.device(broker.port, "device")
    _, _, body = await get(broker, "/metrics")
    documented = set(
        re.findall(r"^\| `((?:mqttlite|process)_\w+)`", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE)
    )
    names: list[str] = []
    for family in text_string_to_metric_families(body):
        name = family.name + ("_total" if family.type == "counter" else "")
        names.append(name)
        assert family.documentation.strip(), name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), name
        assert name.startswith(("mqttlite_", "process_")), name
        assert not re.search(r"_(count|sum|bucket|gauge|counter|histogram|ms|milliseconds|minutes|kb)(_|$)", name)
        assert family.type == "counter" or not name.endswith("_total"), name
        assert family.type != "histogram" or name.endswith("_seconds"), name
        for sample in family.samples:
            assert all(re.fullmatch(r"[a-z][a-z_]*", label) for label in sample.labels), sample
    assert len(names) == len(set(names))
    figures = [*BUILT_IN["cluster"].figures, *BUILT_IN["nodes"].figures]
    around = {f"mqttlite_{each.name}{'_total' * (each.kind == 'counter')}" for each in figures}
    assert set(names) | around == documented


async def test_writing_in_pieces_equals_writing_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await rig.broker(config())
    histogram = of(broker).reports._lag.histogram
    of(broker).reports.latency = lambda: dict.fromkeys(("route", "queue", "write", "total"), histogram)
    await rig.device(broker.port, "device")
    report = await of(broker).reports.latest()
    frozen = dataclasses.replace(report, lag=Histogram())
    pieces = list(metrics.exposition(frozen))
    monkeypatch.setattr(metrics, "PIECE", 1_000_000)
    whole = list(metrics.exposition(frozen))
    assert len(pieces) > len(whole)
    assert max(piece.count(b"\n") for piece in pieces) <= 30 + 2
    volatile = rb"(?m)^process_.*$"
    assert re.sub(volatile, b"", b"".join(pieces)) == re.sub(volatile, b"", b"".join(whole))


def test_no_client_chooses_a_label() -> None:
    """A label for each client id would fill a Prometheus."""
    package = Path(reports.__file__).parent.parent
    files = (
        package / "telemetry" / "broker_figures.py",
        package / "extensions" / "schemas" / "schemas.py",
        package / "extensions" / "dataset" / "start.py",
        package / "extensions" / "push" / "figures.py",
        package / "extensions" / "queues" / "figures.py",
    )
    source = "".join(each.read_text(encoding="utf-8") for each in files)
    labels = set(re.findall(r'\{"(\w+)":', source)) | set(re.findall(r', "(\w+)": ', source))
    labels |= set(re.findall(r'_(?:by|and)\("(\w+)"', source))
    assert labels == {
        *(
            "version",
            "compiled",
            "python",
            "qos",
            "reason",
            "listener",
            "transport",
            "protocol",
            "quota",
            "limit",
            "hook",
        ),
        *("state", "kind", "stage", "table", "file", "action", "schema", "queue", "end", "cause", "result"),
        *("group", "status", "hook"),
    }


async def test_a_look_holds_the_loop_up_for_a_slice_at_a_time(rig: Rig) -> None:
    broker = await rig.broker(config())
    sessions = 20 * SLICE
    for number in range(sessions):
        core_of(broker).sessions.open(f"s{number}", True, 100)
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await of(broker).reports.latest()
    counting.cancel()
    assert found.snapshot.sessions == sessions
    assert passes >= 20


async def test_a_page_that_had_its_name_lead_here_reads_no_metrics(rig: Rig) -> None:
    broker = await rig.broker(config())
    for host, status in (
        ("evil.example", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost:9883", 200),
        ("[::1]", 200),
    ):
        for target in ("/metrics", "/clients", "/healthz"):
            assert (await get(broker, target, host=host))[0] == status, host
    everywhere = await rig.broker(msgspec.structs.replace(config(), metrics=MetricsOptions(host="0.0.0.0", port=0)))
    assert (await get(everywhere, "/healthz", host="broker.example"))[0] == 200
