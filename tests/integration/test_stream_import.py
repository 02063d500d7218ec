"""`mqttlite stream import` beside a real broker: what the stream has afterwards, and what its readers get."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from click.testing import CliRunner, Result

from mqttlite import Broker, Client, Config, ListenerOptions
from mqttlite.cli.main import main
from mqttlite.client import Properties
from mqttlite.core.message import Message
from mqttlite.extensions.streams.append_routes import Appended, ArchivedMessage, ArchivedMessages, routes
from mqttlite.extensions.streams.archive import GRACE_US, Archive
from mqttlite.extensions.streams.archive_files import HOUR_US, encoded
from mqttlite.extensions.streams.archive_names import FOLDER, file_name
from mqttlite.extensions.streams.archive_options import ArchiveOptions
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.gateway.context import OperatorContext
from tests.support.inside import streams_of

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

ORDERS = StreamOptions(name="orders", filters=("shop/#",), partitions=2)
SMALL = StreamOptions(name="small", filters=("shop/#",), partitions=2, last_value=True, keep_bytes=2_000)
COPY = StreamOptions(name="copy", filters=("shop/#",), partitions=2)
OTHER = StreamOptions(name="other", filters=("office/#",))


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        yield Path(found)


@pytest.fixture
async def archive(directory: Path) -> Path:
    """What a broker archived of the stream `orders`."""
    folder = directory / "archive"
    config = Config(listeners=(ListenerOptions(port=0),), streams=(ORDERS,), data_dir=str(directory / "first"))
    async with Broker(config) as broker, Client("127.0.0.1", broker.port, timeout=60) as us:
        for number in range(6):
            given = [("ordering-key", f"k{number % 3}"), ("dedup-id", f"theirs {number}")]
            properties = Properties(user_properties=given, content_type="text/plain")
            await us.publish(f"shop/{number}", bytes([number, 255]), 1, properties=properties)
        for number in range(4):
            await us.publish("$stream/orders", f"turn {number}", 1)
        ahead_us = HOUR_US + GRACE_US
        options = ArchiveOptions(directory=str(folder))
        await Archive(options, *streams_of(broker), lambda: time.time_ns() // 1_000 + ahead_us).check()
    return folder


@pytest.fixture
async def broker(directory: Path) -> AsyncIterator[Broker]:
    """The one that gets it."""
    streams = (ORDERS, SMALL, COPY, OTHER)
    config = Config(listeners=(ListenerOptions(port=0),), streams=streams, data_dir=str(directory / "second"))
    async with Broker(config) as broker:
        yield broker


def files(archive: Path) -> list[Path]:
    return sorted(archive.rglob("*.parquet"))


def write(archive: Path, stream: str, messages: list[Message]) -> Path:
    """Archive messages as those of partition 0."""
    folder = archive / FOLDER / f"stream={stream}" / "date=2026-11-21" / "hour=11"
    folder.mkdir(parents=True)
    path = folder / file_name(0, 0, len(messages) - 1)
    path.write_bytes(encoded(0, list(enumerate(messages))))
    return path


async def run(directory: Path, *arguments: object) -> Result:
    words = ("stream", "import", "--data-dir", str(directory / "second"), *map(str, arguments))
    return await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)


Shown = tuple[int, str, bytes, str | None, list[tuple[str, str]]]


async def messages(broker: Broker, stream: str = "orders") -> list[Shown]:
    """Partition, topic, payload, content type and the publisher's properties of all messages, by partition."""
    found = []
    async with Client("127.0.0.1", broker.port, timeout=60) as us:
        async for each in us.stream(stream).read():
            properties = each.properties
            given = [pair for pair in properties.user_properties if pair[0] in ("ordering-key", "dedup-id", "acks")]
            found.append((each.partition, each.topic, bytes(each.payload), properties.content_type, given))
    return sorted(found, key=lambda each: each[0])


def without_ours(found: list[Shown]) -> list[Shown]:
    """Messages without the `dedup-id` that the import gave them."""
    shown = []
    for partition, topic, payload, content_type, given in found:
        ours, *rest = given
        assert (ours[0], ours[1].partition("/")[0]) == ("dedup-id", "import")
        shown.append((partition, topic, payload, content_type, rest))
    return shown


async def archived(archive: Path, directory: Path) -> list[Shown]:
    """What the stream had that was archived."""
    config = Config(listeners=(ListenerOptions(port=0),), streams=(ORDERS,), data_dir=str(directory / "first"))
    async with Broker(config) as broker:
        return await messages(broker)


async def test_an_archive_comes_back_as_it_was_and_once(archive: Path, directory: Path, broker: Broker) -> None:
    result = await run(directory, archive)
    assert (result.exit_code, result.stderr, result.stdout) == (
        *(0, "", "10 messages appended to orders, 0 were there.\n"),
    )
    found = await messages(broker)
    assert without_ours(found) == await archived(archive, directory)
    assert len({each[0] for each in found}) == 2
    again = await run(directory, archive)
    progress = archive / "import-orders-into-orders.json"
    assert again.stdout == "0 messages appended to orders, 0 were there.\n"
    assert again.stderr == f"{progress} says that all is imported; remove it to begin anew.\n"
    progress.unlink()
    assert (await run(directory, archive)).stdout == "0 messages appended to orders, 10 were there.\n"
    assert await messages(broker) == found


async def test_readers_of_the_stream_get_what_is_imported_and_others_do_not(
    archive: Path, directory: Path, broker: Broker
) -> None:
    plain = broker.subscribe("shop/#", qos=1)
    async with Client("127.0.0.1", broker.port, timeout=60) as us, us.stream("orders").read(follow=True) as reading:
        assert (await run(directory, archive)).exit_code == 0
        got = [(await anext(reading)).payload for _ in range(10)]
        assert {bytes(each) for each in got} >= {b"turn 0", b"\x05\xff"}
        await us.publish("shop/last", "live", 1)
        assert bytes((await anext(reading)).payload) == b"live"
    assert (await anext(plain)).topic == "shop/last"


async def test_it_goes_into_another_stream_of_these_topics(archive: Path, directory: Path, broker: Broker) -> None:
    assert (await run(directory, archive, "--into", "copy", "--json")).stdout == (
        '{"appended": 10, "known": 0, "missing": 0}\n'
    )
    assert {each[1] for each in await messages(broker, "copy")} == {f"shop/{n}" for n in range(6)} | {"$stream/copy"}
    assert await messages(broker) == []
    wrong = await run(directory, archive, "--into", "other")
    assert wrong.exit_code == 1
    assert "is refused: 'shop/" in wrong.stderr
    assert "is no topic of the stream. What comes before is imported." in wrong.stderr
    missing = await run(directory, archive, "--into", "none")
    assert (missing.exit_code, missing.stderr) == (3, "Error: There is no stream 'none'.\n")


async def test_a_stream_that_was_made_anew_gets_all(archive: Path, directory: Path, broker: Broker) -> None:
    await run(directory, archive)
    streams, _page = streams_of(broker)
    streams.delete("orders")
    streams.create(ORDERS)
    await broker.commit()
    result = await run(directory, archive)
    assert result.stdout == "10 messages appended to orders, 0 were there.\n"
    assert "The stream orders was made anew since" in result.stderr


async def test_a_stream_without_room_says_so(directory: Path, broker: Broker) -> None:
    path = write(directory / "archive", "small", [Message(b"shop/%d" % n, b"x" * 300, 1) for n in range(20)])
    stopped = await run(directory, directory / "archive")
    there = len(await messages(broker, "small"))
    assert 0 < there < 20
    assert stopped.exit_code == 1
    assert stopped.stderr.startswith(
        f"Error: offset {there} of partition 0, in {path}, is refused: there is no room for it: "
    )
    again = await run(directory, directory / "archive")
    assert again.stderr.startswith(f"Error: offset {there} of partition 0")


async def test_the_acks_of_a_message_were_taken_when_it_was_published(directory: Path, broker: Broker) -> None:
    given = Properties(user_properties=[("acks", "$share/g/$stream/x 0:1"), ("ordering-key", "k")])
    write(directory / "archive", "orders", [Message(b"$stream/orders", b"result", 1, properties=given)])
    assert (await run(directory, directory / "archive")).exit_code == 0
    (found,) = without_ours(await messages(broker))
    assert found[1:] == ("$stream/orders", b"result", None, [("ordering-key", "k")])


async def test_a_message_that_no_request_takes_is_named(directory: Path, broker: Broker) -> None:
    large = write(
        directory / "archive", "orders", [Message(b"shop/1", b"x", 1), Message(b"shop/2", b"x" * 4_000_000, 1)]
    )
    stopped = await run(directory, directory / "archive")
    assert stopped.exit_code == 1
    assert f"from offset 1 of partition 0 on, in {large}, cannot be sent: A body of" in stopped.stderr
    assert len(await messages(broker)) == 1
    wrong = write(directory / "other", "orders", [Message(b"shop/+", b"x", 1)])
    stopped = await run(directory, directory / "other")
    assert f"from offset 0 of partition 0 on, in {wrong}, cannot be sent: Messages[0].topic: " in stopped.stderr


async def test_a_broken_file_ends_it_with_its_name(archive: Path, directory: Path, broker: Broker) -> None:
    _first, second = files(archive)
    content = second.read_bytes()
    second.write_bytes(content[: len(content) // 2])
    stopped = await run(directory, archive)
    assert stopped.exit_code == 1
    assert f"{second} cannot be read: " in stopped.stderr
    there = len(await messages(broker))
    assert 0 < there < 10
    second.write_bytes(content)
    assert (await run(directory, archive)).stdout == f"{10 - there} messages appended to orders, 0 were there.\n"
    assert without_ours(await messages(broker)) == await archived(archive, directory)


async def test_it_survives_that_the_progress_is_older_than_the_stream(
    archive: Path, directory: Path, broker: Broker
) -> None:
    """As after kill -9 between the commit of the broker and the file of the command."""
    _first, second = files(archive)
    second.rename(directory / "later")
    progress = directory / "progress"
    await run(directory, archive, "--progress", progress)
    early = progress.read_bytes()
    (directory / "later").rename(second)
    await run(directory, archive, "--progress", progress)
    progress.write_bytes(early)
    result = await run(directory, archive, "--progress", progress)
    there = int(result.stdout.split()[5])
    assert (result.stdout, there > 0) == (f"0 messages appended to orders, {there} were there.\n", True)
    assert len(await messages(broker)) == 10


async def test_a_folder_without_archive_or_with_two_is_refused(archive: Path, directory: Path, broker: Broker) -> None:
    none = await run(directory, archive, "--stream", "x")
    assert (none.exit_code, none.stderr) == (2, f"Error: {archive}: there is no archive of the stream x.\n")
    write(archive, "more", [Message(b"shop/1", b"x", 1)])
    both = await run(directory, archive)
    assert (both.exit_code, both.stderr) == (
        *(2, f"Error: {archive}: There are the archives of more, orders: name one with --stream.\n"),
    )
    assert (await run(directory, archive, "--stream", "orders")).exit_code == 0


async def test_the_answer_comes_when_the_messages_are_committed(broker: Broker) -> None:
    streams, _entries = streams_of(broker)
    ends = []

    async def commit() -> None:
        ends.append(sum(each.end for each in streams.partitions("orders")))

    (route,) = routes(cast(OperatorContext, SimpleNamespace(streams=streams, commit=commit)))
    given = ArchivedMessages(messages=[ArchivedMessage("shop/1", b"x", "id")])
    assert await route.handler("orders", given) == Appended(appended=1, known=0, refused="", end=1)
    assert ends == [1]
