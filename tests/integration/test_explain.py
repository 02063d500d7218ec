"""`mqttlite explain` beside a real broker, and the combination of dynamic security with the rules of files."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions, load_config
from mqttlite.core.limits import Limits
from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.security.api_keys import FILE_NAME, add
from mqttlite.security.dynamic_security import DynamicSecurityOptions
from mqttlite.security.dynamic_security.document import dump
from mqttlite.security.dynamic_security.model import Acl, Client, Role, State
from mqttlite.security.dynamic_security.passwords import Passwords
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.server import Broker
from mqttlite.wire.packets import Ack, Disconnect, Publish, Suback, Subscribe, SubscriptionRequest
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import Device, until

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

ACL = "user ann\ntopic readwrite plant/#\nuser bob\ntopic read plant/public/#\n"
CONTROL = "$CONTROL/dynamic-security/v1"


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        yield Path(found)


@pytest.fixture
def acl(directory: Path) -> Path:
    path = directory / "acl.conf"
    path.write_text(ACL)
    return path


async def run(*arguments: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, ["explain", *arguments], catch_exceptions=False)


async def asked(directory: Path, *arguments: str) -> dict[str, Any]:
    result = await run(*arguments, "--json", "--data-dir", str(directory))
    found: dict[str, Any] = json.loads(result.stdout)
    assert result.exit_code == (0 if found["allowed"] else 1)
    return found


@pytest.mark.long
async def test_the_explanation_of_a_message(rig: Rig, directory: Path, acl: Path) -> None:
    users = directory / "users"
    for name in ("ann", "bob"):
        set_user(users, name, keys_of("secret", b"0123456789abcdef", 4_096), create=not users.exists())
    broker = await rig.broker(
        Config(
            listeners=(ListenerOptions(port=0, name="front"),),
            password_file=str(users),
            acl_file=str(acl),
            topic_policies=(TopicPolicyOptions(prefix="plant/raw", topic_class="ephemeral"),),
            data_dir=str(directory),
        )
    )
    reader = await rig.device(broker.port, "r", username="ann", password=b"secret")
    await reader.subscribe("#", 1)
    other = await rig.device(broker.port, "o", username="bob", password=b"secret")
    await other.subscribe("plant/#", 1)
    group = await rig.device(broker.port, "g", username="ann", password=b"secret")
    await group.subscribe("$share/group/plant/#", 1)
    text = (
        await run("publish", "--as", "ann", "-i", "r", "-q", "1", "-r", "plant/x", "--data-dir", str(directory))
    ).stdout
    assert text.splitlines() == [
        "login: front: user ann is in the password file: the password decides",
        "client r: connected",
        f"accepted: allowed by {acl}:2 (user ann)",
        "retained: yes",
        "r: sent at QoS 1",
        f"o: gets nothing: denied by default: {acl} has no rule that allows it (user bob)",
        "one of 1 members of $share/group/plant/#:",
        "  g: sent at QoS 1, and it is its turn",
    ]
    found = await asked(directory, "publish", "--as", "bob", "plant/public/x")
    assert (found["reason_code"], found["reason"]) == (
        0x87,
        f"denied by default: {acl} has no rule that allows it (user bob)",
    )
    found = await asked(directory, "publish", "--as", "ann", "-r", "plant/raw/x")
    assert (found["reason_code"], found["reason"]) == (
        0x83,
        "RETAIN: plant/raw is ephemeral, and nothing is kept of it",
    )
    found = await asked(directory, "publish", "--as", "ann", "$delayed/5/plant/x")
    assert (found["topic"], found["delay_s"]) == ("plant/x", 5)
    await broker.publish("plant/kept", b"x", retain=True)
    text = (await run("subscribe", "--as", "bob", "-i", "new", "plant/#", "--data-dir", str(directory))).stdout
    assert text.splitlines()[1:] == [
        "client new: not connected",
        f"accepted: allowed by {acl}:4 (user bob)",
        "granted: QoS 0",
        "retained messages that would come: 0",
        "retained messages that no rule lets it receive: 1",
    ]
    text = (await run("subscribe", "other/#", "--data-dir", str(directory))).stdout
    assert text.splitlines()[0] == "login: front: anonymous clients are refused"
    assert text.splitlines()[1].startswith("refused with 0x87: denied by default")
    await reader.ping()
    assert [each for each in reader.waiting() if isinstance(each, Publish) and each.topic != b"plant/kept"] == []
    for device in (reader, other, group):
        await device.disconnect()


@pytest.mark.long
async def test_the_explanation_names_queues_schemas_filters_and_full_receivers(rig: Rig, directory: Path) -> None:
    broker = await rig.broker(
        Config(
            listeners=(ListenerOptions(port=0, name="front"),),
            limits=Limits(max_queued_messages=1, max_block_s=5.0),
            topic_policies=(
                TopicPolicyOptions(prefix="orders", schema="order"),
                TopicPolicyOptions(filter="alarms", on_overflow="block"),
            ),
            queues=(QueueOptions(name="billing", filters=("orders/#",), max_messages=1),),
            data_dir=str(directory),
        )
    )
    schema = directory / "order.json"
    schema.write_text('{"properties": {"total": {"type": "number"}}}')
    data_dir = ("--data-dir", str(directory))
    done = await asyncio.to_thread(
        CliRunner().invoke, main, ["schema", "register", "order", str(schema), *data_dir], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    reader = await rig.device(broker.port, "large")
    where = Properties(user_properties=[("filter", 'payload.total > 1000 AND attributes.region = "eu"')])
    reader.send(Subscribe(reader.packet_id(), (SubscriptionRequest(b"orders/new", 1),), where))
    assert (await reader.expect(Suback)).reason_codes == b"\1"
    text = (await run("publish", "orders/new", *data_dir)).stdout.splitlines()
    assert text[2:] == [
        "schema: the topic has one, which was not asked: the payload is not known",
        "retained: no",
        "$queue/billing: queued (consumers that take messages: 0)",
        "large: sent at QoS 0, if its filter lets the message pass",
    ]
    message = ("-m", '{"total": 1200}', "--property", "region=eu")
    text = (await run("publish", "-q", "1", "orders/new", *message, *data_dir)).stdout.splitlines()
    assert text[2:] == [
        "schema: the payload is what it says",
        "retained: no",
        "$queue/billing: queued (consumers that take messages: 0)",
        "large: sent at QoS 1",
    ]
    assert await reader.published("orders/new", b'{"total": 1}') == 0
    found = await asked(directory, "publish", "orders/new", "-m", '{"total": 1}')
    assert [(each["sink"], each["outcome"], each["reason"], each["rule"]) for each in found["receivers"]] == [
        ("$queue/billing", "dropped", "queue_full", "1/1"),
        (None, "excluded", "filter_mismatch", 'payload.total > 1000 AND attributes.region = "eu"'),
    ]
    found = await asked(directory, "publish", "orders/new", "-m", '{"total": "x"}')
    assert (found["reason_code"], found["allowed"]) == (0x99, False)
    away = await rig.device(broker.port, "away", expiry=100)
    await away.subscribe("alarms", 1)
    await away.disconnect()
    assert await reader.published("alarms", b"x") == 0
    text = (await run("publish", "-q", "1", "alarms", *data_dir)).stdout.splitlines()
    assert text[2:] == [
        "held back for up to 5 s, and then refused with 0x97: a receiver has no room for the message, and the topic's "
        "policy is that nobody gets it then: away (queue_full)",
        "retained: no",
        "away: dropped: its queue is full",
    ]
    for arguments, said in (
        (("-m", "x", "-s"), "-m and -s exclude each other"),
        (("--property", "x"), "--property takes NAME=VALUE"),
        (("-m", "x" * 40_000), "longer than 32768 bytes"),
    ):
        result = await run("publish", "t", *arguments, *data_dir)
        assert result.exit_code == 2
        assert said in result.stderr
    await reader.disconnect()


@pytest.mark.slow
async def test_a_broker_says_the_same_over_http_and_its_configuration_decides_the_same(
    rig: Rig, directory: Path, acl: Path
) -> None:
    users, toml = directory / "users", directory / "broker.toml"
    set_user(users, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=True)
    toml.write_text(
        f'password_file = "{users}"\nacl_file = "{acl}"\ndata_dir = "{directory}"\n[[listeners]]\nport = 0\n'
        '[[topic_policies]]\nprefix = "plant/raw"\nclass = "ephemeral"\n[groups]\nstaff = ["ann"]\n[http]\nport = 0\n'
    )
    with acl.open("a") as file:
        file.write("group staff\ntopic read staff/#\ngroup guests\ntopic write guests/#\n")
    key, _ = add(directory / FILE_NAME, "viewer", "viewer", None)
    broker = await rig.broker(load_config(str(toml)))
    assert broker.gateway is not None
    over_http = ("--url", broker.gateway.urls[0], "--token", key)
    device = await rig.device(broker.port, "d", username="ann", password=b"secret")
    await device.subscribe("guests/#", 1)
    for question in (
        ("publish", "plant/1", "--as", "ann", "-i", "d", "-q", "1"),
        ("publish", "plant/1"),
        ("publish", "plant/raw/1", "--as", "ann", "-r"),
        ("publish", "guests/1", "-g", "guests", "-g", "others", "-m", "\xe4+/=&", "--property", "a=b=c"),
        ("publish", "guests/#", "-g", "guests"),
        ("publish", "$SYS/x", "--as", "ann"),
        ("subscribe", "staff/+", "--as", "ann"),
        ("subscribe", "$share/x/plant/#", "--as", "bob", "-q", "2"),
        ("subscribe", "staff/+", "--as", "bob"),
        ("subscribe", "a/#/b", "--as", "bob"),
    ):
        by_socket = await asked(directory, *question)
        by_http = json.loads((await run(*question, "--json", *over_http)).stdout)
        of_file = json.loads((await run(*question, "--json", "-c", str(toml))).stdout)
        assert by_http == by_socket
        verdict = ("allowed", "reason", "retained", "login", "qos", "schema")
        verdict += ("reason_code",) if question[0] == "subscribe" or not by_socket["allowed"] else ()
        assert [of_file.get(each) for each in verdict] == [by_http.get(each) for each in verdict], question
    for arguments, code, said in (
        ((*over_http, "-c", str(toml)), 2, "not both"),
        ((*over_http, "-m", "x" * 9_000), 2, "longer than 8192 bytes"),
        (("--url", broker.gateway.urls[0], "--token", "wrong"), 3, "credentials are not accepted"),
    ):
        result = await run("publish", "t", *arguments)
        assert (result.exit_code, said in result.stderr) == (code, True), result.stderr


async def test_a_client_is_told_the_rule_and_no_path_of_the_server(rig: Rig, directory: Path, acl: Path) -> None:
    with acl.open("a") as file:
        file.write("topic deny plant/public/secret\n")
    broker = await rig.broker(Config(listeners=(ListenerOptions(port=0),), acl_file=str(acl), allow_anonymous=True))
    device = await rig.device(broker.port, "b", username="bob")
    told = []
    for topic in ("plant/public/1", "other"):
        device.publish(topic, b"x", 1)
        told.append((await device.expect(Ack)).properties.reason_string)
    device.send(Subscribe(device.packet_id(), (SubscriptionRequest(b"plant/public/secret", 1),)))
    told.append((await device.expect(Suback)).properties.reason_string)
    by_default = "denied by default: the ACL file has no rule that allows it (user bob)"
    assert told == [by_default, by_default, "denied by line 5 of the ACL file (user bob)"]


async def test_wrong_questions_are_answered_with_a_sentence(rig: Rig, directory: Path) -> None:
    await rig.broker(Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory)))
    found = await asked(directory, "publish", "a/+")
    assert found["reason"] == "topic name 'a/+' contains a wildcard [MQTT-3.3.2-2]"
    text = (await run("publish", "t", "--data-dir", str(directory))).stdout
    assert text.splitlines()[-3:] == [
        "accepted: allowed: no rule is about it",
        "retained: no",
        "receivers: none, no client subscribes to it",
    ]
    result = await run("publish", "t", "--data-dir", str(directory / "nowhere"))
    assert result.exit_code == 3
    assert "With -c FILE.toml a configuration is asked instead." in result.stderr


def state_of(password: Any) -> State:
    """Ann may publish and subscribe to everything by a role of hers; what is subscribed to is received by default."""
    staff, admin = Role("staff"), Role("admin")
    for kind in ("publishClientSend", "subscribePattern"):
        staff.add(kind, Acl("#", 0, allow=True))
        admin.add(kind, Acl("$CONTROL/#", 0, allow=True))
    state = State(roles={"staff": staff, "admin": admin})
    state.clients["ann"] = Client("ann", password=password, roles={"staff": 1})
    state.clients["bob"] = Client("bob", password=password, roles={})
    state.clients["root"] = Client("root", password=password, roles={"admin": 1})
    state.default_access |= {"publishClientReceive": True}
    return state


@pytest.fixture
async def dynamic(directory: Path) -> Path:
    passwords = Passwords()
    path = directory / "dynamic-security.json"
    path.write_bytes(dump(state_of(await passwords.make("secret"))))
    passwords.close()
    return path


async def command(root: Device, **fields: object) -> None:
    root.publish(CONTROL, json.dumps({"commands": [fields]}).encode())
    _topic, payload = await root.message()
    assert "error" not in json.loads(payload)["responses"][0]


@pytest.mark.long
async def test_dynamic_security_and_an_acl_file_must_both_allow(
    rig: Rig, directory: Path, dynamic: Path, acl: Path
) -> None:
    config = Config(
        listeners=(ListenerOptions(port=0),),
        dynamic_security=DynamicSecurityOptions(file=str(dynamic)),
        acl_file=str(acl),
    )
    broker = await rig.broker(config)
    ann = await rig.device(broker.port, "ann", username="ann", password=b"secret")
    root = await rig.device(broker.port, "root", username="root", password=b"secret")
    await root.subscribe(f"{CONTROL}/#")
    assert await ann.published("plant/1") == 0x10
    assert await ann.published("other/1") == 0x87, "the ACL file does not allow it"
    await asyncio.to_thread(acl.write_text, "user ann\ntopic readwrite other/#\n")
    await broker.reload()
    assert await ann.published("other/1") == 0x10
    assert await ann.published("plant/1") == 0x87
    await command(root, command="removeRoleACL", rolename="staff", acltype="publishClientSend", topic="#")
    await ann.expect(Disconnect)
    ann = await rig.device(broker.port, "ann", username="ann", password=b"secret")
    assert await ann.published("other/1") == 0x87, "dynamic security does not allow it any more"
    await command(root, command="addRoleACL", rolename="staff", acltype="publishClientSend", topic="#", allow=True)
    await ann.expect(Disconnect)
    ann = await rig.device(broker.port, "ann", username="ann", password=b"secret")
    await asyncio.to_thread(acl.write_text, "user ann\ntopic readwrite plant/#\n")
    await broker.reload()
    assert await ann.published("plant/1") == 0x10
    assert await ann.published("other/1") == 0x87


@pytest.mark.long
async def test_acl_test_and_check_know_dynamic_security(directory: Path, dynamic: Path, acl: Path) -> None:
    toml = directory / "broker.toml"
    toml.write_text(
        f'acl_file = "{acl}"\ndata_dir = "{directory}"\n[dynamic_security]\nfile = "{dynamic}"\n'
        "[[listeners]]\nport = 0\n"
    )

    async def test(*arguments: str) -> tuple[int, str]:
        result = await asyncio.to_thread(CliRunner().invoke, main, ["acl", "test", "-c", str(toml), *arguments])
        return result.exit_code, result.output.strip()

    assert await test("-u", "ann", "write", "plant/1") == (
        0,
        f"allowed by publishClientSend # of role staff, and by {acl}:2 (user ann)",
    )
    assert await test("-u", "ann", "write", "other") == (
        1,
        f"denied by default: {acl} has no rule that allows it (user ann)",
    )
    assert await test("-u", "bob", "write", "plant/public/1") == (1, "denied by the default access publishClientSend")
    assert await test("-u", "bob", "read", "plant/public/1") == (
        0,
        f"allowed by the default access publishClientReceive, and by {acl}:4 (user bob)",
    )
    found = json.loads((await test("-u", "ann", "write", "plant/1", "--json"))[1])
    assert (found["file"], found["line"]) == (str(acl), 2)
    assert json.loads((await test("-u", "bob", "write", "plant/1", "--json"))[1])["line"] is None
    result = await asyncio.to_thread(CliRunner().invoke, main, ["check", str(toml)])
    for line in (
        "where no role says anything, dynamic security allows publishClientReceive\n",
        "role staff (1 user, 0 groups): publishClientSend: allow #; subscribePattern: allow #",
        "user ann has the role staff\n",
        "user ann: read and write plant/#",
        "dynamic security and the other rules must both allow; below $CONTROL dynamic security decides alone",
    ):
        assert line in result.output
    explained = await run("publish", "--as", "ann", "-c", str(toml), "plant/1")
    assert explained.stdout.splitlines() == [
        "login: tcp-0: user ann is in dynamic security: the password decides",
        f"accepted: allowed by publishClientSend # of role staff, and by {acl}:2 (user ann)",
        "retained: no",
        "receivers: not known, for no broker was asked",
    ]
    explained = await run("subscribe", "--as", "eve", "-c", str(toml), "plant/1")
    assert explained.stdout.splitlines() == [
        "login: tcp-0: user eve is unknown, and refused",
        "refused with 0x86: no listener lets user eve in",
    ]
    assert explained.exit_code == 1
    assert (await run("publish", "--as", "eve", "-c", str(toml), "t")).exit_code == 1
    assert (await run("publish", "-c", str(toml), "--data-dir", "x", "t")).exit_code == 2
    toml.write_text("[[listeners]]\nport = true\n")
    assert (await run("publish", "-c", str(toml), "t")).exit_code == 2


@pytest.mark.long
async def test_a_client_whose_role_is_removed_stops_receiving(rig: Rig, directory: Path, dynamic: Path) -> None:
    """Everybody may receive by default, as with Mosquitto: the subscription is what the role allowed."""
    config = Config(
        listeners=(ListenerOptions(port=0),),
        dynamic_security=DynamicSecurityOptions(file=str(dynamic)),
        data_dir=str(directory),
    )
    broker = await rig.broker(config)
    root = await rig.device(broker.port, "root", username="root", password=b"secret")
    await root.subscribe(f"{CONTROL}/#")
    ann = await rig.device(broker.port, "ann", username="ann", password=b"secret", expiry=100)
    assert await ann.subscribe("t/#", 1) == b"\x01"
    away = await rig.device(broker.port, "away", username="ann", password=b"secret", expiry=100)
    assert await away.subscribe("t/#", 1) == b"\x01"
    await away.disconnect()
    await broker.publish("t/1", b"before", qos=1)
    assert await ann.message() == ("t/1", b"before")
    removed_at = asyncio.get_running_loop().time()
    await command(root, command="removeClientRole", username="ann", rolename="staff")
    await until(lambda: not _filters(broker, "ann") and not _filters(broker, "away"))
    assert asyncio.get_running_loop().time() - removed_at < 50, "not when the sessions expire"
    assert (await broker.publish("t/1", b"after", qos=1)) is not None
    await ann.expect(Disconnect)
    again = await rig.device(broker.port, "ann", username="ann", password=b"secret", expiry=100, clean_start=False)
    await again.ping()
    assert [each for each in again.waiting() if isinstance(each, Publish)] == []
    assert await again.subscribe("t/#", 1) == b"\x87"


def _filters(broker: Broker, client_id: str) -> int:
    found = broker.admin.client(client_id)
    assert found is not None
    return len(found.topic_filters)


@pytest.mark.long
async def test_a_permission_removed_from_a_role_while_no_broker_ran_stays_removed(
    rig: Rig, directory: Path, dynamic: Path
) -> None:
    config = Config(
        listeners=(ListenerOptions(port=0),),
        dynamic_security=DynamicSecurityOptions(file=str(dynamic)),
        data_dir=str(directory),
    )
    async with Broker(config) as broker:
        ann = await rig.device(broker.port, "ann", username="ann", password=b"secret", expiry=100)
        await ann.subscribe("t/#", 1)
        await ann.disconnect()
    state = json.loads(await asyncio.to_thread(dynamic.read_text))
    next(each for each in state["clients"] if each["username"] == "ann")["roles"] = []
    await asyncio.to_thread(dynamic.write_text, json.dumps(state))
    async with Broker(config) as broker:
        await until(lambda: not _filters(broker, "ann"))
