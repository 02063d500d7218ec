"""What happens in which order when a client connects and subscribes: authentication, the connection's record, the
subscription, its count and presence, SUBACK, the retained message, and only then what is published.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from mqttlite import event_hub
from mqttlite.config import Config, ListenerOptions
from mqttlite.net.link import Link
from mqttlite.security.authenticator import Credentials
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Connack, Connect, Publish, Suback, Subscribe, SubscriptionRequest
from tests.integration.conftest import Rig
from tests.support.device import Device

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

PRESENCE = "$SYS/broker/presence/rooms/1"
Jump = Callable[[float], None]
ROOMS = TopicPolicyOptions(prefix="rooms", presence=True)


class Steps(event_hub.Listener):
    """Writes down what happens to the client `anna`, and what the broker has of it then."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.broker: Broker

    async def authenticate(self, credentials: Credentials) -> bool:
        if credentials.client_id == "anna":
            self._note("authenticated")
        return credentials.password == b"secret"

    def on_connected(self, link: Link) -> None:
        if link.connection.client_id == "anna":
            self._note("connected")

    def on_subscribed(self, connection: int, topic_filter: bytes, qos: int, reason_code: int, existing: bool) -> None:
        if topic_filter == b"rooms/1":
            self._note(f"subscribed with {reason_code:#x}")

    def _note(self, what: str) -> None:
        client = self.broker.admin.client("anna")
        if client is None:
            self.seen.append(f"{what}: no record")
        else:
            self.seen.append(f"{what}: a record, {client.entry.subscriptions} subscriptions")


async def started(rig: Rig, folder: Path, jump: Jump, right: str = "readwrite") -> tuple[Steps, Device]:
    """A broker with a retained message, and a client that watches who subscribes."""
    steps = Steps()
    acl = folder / "acl"
    acl.write_text(f"user watcher\ntopic readwrite #\nuser anna\ntopic {right} rooms/#\n")
    config = Config(
        listeners=(ListenerOptions(port=0),), topic_policies=(ROOMS,), acl_file=str(acl), allow_anonymous=False
    )
    steps.broker = Broker(config, authenticator=steps)
    steps.broker.event_listeners.append(steps)
    await rig.enter(steps.broker)
    await steps.broker.publish("rooms/1", b"retained", qos=1, retain=True)
    watcher = await rig.device(steps.broker.port, "watcher", username="watcher", password=b"secret")
    await watcher.subscribe(PRESENCE)
    jump(1)
    await watcher.message()  # the snapshot without members
    return steps, watcher


def subscribe(device: Device) -> None:
    device.send(Subscribe(device.packet_id(), (SubscriptionRequest(b"rooms/1", 1),)))


async def received_in_order(anna: Device) -> None:
    """What was subscribed to and is published at once comes behind SUBACK and the retained message."""
    anna.send(*[Publish(b"rooms/1", b"%d" % number) for number in range(3)])
    await anna.expect(Suback)
    messages = [await anna.expect(Publish) for _ in range(4)]
    assert [(each.payload, each.retain) for each in messages] == [
        (b"retained", True),
        (b"0", False),
        (b"1", False),
        (b"2", False),
    ]


@pytest.mark.parametrize("version", [V311, V5])
async def test_each_step_comes_before_the_next_and_delivery_last(
    rig: Rig, tmp_path: Path, jump: Jump, version: int
) -> None:
    steps, watcher = await started(rig, tmp_path, jump)
    anna = await rig.device(steps.broker.port, "anna", version, username="anna", password=b"secret")
    subscribe(anna)
    await received_in_order(anna)
    assert steps.seen == [
        "authenticated: no record",
        "connected: a record, 0 subscriptions",
        "subscribed with 0x1: a record, 1 subscriptions",
    ]
    jump(1)
    members = json.loads((await watcher.message())[1])["members"]
    assert [each["client_id"] for each in members] == ["anna"]


async def test_a_client_that_waits_for_no_answer_gets_all_in_the_same_order(
    rig: Rig, tmp_path: Path, jump: Jump
) -> None:
    steps, _ = await started(rig, tmp_path, jump)
    anna = await rig.dial(steps.broker.port)
    anna.hello("anna", username="anna")
    subscribe(anna)
    assert (await anna.expect(Connack)).reason_code == 0
    await received_in_order(anna)
    assert "subscribed with 0x1: a record, 1 subscriptions" in steps.seen


async def test_nothing_is_left_of_a_client_that_is_not_authenticated(rig: Rig, tmp_path: Path, jump: Jump) -> None:
    steps, watcher = await started(rig, tmp_path, jump)
    anna = await rig.dial(steps.broker.port)
    anna.send(Connect("anna", V5, True, 0, "anna", b"guess", None))
    subscribe(anna)
    assert (await anna.expect(Connack)).reason_code == 0x86
    assert await anna.goodbye() is None
    assert steps.seen == ["authenticated: no record"]
    await watcher.ping()
    assert watcher.waiting() == []


async def test_a_denied_subscription_is_not_counted_and_gets_nothing(rig: Rig, tmp_path: Path, jump: Jump) -> None:
    steps, watcher = await started(rig, tmp_path, jump, "write")
    anna = await rig.device(steps.broker.port, "anna", username="anna", password=b"secret")
    subscribe(anna)
    assert (await anna.expect(Suback)).reason_codes == b"\x87"
    watcher.publish("rooms/1", b"live")
    await watcher.ping()
    await anna.ping()
    assert anna.waiting() == []
    assert steps.seen[2:] == ["subscribed with 0x87: a record, 0 subscriptions"]
    bob = await rig.device(steps.broker.port, "bob", username="watcher", password=b"secret")
    await bob.subscribe("rooms/1")  # the next change of presence: it names those who were granted
    jump(1)
    members = json.loads((await watcher.message())[1])["members"]
    assert [each["client_id"] for each in members] == ["bob"]
