"""What clients get of what others publish, under an ACL file: live, retained, queued, shared and by wills."""

from functools import partial
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.core.limits import Limits
from mqttlite.core.route.tally import NO_MATCHING_SUBSCRIBERS
from mqttlite.security import dynamic_security, granted_topics
from mqttlite.security.dynamic_security import DynamicSecurityOptions
from mqttlite.security.dynamic_security.document import dump
from mqttlite.security.dynamic_security.model import Acl, Group, Role, State
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.token_options import TokenOptions
from mqttlite.server import Broker
from mqttlite.wire.packets import Ack, Will
from tests.integration.conftest import Rig
from tests.support.device import Device

ACL = """\
user ann
topic read plant/#
topic read open/#
topic deny plant/secret/#
user bob
topic readwrite #
user eve
topic write open/#
"""


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


@pytest.fixture
def acl(tmp_path: Path) -> Path:
    path = tmp_path / "acl.conf"
    path.write_text(ACL)
    return path


@pytest.fixture
async def broker(rig: Rig, acl: Path) -> Broker:
    """Without a password file, clients have the user names that they claim."""
    return await rig.broker(Config(listeners=(ListenerOptions(port=0),), acl_file=str(acl)))


async def user(rig: Rig, broker: Broker, name: str, client_id: str = "", **options: object) -> Device:
    return await rig.device(broker.port, client_id or name, username=name, **options)


async def test_a_subscriber_to_everything_gets_what_it_may_read(rig: Rig, broker: Broker) -> None:
    ann, bob = await user(rig, broker, "ann"), await user(rig, broker, "bob")
    assert await ann.subscribe("#") == b"\0"
    for topic in ("other", "plant/secret/door", "plant/hall"):
        await bob.published(topic)
    assert await ann.message() == ("plant/hall", b"")
    await ann.ping()
    assert ann.waiting() == []


async def test_retained_messages_are_asked_about_one_by_one(rig: Rig, broker: Broker) -> None:
    ann, bob = await user(rig, broker, "ann"), await user(rig, broker, "bob")
    for topic in ("other", "plant/secret/door", "plant/hall"):
        bob.publish(topic, b"kept", 0, True)
    await bob.ping()
    assert await ann.subscribe("#") == b"\0"
    assert await ann.message() == ("plant/hall", b"kept")
    await ann.ping()
    assert ann.waiting() == []


async def test_a_shared_message_goes_to_a_member_that_may_read_it(rig: Rig, broker: Broker) -> None:
    ann, bob = await user(rig, broker, "ann"), await user(rig, broker, "bob")
    publisher = await user(rig, broker, "bob", "publisher")
    for device in (ann, bob):
        assert await device.subscribe("$share/g/#") == b"\0"
    for number in range(6):
        await publisher.published("plant/secret/door", b"%d" % number)
    assert [await bob.message() for _ in range(6)] == [("plant/secret/door", b"%d" % n) for n in range(6)]
    await ann.ping()
    assert ann.waiting() == []


async def test_a_will_is_published_where_its_client_may_publish(rig: Rig, broker: Broker) -> None:
    bob = await user(rig, broker, "bob", "watcher")
    await bob.subscribe("#")
    for topic in (b"plant/x", b"open/x"):
        eve = await user(rig, broker, "eve", will=Will(topic, b"gone"))
        eve.drop()
    assert await bob.message() == ("open/x", b"gone")
    await bob.ping()
    assert bob.waiting() == []


async def test_changed_rules_hold_for_a_subscription_that_exists(rig: Rig, broker: Broker, acl: Path) -> None:
    ann, bob = await user(rig, broker, "ann"), await user(rig, broker, "bob")
    assert await ann.subscribe("#") == b"\0"
    await bob.published("plant/a")
    assert await ann.message() == ("plant/a", b"")
    rewrite(acl, ACL.replace("topic read plant/#\n", ""))
    await broker.reload()
    await bob.published("plant/a")
    await bob.published("open/a")
    assert await ann.message() == ("open/a", b"")
    rewrite(acl, ACL)
    await broker.reload()
    await bob.published("plant/a")
    assert await ann.message() == ("plant/a", b"")


async def test_queued_messages_are_asked_about_when_they_are_sent(rig: Rig, broker: Broker, acl: Path) -> None:
    ann, bob = await user(rig, broker, "ann", expiry=100), await user(rig, broker, "bob")
    assert await ann.subscribe("#", 1) == b"\1"
    await ann.close()
    for topic in ("plant/a", "other", "open/a"):
        await bob.published(topic)
    rewrite(acl, ACL.replace("topic read plant/#\n", ""))
    await broker.reload()
    again = await user(rig, broker, "ann", clean_start=False, expiry=100)
    assert await again.message() == ("open/a", b"")
    await again.ping()
    assert again.waiting() == []


@pytest.mark.parametrize("source", ["file", "dynamic security", "both", "credentials"])
async def test_retained_messages_stay_when_their_writers_have_no_number_any_more(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """There are 20 numbers for permissions, or 5, and 48 clients come one after another."""
    monkeypatch.setattr(granted_topics, "MAX_ROLES", 5)
    options: dict[str, object] = {}
    if source != "dynamic security":
        acl = tmp_path / "acl.conf"
        acl.write_text("topic readwrite #\n" if source == "both" else "topic read #\npattern readwrite dev/%c/#\n")
        options["acl_file"] = str(acl)
    if source == "dynamic security":
        monkeypatch.setattr(dynamic_security, "DynamicRules", partial(DynamicRules, max_holders=20))
    if source in ("dynamic security", "both"):
        role = Role("device")
        role.add("publishClientSend", Acl("dev/%c/#", 0, allow=True))
        state = State(roles={"device": role}, groups={"all": Group("all", roles={"device": 1})}, anonymous_group="all")
        state.default_access |= {"subscribe": True, "publishClientReceive": True}
        file = tmp_path / "dynamic-security.json"
        file.write_bytes(dump(state))
        options["dynamic_security"] = DynamicSecurityOptions(file=str(file))
    if source == "credentials":
        secret = tmp_path / "secret"
        secret.write_bytes(b"s" * 64)
        options["jwt"] = TokenOptions(algorithms=("HS256",), secret_file=str(secret), publish_claim="publ")
    broker = await rig.broker(
        Config(
            listeners=(ListenerOptions(port=0),),
            allow_anonymous=True,
            limits=Limits(max_sessions=50 if source == "credentials" else 10),
            **options,  # type: ignore[arg-type]
        )
    )
    for number in range(48):
        device = await rig.device(broker.port, f"d{number}")
        device.publish(f"dev/d{number}/state", b"on", 1, True)
        assert (await device.expect(Ack)).reason_code in (0, NO_MATCHING_SUBSCRIBERS)
        await device.disconnect()
    for _ in range(2):
        reader = await rig.device(broker.port, "reader")
        assert await reader.subscribe("dev/#") == b"\0"
        await reader.ping()
        assert len(reader.waiting()) == 48
        await reader.disconnect()
