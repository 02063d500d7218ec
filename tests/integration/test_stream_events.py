"""Streams over Server-Sent Events on real sockets: an event's id says where to go on, after a cut and a restart."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mqttlite.extensions.streams.options import StreamOptions
from mqttlite.gateway.caller import Role
from tests.integration.test_gateway_streams import Event, gone, stream
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway

JOBS = StreamOptions(name="jobs", filters=("work/#",), partitions=2)
PATH = "/api/v1/streams/jobs/subscribe"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with running_gateway(tmp_path, streams=(JOBS,)) as under_test:
        yield under_test


async def put(gateway: GatewayUnderTest, *payloads: str, topic: str = "work/a") -> None:
    for each in payloads:
        await gateway.broker.publish(topic, each.encode(), qos=1)


async def events(gateway: GatewayUnderTest, path: str, count: int, **headers: str) -> list[Event]:
    async with stream(gateway, path, **headers) as found:
        assert found.status == 200, found.head
        return [await found.next() for _ in range(count)]


def payloads(found: list[Event]) -> list[Any]:
    return [each["payload"] for each in found]


@pytest.mark.long
async def test_the_id_of_an_event_says_where_to_go_on(gateway: GatewayUnderTest) -> None:
    await put(gateway, "1", "2", "3")
    found = await events(gateway, f"{PATH}?since=earliest", 3)
    assert payloads(found) == [1, 2, 3]
    partition = int(dict(found[0]["properties"]["user_properties"])["stream-partition"])
    ids = [f"{partition}:{end}" for end in (1, 2, 3)]  # the other one is at its beginning
    assert [each["id"] for each in found] == ids
    assert found[0]["message_id"].isdecimal()
    assert found[0]["topic"] == "work/a"
    await put(gateway, "4", topic="work/b")
    rest = await events(gateway, PATH, 3, Last_Event_ID=ids[0])
    assert payloads(rest)[:2] == [2, 3] or payloads(rest)[0] == 4
    assert sorted(payloads(rest)) == [2, 3, 4]
    assert payloads(await events(gateway, f"{PATH}?last_event_id={ids[2]}", 1)) == [4]
    assert payloads(await events(gateway, f"{PATH}?last_event_id={rest[2]['id']}&since=earliest", 0)) == []
    await gone(gateway, 0)


@pytest.mark.long
async def test_an_id_of_a_thousand_partitions_fits_into_a_header(tmp_path: Path) -> None:
    many = StreamOptions(name="jobs", filters=("work/#",), partitions=1_000)
    async with running_gateway(tmp_path, streams=(many,)) as gateway:
        await put(gateway, "1")
        (found,) = await events(gateway, f"{PATH}?since=earliest", 1)
        place = dict(found["properties"]["user_properties"])
        assert found["id"] == f"{place['stream-partition']}:1"
        await put(gateway, "2")
        every = ",".join(f"{at}:{int(at == int(place['stream-partition']))}" for at in range(1_000))
        assert payloads(await events(gateway, PATH, 1, Last_Event_ID=every)) == [2]
        large = ",".join(f"{at}:999999999" for at in range(1_000))  # it has never had these
        gap, first = await events(gateway, PATH, 2, Last_Event_ID=large)
        assert (gap["event"], first["payload"]) == ("gap", 1)


@pytest.mark.long
async def test_a_page_goes_on_after_a_restart_of_the_broker(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, streams=(JOBS,)) as gateway:
        async with stream(gateway, PATH) as found:
            await put(gateway, "1", "2")
            first = await found.next()
        await put(gateway, "3", topic="work/other")
    async with running_gateway(tmp_path, streams=(JOBS,)) as gateway:
        await put(gateway, "4")
        rest = await events(gateway, PATH, 3, Last_Event_ID=first["id"])
        assert sorted(payloads(rest)) == [2, 3, 4]


async def test_a_stream_is_read_from_a_time_by_topic_and_content(gateway: GatewayUnderTest) -> None:
    await put(gateway, "1", "2")
    await put(gateway, "3", "4", topic="work/b")
    assert payloads(await events(gateway, f"{PATH}?since=earliest&filter=work/b", 2)) == [3, 4]
    assert payloads(await events(gateway, f"{PATH}?since=2020-01-01&where=payload%20=%202", 1)) == [2]
    assert payloads(await events(gateway, f"{PATH}?since=0:0,1:0&qos=0&filter=work/a", 1)) == [1]


async def test_an_id_of_another_stream_of_that_name_is_a_gap(gateway: GatewayUnderTest) -> None:
    await put(gateway, "1")
    gap, event = await events(gateway, PATH, 2, Last_Event_ID="0:17,1:17")
    assert (gap["type"], gap["reason"], event["payload"]) == ("gap", "not_kept", 1)
    gap, event = await events(gateway, PATH, 2, Last_Event_ID="7:0")
    assert (gap["type"], event["payload"]) == ("gap", 1)


@pytest.mark.long
async def test_an_event_is_that_of_its_receiver(gateway: GatewayUnderTest) -> None:
    """Events are shared by receivers of one message, but not by those of two streams."""
    streams = gateway.broker._assembly.streams
    assert streams is not None
    await put(gateway, "1")
    streams.create(StreamOptions(name="late", filters=("work/#",), partitions=1))
    async with stream(gateway, PATH) as found, stream(gateway, PATH.replace("jobs", "late")) as late:
        await put(gateway, "2")
        for each, offset in ((found, "1"), (late, "0")):
            assert dict((await each.next())["properties"]["user_properties"])["stream-offset"] == offset


async def test_a_wrong_position_is_refused(gateway: GatewayUnderTest) -> None:
    async with gateway.client(Role.ADMIN) as client:
        for path, headers, status, sentence in (
            (f"{PATH}?since=noon", {}, 422, "since: 'noon' is no position"),
            (PATH, {"Last-Event-ID": "0-17"}, 422, "Last-Event-ID: '0-17' is no position"),
            (PATH, {"Last-Event-ID": "earliest"}, 422, "'earliest' is no id of an event of this stream"),
            (f"{PATH}?since=9:0", {}, 422, "jobs has the partitions 0 to 1"),
            (f"{PATH}?qos=2", {}, 422, "qos is '2'"),
            (PATH.replace("jobs", "other"), {}, 404, "there is no stream 'other'"),
            (f"{PATH}?filter=%23%23", {}, 422, "is not a whole last level"),
        ):
            answer = await client.get(path, headers=headers)
            assert (answer.status_code, sentence in answer.text) == (status, True), (path, answer.text)


async def test_only_a_client_that_may_subscribe_to_a_stream_reads_it(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("user ann\ntopic read $stream/jobs\nuser bob\ntopic read work/#\n")
    options = {"acl_file": str(acl), **nobody_without_credentials(tmp_path)}
    async with running_gateway(tmp_path, users=("ann", "bob"), streams=(JOBS,), **options) as gateway:
        await put(gateway, "1")
        found = await events(gateway, f"{PATH}?since=earliest&token={gateway.users['ann']}", 1)
        assert payloads(found) == [1]
        async with stream(gateway, f"{PATH}?token={gateway.users['bob']}") as refused:
            assert refused.status == 403
        async with gateway.client() as client:
            for query in ("since=earliest", "since=9:0", "since=2020-01-01"):
                answer = await client.get(f"{PATH}?{query}&token={gateway.users['bob']}")
                assert (answer.status_code, "'$stream/jobs'" in answer.text) == (403, True), answer.text
            other = await client.get(f"{PATH.replace('jobs', 'other')}?token={gateway.users['bob']}")
            assert other.status_code == 403, "who may not read learns not even whether there is a stream"
        async with stream(gateway, PATH) as refused:
            assert refused.status == 401


async def test_the_offsets_of_a_time_and_of_now_are_asked(gateway: GatewayUnderTest) -> None:
    await put(gateway, "1", "2")
    async with gateway.client(Role.VIEWER) as client:
        now = (await client.get("/api/v1/streams/jobs/snapshot")).json()
        assert now in [{"stream": "jobs", "positions": each} for each in ("0:2,1:0", "0:0,1:2")]
        for at, positions in (("earliest", "0:0,1:0"), ("2020-01-01", "0:0,1:0"), ("2120-01-01", now["positions"])):
            answer = await client.get("/api/v1/streams/jobs/offsets", params={"at": at})
            assert answer.json()["positions"] == positions
        assert (await client.get("/api/v1/streams/other/snapshot")).status_code == 404
        assert (await client.get("/api/v1/streams/jobs/offsets?at=noon")).status_code == 422
    async with gateway.client(Role.USER) as client:
        assert (await client.get("/api/v1/streams/jobs/snapshot")).status_code == 403
