"""Operators look after queues by publishing: seek, purge, pause, resume, snapshot; and a seek ends what is pushed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.command_sink import MAX_COMMAND_BYTES, MAX_WAITING
from mqttlite.extensions.push import service
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.extensions.queues.properties import time_text
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Publish
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.integration.test_push import config, ends, queue
from tests.support.device import Device, until
from tests.support.inside import push_of, queueing_of
from tests.support.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

BILLS = QueueOptions(name="bills", filters=("bills/#",), retain_acked=True)
UNAUTHORIZED, NO_SUBSCRIBERS, POLICY, QUOTA = 0x87, 0x10, 0x83, 0x97


async def tell(device: Device, topic: str, payload: str = "", **properties: Any) -> int:
    """Publish at QoS 1; the reason code of PUBACK."""
    packet_id = device.packet_id()
    device.send(Publish(topic.encode(), payload.encode(), 1, False, False, packet_id, Properties(**properties)))
    while (found := await device.expect(Ack)).packet_id != packet_id:
        pass
    return found.reason_code


async def told(device: Device) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await device.expect(Publish)).payload)
    return found


def waiting(broker: Broker) -> list[bytes]:
    return [each.message.payload for each in broker.queues.pull("bills", 10)]


async def test_an_operator_seeks_pauses_and_purges_by_publishing(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), queues=(BILLS,)))
    for payload in (b"1", b"2", b"3"):
        await broker.publish("bills/a", payload, qos=1)
    pulled = broker.queues.pull("bills", 9)
    broker.queues.ack("bills", [each.ack_id for each in pulled])
    old = await rig.device(broker.port, "old", V311)
    await old.subscribe("ops/#", 0)
    second = json.dumps({"time": time_text(pulled[1].message.number)})
    assert await tell(old, "$queue/bills/$seek/ops/answer", second) == 0
    found = await told(old)
    assert (found["name"], found["depth"], waiting(broker)) == ("bills", 2, [b"2", b"3"])
    await old.disconnect()

    new = await rig.device(broker.port, "new", V5)
    await new.subscribe("ops/#", 0)
    answered = {"response_topic": "ops/here", "correlation_data": b"17"}
    assert await tell(new, "$queue/bills/$snapshot", "before", **answered) == 0
    packet = await new.expect(Publish)
    assert (packet.properties.correlation_data, json.loads(packet.payload)["name"]) == (b"17", "before")
    for command, payload, member, value in (
        ("$pause", "", "paused", True),
        ("$resume", "", "paused", False),
        ("$seek", '{"snapshot": "before"}', "depth", 2),
        ("$purge", "", "messages", 2),
        ("$seek", '{"snapshot": "before"}', "error", "There is no snapshot 'before'."),
        ("$seek", '{"time": "noon"}', "error", "'noon' is no time"),
        ("$seek", "yesterday", "error", "The body is no JSON"),
        ("$snapshot", "#", "error", "Name is '#': the name of a queue"),
    ):
        assert await tell(new, f"$queue/bills/{command}/ops/x", payload) == 0
        found = (await told(new))[member]
        assert found == value or (isinstance(value, str) and value in found), command
    assert await tell(new, "$queue/bills/$purge") == 0  # nobody asks for an answer


async def test_an_impossible_request_is_refused_at_once(rig: Rig, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic read ops/#\ntopic write ops/ok\ntopic read $queue/bills\ntopic write $queue/bills/$seek\n")
    listeners = tuple(ListenerOptions(port=0, mount_point=each) for each in ("", "bills/", "x/"))
    broker = await rig.broker(Config(listeners=listeners, queues=(BILLS,), acl_file=str(acl)))
    client = await rig.device(broker.port, "c")
    now = '{"time": "2026-11-24T08:30:00Z"}'
    for topic, payload, code in (
        ("$queue/bills/$seek", now, 0),
        ("$queue/bills/$seek/ops/ok", now, 0),
        ("$queue/bills/$seek/ops/other", now, UNAUTHORIZED),
        ("$queue/bills/$seek/$SYS/x", now, UNAUTHORIZED),
        ("$queue/bills/$seek/$queue/bills/$purge", now, UNAUTHORIZED),
        ("$queue/bills/$purge", "", UNAUTHORIZED),
        ("$queue/bills/$ack", "1-1-1", NO_SUBSCRIBERS),
        ("$queue/bills/$seek", " " * MAX_COMMAND_BYTES + now, POLICY),
    ):
        assert await tell(client, topic, payload) == code, topic
    acl.write_text(acl.read_text() + "topic write $queue/nothing/$seek\ntopic readwrite bills/ops/ok\n")
    await broker.reload()
    assert await tell(client, "$queue/nothing/$seek", now) == NO_SUBSCRIBERS
    outside = await rig.device(broker.listeners[2].port, "outside")
    assert await tell(outside, "$queue/bills/$seek", now) == NO_SUBSCRIBERS
    inside = await rig.device(broker.listeners[1].port, "inside")
    await inside.subscribe("ops/ok", 0)
    assert await tell(inside, "$queue/bills/$seek/ops/ok", now) == 0
    assert (await told(inside))["name"] == "bills"


async def test_only_clients_that_may_consume_acknowledge_below_a_mount_point(rig: Rig) -> None:
    listeners = tuple(ListenerOptions(port=0, mount_point=each) for each in ("", "bills/", "x/"))
    broker = await rig.broker(Config(listeners=listeners, queues=(BILLS,)))
    consumer = await rig.device(broker.port, "consumer")
    await consumer.subscribe("$queue/bills", 1)
    publisher = await rig.device(broker.port, "publisher")
    assert await tell(publisher, "bills/1", "one") == 0
    ack_id = dict((await consumer.expect(Publish)).properties.user_properties)["ack-id"]
    outside = await rig.device(broker.listeners[2].port, "outside")
    for action in ("$nack", "$extend", "$ack"):
        assert await tell(outside, f"$queue/bills/{action}", ack_id) == NO_SUBSCRIBERS
    inside = await rig.device(broker.listeners[1].port, "inside")
    assert await tell(inside, "$queue/bills/$ack", ack_id) == 0


OPERATOR = """
topic readwrite ops/#
topic readwrite mail/#
topic write $queue/+/$create
topic write $queue/+/$delete
topic write $queue/+/$replay
topic read $queue/mail
"""


@pytest.mark.long
async def test_an_operator_makes_queues_replays_dead_letters_and_deletes(rig: Rig, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text(OPERATOR)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), acl_file=str(acl)))
    client = await rig.device(broker.port, "c", V311)
    await client.subscribe("ops/#", 0)

    async def ask(queue: str, command: str, payload: str = "") -> dict[str, Any]:
        assert await tell(client, f"$queue/{queue}/{command}/ops/answers", payload) == 0
        return await told(client)

    wanted = {"filters": ["mail/#"], "max_attempts": 1, "dead_letter_topic": "ops/dead"}
    found = await ask("mail", "$create", json.dumps(wanted))
    assert (found["name"], found["origin"], found["options"]["max_attempts"]) == ("mail", "admin", 1)
    for body, error in (
        (wanted, "There is a queue mail already."),
        (wanted | {"filters": ["mail/#", "secret/#"]}, "takes the permission to subscribe to that"),
        (wanted | {"dead_letter_topic": "secret/x"}, "takes the permission to publish to secret/x"),
        (wanted | {"push": {"url": "https://example.com/"}}, "gets its push target over HTTP"),
        (wanted | {"name": "other"}, "The name in the body is 'other'"),
        ([], "The body is not what a queue has"),
    ):
        assert error in (await ask("mail", "$create", json.dumps(body)))["error"]
    for payload in ("1", "2", "3"):
        await tell(client, "mail/a", payload)
    broker.queues.nack("mail", [each.ack_id for each in broker.queues.pull("mail", 9)])
    for payload in ("1", "2", "3"):
        assert (await client.expect(Publish)).payload == payload.encode()  # at its dead_letter_topic
    state = broker.queues.state
    assert (state("mail").depth, state("mail").dead_letters) == (0, 3)
    assert "The body is not what to replay" in (await ask("mail", "$replay", '{"to": 1}'))["error"]
    assert "filter: " in (await ask("mail", "$replay", '{"filter": "payload ="}'))["error"]
    assert await ask("mail", "$replay", '{"dry_run": true}') == {"messages": 3}
    assert await ask("mail", "$replay", '{"filter": "payload.x = 1"}') == {"messages": 0}
    number = next(broker.queues.dead_letters("mail").letters(0)).number
    assert await ask("mail", "$replay", json.dumps({"number": number})) == {"messages": 1}
    assert (state("mail").depth, state("mail").dead_letters) == (1, 2)
    assert await ask("mail", "$replay") == {"messages": 2}
    assert (state("mail").depth, state("mail").dead_letters) == (3, 0)
    assert await ask("mail", "$delete") == {"deleted": True}
    assert broker.queues.names == []
    assert await tell(await rig.device(broker.port, "new"), "$queue/mail/$delete") == NO_SUBSCRIBERS


async def test_without_rules_no_client_makes_or_deletes_a_queue(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), queues=(BILLS,)))
    client = await rig.device(broker.port, "c")
    for topic in ("$queue/mail/$create", "$queue/bills/$delete", "$queue/bills/$delete/ops/answers"):
        assert await tell(client, topic, '{"filters": ["mail/#"]}') == UNAUTHORIZED
    assert await tell(client, "$queue/bills/$replay") == 0
    assert broker.queues.names == ["bills"]


async def test_a_queue_that_is_made_below_a_mount_point_is_of_topics_there(rig: Rig, tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic write $queue/+/$create\ntopic readwrite site/#\n")
    listener = ListenerOptions(port=0, mount_point="site/")
    broker = await rig.broker(Config(listeners=(listener,), acl_file=str(acl)))
    client = await rig.device(broker.port, "c")
    await client.subscribe("ops/#", 0)
    body = json.dumps({"filters": ["mail/#"], "filter": 'topic = "mail/a"', "dead_letter_topic": "dead"})
    assert await tell(client, "$queue/mail/$create", body, response_topic="ops/here") == 0
    options = (await told(client))["options"]
    assert (options["filters"], options["dead_letter_topic"]) == (["site/mail/#"], "site/dead")
    for topic in ("mail/a", "mail/b"):
        await tell(client, topic, topic)
    assert [each.message.topic for each in broker.queues.pull("mail", 9)] == [b"site/mail/a"]


async def test_a_replay_at_a_rate_holds_up_no_other_command(rig: Rig) -> None:
    queue = QueueOptions(name="bills", filters=("bills/#",), max_attempts=1)
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), queues=(queue,)))
    client = await rig.device(broker.port, "c")
    await client.subscribe("ops/#", 0)
    for payload in (b"1", b"2", b"3"):
        await broker.publish("bills/a", payload, qos=1)
    broker.queues.nack("bills", [each.ack_id for each in broker.queues.pull("bills", 9)])
    slowly = '{"rate": 1}'
    assert await tell(client, "$queue/bills/$replay/ops/replay", slowly) == 0
    assert await tell(client, "$queue/bills/$replay/ops/again", slowly) == 0
    packet = await client.expect(Publish)
    assert (packet.topic, "already" in json.loads(packet.payload)["error"]) == (b"ops/again", True)
    assert await tell(client, "$queue/bills/$pause/ops/pause") == 0
    assert (await client.expect(Publish)).topic == b"ops/pause"
    assert broker.queues.state("bills").dead_letters > 0
    await broker.stop()  # ends the replay
    assert broker.queues.state("bills").dead_letters > 0


async def test_so_many_commands_wait_and_no_more(rig: Rig) -> None:
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), queues=(BILLS,)))
    client = await rig.device(broker.port, "c")
    packets = [
        Publish(b"$queue/bills/$pause", b"", 1, False, False, number, Properties())
        for number in range(1, MAX_WAITING + 5)
    ]
    client.send(*packets)
    codes = [(await client.expect(Ack)).reason_code for _ in packets]
    assert codes.count(QUOTA) >= 1
    assert set(codes) == {0, QUOTA}
    await until(lambda: broker.queues.state("bills").paused)


@pytest.mark.parametrize("is_answered", [True, False])
async def test_nothing_older_is_pushed_once_a_seek_is_answered(
    is_answered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "STALE_S", 5.0 if is_answered else 0.1)
    async with Receiver() as receiver, Broker(config(queue("q", receiver.url("/hang"), ack_deadline_s=60.0))) as broker:
        await broker.publish("a/b", b"old", qos=1)
        await until(lambda: len(receiver.requests) == 1)
        sought = asyncio.ensure_future(queueing_of(broker).seeks.to_time("q", 2**53))
        await asyncio.sleep(0.05)
        assert not sought.done()
        if is_answered:
            receiver.released.set()
        await asyncio.wait_for(sought, 60)
        state = push_of(broker).state("q")
        assert state is not None
        assert state.open == 0
        assert ends(broker) == {"purged": 1}
