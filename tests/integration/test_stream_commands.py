"""`mqttlite stream` beside a real broker with a data directory, and what the stream has after a restart."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.streams.history import first_since
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish
from tests.integration.conftest import Rig
from tests.support.inside import assembly_of

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

ORDERS = StreamOptions(name="orders", filters=("shop/#",), partitions=2)


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        yield Path(found)


def config(directory: Path) -> Config:
    return Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory), streams=(ORDERS,))


@pytest.fixture
async def broker(rig: Rig, directory: Path) -> Broker:
    return await rig.broker(config(directory))


async def run(directory: Path, *arguments: str) -> Result:
    words = ("stream", arguments[0], "--data-dir", str(directory), *arguments[1:])
    return await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)


async def printed(directory: Path, *arguments: str) -> list[list[str]]:
    result = await run(directory, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return [line.split("\t") for line in result.stdout.splitlines()]


@pytest.mark.long
async def test_streams_are_made_listed_shown_and_deleted(broker: Broker, directory: Path) -> None:
    made = await printed(
        directory, "create", "logs", "log/#", "--partitions", "1", "--keep", "60", "--keep-bytes", "9999"
    )
    assert made == [["Stream logs made: subscribe to $stream/logs, or to $stream/logs@earliest."]]
    await broker.publish("log/a", b"x", qos=1)
    listed = await printed(directory, "ls")
    assert [each[0] for each in listed] == ["logs", "orders"]
    assert listed[0][1] == "1"
    assert listed[0][3:] == ["0", "1", "60", "9999", "log/#"]
    ((partition, first, end, messages, _),) = await printed(directory, "show", "logs")
    assert (partition, first, end, messages) == ("0", "0", "1", "1")
    assert (await printed(directory, "rm", "logs", "--yes"))[0][0].startswith("Deleted: stream logs")
    refused = {
        ("show", "logs"): (3, "Error: There is no stream 'logs'.\n"),
        ("rm", "logs", "--yes"): (3, "Error: There is no stream 'logs'.\n"),
        ("groups", "logs"): (3, "Error: There is no stream 'logs'.\n"),
        ("readers", "logs"): (3, "Error: There is no stream 'logs'.\n"),
        ("seek", "orders", "g", "earliest"): (3, "Error: The stream orders has no group 'g'.\n"),
        ("rm", "orders", "--group", "g", "--yes"): (3, "Error: The stream orders has no group 'g'.\n"),
        ("create", "orders"): (4, "Error: There is a stream orders already.\n"),
        ("read", "orders", "--partition", "2"): (3, "Error: The stream orders has the partitions 0 to 1, not 2.\n"),
    }
    for arguments, (code, sentence) in refused.items():
        result = await run(directory, *arguments)
        assert (result.exit_code, result.stderr) == (code, sentence), arguments
    assert (await run(directory, "create", "a b")).exit_code == 2
    assert (await run(directory, "offsets", "logs")).exit_code == 3
    assert (await run(directory, "offsets", "orders", "--at", "noon")).exit_code == 2
    options = ("--last-value", "--keep-tombstones", "7")
    (made,) = await printed(directory, "create", "table", *options)
    shown = json.loads((await run(directory, "show", "table", "--json")).stdout)
    assert (made[0].split(":")[0], shown["last_value"]) == ("Stream table made", True)
    assert (await run(directory, "read", "orders", "--since", "noon")).exit_code == 2


@pytest.mark.long
async def test_messages_are_read_from_an_offset_and_a_time_and_readers_are_listed(
    rig: Rig, broker: Broker, directory: Path
) -> None:
    for at in range(5):
        await broker.publish("shop/a", str(at).encode(), qos=1)
    found = [each for at in ("0", "1") for each in await printed(directory, "read", "orders", "--partition", at)]
    assert [(each[1], each[3], each[4]) for each in found] == [(str(at), "shop/a", str(at)) for at in range(5)]
    partition = found[0][0]
    for since, expected in ((found[3][2], "34"), ("2", "234"), ("latest", "")):
        rows = await printed(directory, "read", "orders", "--partition", partition, "--since", since)
        assert [each[4] for each in rows] == list(expected)
    result = await run(directory, "read", "orders", "--partition", partition, "--limit", "2")
    assert result.stderr == "There are 3 more: --since 2\n"

    ends = ["5" if each == partition else "0" for each in ("0", "1")]
    assert await printed(directory, "offsets", "orders") == [[f"0:{ends[0]},1:{ends[1]}"]]
    ends = ["3" if each == partition else "0" for each in ("0", "1")]
    assert await printed(directory, "offsets", "orders", "--at", found[3][2]) == [[f"0:{ends[0]},1:{ends[1]}"]]
    snapshot = json.loads((await run(directory, "offsets", "orders", "--at", "earliest", "--json")).stdout)
    assert snapshot == {"stream": "orders", "positions": "0:0,1:0"}

    member = await rig.device(broker.port, "m")
    assert await member.subscribe("$share/g/$stream/orders@earliest", 1) == b"\x01"
    packets = [await member.expect(Publish) for _ in range(5)]
    assert [each.payload for each in packets] == [b"%d" % at for at in range(5)]
    ((name, mode, lag, rest, under_way, *_, moves, members, owners),) = await printed(directory, "groups", "orders")
    assert (name, mode, lag, rest, under_way, moves, members) == ("g", "ordered", "5", "100%", "5", "0", "m")
    assert owners == "0:0=m 1:0=m"
    ((client, subscription, group, connected, *_),) = await printed(directory, "readers", "orders")
    assert (client, subscription, group, connected) == ("m", "$share/g/$stream/orders@earliest", "g", "yes")
    for position, left in (("latest", "0"), ("0:0,1:0", "5")):
        (said,) = await printed(directory, "seek", "orders", "g", position)
        assert said[0] == f"Group g of orders goes on from {position}."
        assert (await printed(directory, "groups", "orders"))[0][2] == left
    assert (await printed(directory, "rm", "orders", "--group", "g", "--yes"))[0][0].startswith("Deleted: group g")
    assert json.loads((await run(directory, "groups", "orders", "--json")).stdout)["items"] == []


@pytest.mark.long
async def test_a_shared_group_is_made_and_its_dead_letters_are_listed_replayed_and_dropped(
    rig: Rig, broker: Broker, directory: Path
) -> None:
    (made,) = await printed(
        *(directory, "group", "orders", "work", "--max-attempts", "1", "--ack-deadline", "5"),
        *("--min-delay", "0", "--max-delay", "0"),
    )
    assert made == ["Group work of orders is shared: subscribe to $share/work/$stream/orders."]
    for at in range(3):
        await broker.publish("shop/a", str(at).encode(), qos=1)
    member = await rig.device(broker.port, "m")
    assert await member.subscribe("$share/work/$stream/orders@earliest", 1) == b"\x01"
    packets = [await member.expect(Publish) for _ in range(3)]
    for each in packets:
        member.send(Ack(PUBACK, each.packet_id, 0x80))
    for _ in range(100):
        letters = await printed(directory, "dead", "orders", "work")
        if len(letters) == 3:
            break
    assert [(*each[1:4], *each[5:]) for each in letters] == [
        (str(at), "nacked", "1", "yes", "reason code 0x80") for at in range(3)
    ]
    (place, other, _) = [f"{each[0]}:{each[1]}" for each in letters]
    assert len(await printed(directory, "dead", "orders", "work", "--places", place)) == 1
    assert await printed(directory, "dead", "orders", "work", "--drop", "--places", other) == [
        ["1 dead letter dropped."]
    ]
    ((_, mode, lag, _, _, _, dead, *_),) = await printed(directory, "groups", "orders")
    assert (mode, lag, dead) == ("shared", "0", "2")
    assert await printed(directory, "dead", "orders", "work", "--replay") == [["2 dead letters replayed."]]
    again = [await member.expect(Publish) for _ in range(2)]
    assert [each.payload for each in again] == [b"0", b"2"]
    for each in again:
        member.send(Ack(PUBACK, each.packet_id))
    for _ in range(100):
        if not await printed(directory, "dead", "orders", "work"):
            break
    assert json.loads((await run(directory, "dead", "orders", "work", "--json")).stdout)["items"] == []
    for arguments, code in (
        (("dead", "orders", "none"), 3),
        (("dead", "orders", "work", "--replay", "--drop"), 2),
        (("dead", "orders", "work", "--drop", "--places", "1"), 2),
        (("group", "orders", "a+b"), 2),
        (("group", "orders", "work", "--max-attempts", "0"), 2),
        (("group", "none", "work"), 3),
    ):
        assert (await run(directory, *arguments)).exit_code == code, arguments
    assert await member.subscribe("$share/other/$stream/orders", 1) == b"\x01"
    assert (await run(directory, "group", "orders", "other")).exit_code == 4
    assert (await run(directory, "dead", "orders", "other")).exit_code == 3


@pytest.mark.long
async def test_a_stream_on_disk_is_the_same_after_a_restart(rig: Rig, broker: Broker, directory: Path) -> None:
    for at in range(50):
        await broker.publish(f"shop/{at % 5}", str(at).encode(), qos=1)
    before = await everything(directory)
    assert len(before) == 50
    await broker.stop()
    broker = await rig.broker(config(directory))
    assert await everything(directory) == before
    streams = assembly_of(broker).streams
    assert streams is not None
    queue_reader = assembly_of(broker)._runtime.queue_reader
    for number in range(2):
        log = streams.partition("orders", number)
        times = [int(each[2]) for each in await printed_ids(directory, number)]
        for at, time in enumerate(times):
            assert await first_since(log, time, queue_reader.entries) == at
            assert await first_since(log, time + 1, queue_reader.entries) >= at + 1


async def everything(directory: Path) -> list[list[str]]:
    return [each for at in ("0", "1") for each in await printed(directory, "read", "orders", "--partition", at)]


async def printed_ids(directory: Path, partition: int) -> list[tuple[str, str, str]]:
    """Partition, offset and number of each message."""
    result = await run(directory, "read", "orders", "--partition", str(partition), "--json")
    found = json.loads(result.stdout)["messages"]
    return [(each["partition"], each["offset"], each["message_id"]) for each in found]
