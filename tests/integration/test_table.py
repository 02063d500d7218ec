"""`Client.table` against a broker: the last values of a stream, which follow it."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from mqttlite.client import Client, MqttError, SubscribeRefused, Table
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.server import Broker

PATIENCE_S = 60.0
PRICES = StreamOptions(
    name="prices", filters=("price/#",), partitions=2, keep_s=1, last_value=True, keep_tombstones_s=0
)


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with Broker(Config(listeners=(ListenerOptions(port=0),), streams=(PRICES,))) as running:
        yield running


def client(broker: Broker, **options: object) -> Client:
    return Client("127.0.0.1", broker.port, **{"min_reconnect_delay": 0.01, **options})  # type: ignore[arg-type]


async def put(broker: Broker, *pairs: str) -> None:
    for each in pairs:
        key, _, value = each.partition("=")
        await broker.publish(f"price/{key}", value.encode(), qos=1)


def values(table: Table) -> dict[str, str]:
    return {key.removeprefix("price/"): message.payload.decode() for key, message in table.items()}


async def test_a_table_has_the_newest_values_and_follows(broker: Broker) -> None:
    await put(broker, "x=1", "y=1", "x=2", "z=1", "z=")
    async with client(broker) as us, us.table("prices") as table:
        assert values(table) == {"x": "2", "y": "1"}
        assert (len(table), "price/x" in table, table.get("price/z")) == (2, True, None)
        assert (table["price/x"].topic, table["price/x"].stream) == ("price/x", "prices")
        assert repr(table) == "Table('$stream/prices', 2 keys)"
        changes = table.changes()
        change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await put(broker, "y=2", "y=3", "x=", "w=1")
        async with asyncio.timeout(PATIENCE_S):
            found = {await change}
            while len(found) < 3:
                found.add(await anext(changes))
        assert found == {"price/x", "price/y", "price/w"}
        assert values(table) == {"y": "3", "w": "1"}
        await changes.aclose()
    assert values(table) == {"y": "3", "w": "1"}, "it stays as it was"
    await put(broker, "y=4")
    assert values(table)["y"] == "3"


async def test_a_table_of_a_part_of_the_topics(broker: Broker) -> None:
    await put(broker, "x=1", "metal/zinc=2")
    async with client(broker) as us, us.table("prices", "price/metal/#") as table:
        assert values(table) == {"metal/zinc": "2"}


@pytest.mark.slow
async def test_a_table_that_may_have_missed_a_removal_reads_the_stream_again(broker: Broker) -> None:
    await put(broker, "x=1", "y=1")
    async with (
        client(broker, client_id="t", min_reconnect_delay=4.0, max_reconnect_delay=4.0) as us,
        us.table("prices") as table,
    ):
        seen: list[str] = []

        async def watch() -> None:
            async for key in table.changes():
                seen.append(key)

        watching = asyncio.create_task(watch())
        assert broker.admin.kick("t")
        await put(broker, "x=", "y=2", "y=3", *(f"{at}={at}" for at in range(5)))
        await asyncio.sleep(1.2)
        streams = broker._assembly.streams
        assert streams is not None
        async with asyncio.timeout(PATIENCE_S):
            while streams.state("prices").removed < 3:
                await asyncio.sleep(0.1)
        await put(broker, "end=1")
        assert values(table) == {"x": "1", "y": "1"}, "it does not know yet"
        async with asyncio.timeout(PATIENCE_S):
            while "price/end" not in seen or "price/x" not in seen:
                await asyncio.sleep(0.05)
        assert values(table) == {"y": "3", "end": "1", **{str(at): str(at) for at in range(5)}}
    await asyncio.wait_for(watching, PATIENCE_S)


async def test_a_table_with_too_many_keys_ends(broker: Broker) -> None:
    await put(broker, "x=1", "y=1")
    async with client(broker) as us:
        with pytest.raises(MqttError, match="more than 1 keys: take a part"):
            await us.table("prices", max_keys=1).__aenter__()
        async with us.table("prices", max_keys=2) as table:
            changes = table.changes()
            change = asyncio.ensure_future(anext(changes))
            await asyncio.sleep(0)
            await put(broker, "z=1")
            with pytest.raises(MqttError, match="more than 2 keys"):
                await asyncio.wait_for(change, PATIENCE_S)
            with pytest.raises(MqttError, match="more than 2 keys"):
                table["price/x"]
            with pytest.raises(MqttError, match="more than 2 keys"):
                list(table)


async def test_a_table_says_what_is_wrong(broker: Broker) -> None:
    async with client(broker) as us:
        with pytest.raises(SubscribeRefused):
            await us.table("other").__aenter__()
        with pytest.raises(ValueError, match="no name of a stream"):
            us.table("a/b")
        async with us.table("prices") as table:
            with pytest.raises(ValueError, match="used once"):
                await table.__aenter__()
            with pytest.raises(ValueError, match="already"):
                await us.table("prices").__aenter__()
    async with client(broker, protocol=4) as old:
        with pytest.raises(ValueError, match=r"5\.0"):
            old.table("prices")


async def test_a_table_ends_with_its_client(broker: Broker) -> None:
    us = client(broker)
    await us.__aenter__()
    table = us.table("prices")
    async with table:
        changes = table.changes()
        change = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        await us.__aexit__(None, None, None)
        with pytest.raises(StopAsyncIteration):
            await asyncio.wait_for(change, PATIENCE_S)
    with pytest.raises(MqttError):
        await us.table("prices").__aenter__()
