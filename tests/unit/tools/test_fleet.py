"""The fleet against a real broker: everything arrives, and what does not is noticed."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.client import MqttError
from mqttlite.security.tls import client_context
from tests.interop.support import PATIENCE_S, RunningBroker, Wire
from tools.devices.fleet import command, progress, report, summary
from tools.devices.simulation import Fleet, Plan
from tools.devices.target import Target

pytestmark = pytest.mark.slow  # a broker process and a fleet for each


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def tcp(broker: RunningBroker) -> Target:
    return Target("127.0.0.1", broker.tcp.port, None)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_everything_arrives_at_every_subscriber(broker: RunningBroker, qos: int) -> None:
    plan = Plan(devices=20, subscribers=2, interval_s=0.05, messages=5, qos=qos, connect_rate=1000)
    fleet = Fleet(tcp(broker), plan)
    asyncio.run(fleet.run())
    assert fleet.complete
    assert (fleet.connected, fleet.total_sent, fleet.received) == (20, 100, 200)
    assert fleet.acked == (100 if qos else 0)
    assert (fleet.arriving.count, fleet.acknowledging.count) == (200, fleet.acked)
    assert 0 < fleet.arriving.quantile_s(0.5) < 1


@pytest.mark.parametrize("resume", [True, False])
def test_devices_over_tls_share_a_session(broker: RunningBroker, certificate_files: Path, resume: bool) -> None:
    files = [str(certificate_files / name) for name in ("ca.crt", "device.crt", "device.key")]
    where = Target("localhost", broker.tls.port, client_context(*files))
    fleet = Fleet(where, Plan(devices=10, interval_s=0.05, duration_s=0.2, connect_rate=50, resume=resume))
    asyncio.run(fleet.run())
    assert fleet.complete
    assert fleet.total_sent > 10
    if resume:
        assert fleet.tickets is not None
        assert (fleet.tickets.handshakes, fleet.tickets.resumed) == (11, 10)
    else:
        assert fleet.tickets is None


@pytest.mark.slow
def test_a_fleet_that_is_cut_off_comes_back_and_loses_nothing(broker: RunningBroker) -> None:
    async def live(fleet: Fleet) -> None:
        running = asyncio.create_task(fleet.run())
        async with asyncio.timeout(PATIENCE_S):
            while fleet.received < 20:
                await asyncio.sleep(0.01)
            await asyncio.to_thread(wire.cut)
            await running

    with Wire(broker, broker.tcp) as wire:
        where = Target("127.0.0.1", wire.line.port, None)
        fleet = Fleet(where, Plan(devices=10, interval_s=0.1, duration_s=2, connect_rate=1000))
        asyncio.run(live(fleet))
        assert wire.cuts == 11
    assert fleet.reconnects == 11
    assert fleet.complete, summary(fleet)


def test_a_loss_is_noticed_by_every_count(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(tcp(broker), Plan(devices=4, interval_s=0.05, messages=3, drain_s=1.0, connect_rate=1000))
    enter = fleet.delivery_logs[0].on_message
    monkeypatch.setattr(
        fleet.delivery_logs[0], "on_message", lambda device, number: None if device == 2 else enter(device, number)
    )
    asyncio.run(fleet.run())
    assert (fleet.lost, fleet.received, fleet.acked) == (3, 9, 12)
    assert not fleet.complete


def test_a_fleet_that_is_ended_early_still_drains(broker: RunningBroker) -> None:
    async def live() -> None:
        running = asyncio.create_task(fleet.run())
        async with asyncio.timeout(PATIENCE_S):
            while fleet.received < 10:
                await asyncio.sleep(0.01)
            fleet.end()
            await running

    fleet = Fleet(tcp(broker), Plan(devices=5, interval_s=0.02, duration_s=3600, connect_rate=1000))
    asyncio.run(live())
    assert fleet.complete


def test_without_a_broker_there_is_no_fleet() -> None:
    with pytest.raises(MqttError, match="Nobody listens"):
        asyncio.run(Fleet(Target("127.0.0.1", 1, None), Plan(devices=1)).run())


def test_the_summary_is_json_on_stdout_alone(broker: RunningBroker) -> None:
    way = ["--plain", "--host=127.0.0.1", f"--port={broker.tcp.port}"]
    done = run(*way, "--devices=5", "--messages=2", "--interval=0.05", "--connect-rate=1000", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert (found["devices"], found["sent"], found["received"], found["lost"]) == (5, 10, 10, 0)
    assert list(found["end_to_end_ms"]) == ["p50", "p95", "p99", "max"]


def test_the_report_names_the_failures() -> None:
    fleet = Fleet(Target("h", 1, None), Plan(devices=3, qos=0))
    fleet.connected, fleet.not_connected, fleet.ended = 1, 2, 1
    fleet.sent[0] = 1
    lines = report(summary(fleet))
    assert "1 of 3 devices connected to h:1 over TCP in 0.0 s, 2 could not connect, 1 were sent away" in lines
    assert "0 received by 1 subscriber, 1 lost, 0 duplicates, 0 unacknowledged" in lines
    assert progress(fleet) == "connecting: 1 of 3 devices connected"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--duration=1", "--messages=1"], 2, "--duration and --messages both say how long; use one."),
        (["--devices=100000000"], 2, "this system lets a process have"),
        (["--cafile=nowhere.crt"], 2, "nowhere.crt: no such file."),
        (["--size=10"], 2, "10 is not in the range"),
        (["--plain", "--host=127.0.0.1", "--port=1"], 3, "Nobody listens on 127.0.0.1:1"),
    ],
)
def test_options_that_cannot_work_are_refused_with_a_sentence(arguments: list[str], code: int, sentence: str) -> None:
    done = run(*arguments)
    assert done.exit_code == code
    assert sentence in done.stderr
