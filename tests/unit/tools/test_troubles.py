"""Troubled devices against a real broker: each does what its name says, and counts what the broker counts."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.interop.support import RunningBroker
from tools.devices.bare import Bare
from tools.devices.counting import Count
from tools.devices.fleet import command, report, summary
from tools.devices.simulation import Fleet, Plan
from tools.devices.target import Target
from tools.devices.troubles import LIVES

TROUBLES = dict.fromkeys(LIVES, 1)

CONNACK = bytes.fromhex("20 03 00 00 00")
TAKEN_OVER = bytes.fromhex("e0 02 8e 00")

SIZE_BYTES = 40_000
"""Of a payload: even where the machine is busy and the greedy device sends few, they are more than the kernel takes for
who does not read (4 MiB), and the slow one is seen."""


@pytest.mark.parametrize(("body", "frame"), [(0, 2), (127, 129), (128, 131), (16_383, 16_386), (2_097_152, 2_097_157)])
def test_a_packet_that_came_counts_with_its_header(body: int, frame: int) -> None:
    count = Count()
    count.trace(f"received PUBLISH ({body} bytes)")
    count.trace("sending PINGREQ (2 bytes)")
    assert count == Count(messages_received=1, bytes_received=frame, bytes_sent=2)


def test_a_line_that_tells_of_no_packet_is_no_zero() -> None:
    with pytest.raises(ValueError, match="tells of no packet"):
        Count().trace("sending PUBLISH")


@pytest.mark.parametrize(
    ("troubles", "sentence"),
    [
        (["flaping=5"], "--trouble flaping=5: the troubles are flapping, silent, slow, greedy, duplicate."),
        (["slow"], "--trouble slow: say how many devices, such as slow=2."),
        (["slow=0"], "--trouble slow=0: say how many devices"),
        (["slow=-1"], "--trouble slow=-1: say how many devices"),
        (["slow=1", "slow=2"], "--trouble slow=2: slow is there twice"),
    ],
)
def test_an_unknown_trouble_is_named_in_a_sentence(troubles: list[str], sentence: str) -> None:
    done = CliRunner().invoke(command, [f"--trouble={trouble}" for trouble in troubles])
    assert done.exit_code == 2
    assert sentence in done.stderr


async def test_a_device_that_hangs_up_counts_bytes_that_the_broker_wrote_before_it_noticed() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"slow-to-see")
        writer.write(CONNACK)
        await reader.read()
        writer.write(TAKEN_OVER)
        writer.close()

    count = Count()
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        bare = Bare(Target("127.0.0.1", server.sockets[0].getsockname()[1], None), "slow-to-see", count, 10)
        await bare.open()
        await bare.hang_up()
    assert count.bytes_received == len(CONNACK) + len(TAKEN_OVER)


def rows_of(directory: Path, client_id: str = "") -> list[dict[str, Any]]:
    files = directory.glob("table=sessions/**/*.jsonl")
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [row for row in rows if client_id in ("", row["client_id"])]


def told(rows: list[dict[str, Any]]) -> Count:
    """What the broker has counted, from the clients' side."""
    return Count(
        sessions=len(rows),
        messages_sent=sum(row[f"received_qos{qos}"] for row in rows for qos in range(3)),
        messages_received=sum(row[f"sent_qos{qos}"] for row in rows for qos in range(3)),
        bytes_sent=sum(row["bytes_received"] for row in rows),
        bytes_received=sum(row["bytes_sent"] for row in rows),
    )


@pytest.mark.slow
@pytest.mark.parametrize(("qos", "tls"), [(0, False), (1, True), (2, False)])
def test_every_trouble_shows_and_every_count_is_the_brokers(
    certificate_files: Path, tmp_path: Path, qos: int, tls: bool
) -> None:
    plan = Plan(devices=5, interval_s=0.2, duration_s=3.5, size_bytes=SIZE_BYTES, qos=qos, troubles=TROUBLES)
    with RunningBroker(certificate_files, telemetry=tmp_path) as broker:
        context = broker.tls.context("device") if tls else None
        fleet = Fleet(Target("localhost", broker.tls.port if tls else broker.tcp.port, context), plan)
        asyncio.run(fleet.run())
    assert fleet.complete, summary(fleet)
    assert told(rows_of(tmp_path)) == fleet.count
    of = {device.kind: rows_of(tmp_path, device.client_id) for device in fleet.troubled}
    for device in fleet.troubled:
        assert told(of[device.kind]) == device.count
        assert device.kind in device.client_id
        assert device.client_id in report(summary(fleet))
    assert [row["close_reason"] for row in of["silent"]] == ["connection_lost"]
    assert of["silent"][0]["received_qos0"] + of["silent"][0]["received_qos1"] + of["silent"][0]["received_qos2"] < 10
    assert {row["close_reason"] for row in of["flapping"]} == {"connection_lost"}
    assert len(of["flapping"]) >= 3
    assert [row["close_reason"] for row in of["duplicate"]][:-1] == ["taken_over"] * (len(of["duplicate"]) - 1)
    assert len(of["duplicate"]) >= 4
    assert of["slow"][0]["backpressure_s"] > 0.3
    assert fleet.troubled[3].count.messages_sent > 20 * max(fleet.sent[:5])


def test_a_troubled_device_that_is_not_let_in_is_no_success() -> None:
    fleet = Fleet(Target("127.0.0.1", 1, None), Plan(devices=1, troubles={"flapping": 1}))
    asyncio.run(fleet._be_troubled(fleet.troubled[0]))
    assert "flapping-0 could not connect to 127.0.0.1:1" in str(fleet.first_error)
    assert (fleet.ended, fleet.complete) == (1, False)
