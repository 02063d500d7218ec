"""Passwords and SCRAM over real sockets: a password file, devices, our client, paho, and time that runs out."""

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from mqttlite.client import Client, ConnectRefused, DisconnectedByServer, ScramSha256
from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.config.checks import is_open
from mqttlite.core.authentication import Verdict
from mqttlite.core.limits import Limits
from mqttlite.security import passwords
from mqttlite.security.authenticator import Credentials
from mqttlite.security.keys import Keys, derive, keys_of
from mqttlite.security.password_file import delete_user, set_user
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Auth, Connack, Disconnect
from mqttlite.wire.properties import Properties
from tests.integration.conftest import Rig
from tests.support.device import until
from tests.support.inside import core_of, questions_of

METHOD = "SCRAM-SHA-256"
SECRET = keys_of("secret", b"0123456789abcdef", 4_096)
OTHER = keys_of("other", b"0123456789abcdef", 4_096)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    set_user(path, "ann", SECRET, create=True)
    return path


async def guarded(rig: Rig, users: Path, *, limits: Limits | None = None, **options: object) -> Broker:
    """A broker that asks for the passwords in a file."""
    listener = ListenerOptions(port=0, **options)  # type: ignore[arg-type]
    return await rig.broker(
        Config(listeners=(listener,), password_file=str(users), limits=Limits() if limits is None else limits)
    )


def auth(code: int, data: bytes | None = None, method: str = METHOD) -> Auth:
    return Auth(code, Properties(authentication_method=method, authentication_data=data))


# ── user name and password ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_a_removed_user_is_disconnected_and_the_others_stay(rig: Rig, users: Path) -> None:
    set_user(users, "bob", SECRET, create=False)
    broker = await guarded(rig, users)
    ann = await rig.device(broker.port, "ann", username="ann", password=b"secret")
    bob = await rig.device(broker.port, "bob", username="bob", password=b"secret")
    set_user(users, "bob", OTHER, create=False)
    await asyncio.sleep(6 * passwords.POLL_S)
    await bob.ping()  # another password does not end the connection
    delete_user(users, "bob")
    goodbye = await bob.expect(Disconnect)
    assert goodbye.reason_code == 0x98
    await asyncio.sleep(6 * passwords.POLL_S)
    await ann.ping()


@pytest.mark.parametrize("version", [V311, V5])
async def test_a_user_of_the_file_comes_in(rig: Rig, users: Path, version: int) -> None:
    broker = await guarded(rig, users)
    device = await rig.device(broker.port, "device", version, username="ann")
    await device.ping()


@pytest.mark.parametrize("username", ["eve", None])
@pytest.mark.parametrize(("version", "code"), [(V311, 4), (V5, 0x86)])
async def test_unknown_and_anonymous_users_stay_out(
    rig: Rig, users: Path, caplog: pytest.LogCaptureFixture, version: int, code: int, username: str | None
) -> None:
    broker = await guarded(rig, users)
    device = await rig.dial(broker.port, version)
    device.hello("device", username=username)
    assert (await device.expect(Connack)).reason_code == code
    assert await device.goodbye() is None
    assert "user name or password is not accepted" in caplog.text


async def test_anonymous_clients_come_in_where_they_may(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users, allow_anonymous=True)
    await rig.device(broker.port, "nobody")
    await rig.device(broker.port, "ann", username="ann")
    wrong = await rig.dial(broker.port)
    wrong.hello("eve", username="eve")
    assert (await wrong.expect(Connack)).reason_code == 0x86


async def test_a_listener_may_have_a_file_of_its_own(rig: Rig, users: Path, tmp_path: Path) -> None:
    set_user(tmp_path / "others", "eve", SECRET, create=True)
    here, there = ListenerOptions(port=0), ListenerOptions(port=0, password_file=str(tmp_path / "others"))
    broker = await rig.broker(Config(listeners=(here, there), password_file=str(users)))
    await rig.device(broker.listeners[0].port, "ann", username="ann")
    await rig.device(broker.listeners[1].port, "eve", username="eve")
    stranger = await rig.dial(broker.listeners[1].port)
    stranger.hello("ann", username="ann")
    assert (await stranger.expect(Connack)).reason_code == 0x86


async def test_a_user_that_is_added_or_removed_is_noticed(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users)
    set_user(users, "eve", SECRET, create=False)
    eve = await rig.device(broker.port, "eve", username="eve")
    delete_user(users, "eve")
    again = await rig.dial(broker.port)
    again.hello("again", username="eve")
    assert (await again.expect(Connack)).reason_code == 0x86
    await eve.ping()


async def test_a_file_that_cannot_be_read_keeps_the_broker_from_starting(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    config = Config(listeners=(ListenerOptions(port=0, password_file=str(broken)),))
    with pytest.raises(ConfigError, match=r"listeners\[0\]\.password_file: .*broken: cannot be read"):
        await Broker(config).start()
    with pytest.raises(ConfigError, match=r"^password_file: .*broken: cannot be read"):
        await Broker(Config(password_file=str(broken))).start()


async def test_an_open_listener_on_the_network_is_refused_unless_the_program_authenticates() -> None:
    class Anybody:
        async def authenticate(self, credentials: Credentials) -> bool:
            return True

    config = Config(listeners=(ListenerOptions(host="0.0.0.0", port=0),))
    with pytest.raises(ConfigError, match=r"listeners\[0\]\.host is '0\.0\.0\.0', where the network reaches it"):
        await Broker(config).start()
    for broker in (
        Broker(config, authenticator=Anybody()),
        Broker(Config(listeners=config.listeners, allow_anonymous=True)),
    ):
        await broker.start()
        await broker.stop()


def test_a_listener_that_asks_for_passwords_is_not_open() -> None:
    network = ListenerOptions(host="0.0.0.0")
    assert is_open(Config(listeners=(network,)), network)
    assert not is_open(Config(listeners=(network,), password_file="users"), network)
    assert is_open(Config(listeners=(network,), password_file="users", allow_anonymous=True), network)


@pytest.mark.parametrize(("version", "code"), [(V311, 3), (V5, 0x89)])
async def test_a_client_that_comes_when_too_many_wait_hears_that_the_server_is_busy(
    rig: Rig, users: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, version: int, code: int
) -> None:
    free, begun = threading.Event(), threading.Event()

    def held(prepared: str, salt: bytes, iterations: int) -> Keys:
        begun.set()
        free.wait(10)
        return derive(prepared, salt, iterations)

    monkeypatch.setattr("mqttlite.security.passwords.derive", held)
    monkeypatch.setattr("mqttlite.security.passwords.HASHES_AT_ONCE", 1)
    monkeypatch.setattr("mqttlite.security.passwords.MAX_WAITING", 0)
    broker = await guarded(rig, users)
    first, second = await rig.dial(broker.port, version), await rig.dial(broker.port, version)
    first.hello("first", username="ann")
    await asyncio.to_thread(begun.wait, 10)
    second.hello("second", username="ann")
    assert (await second.expect(Connack)).reason_code == code
    assert await second.goodbye() is None
    free.set()
    assert (await first.expect(Connack)).reason_code == 0
    (line,) = [each for each in caplog.records if "too many clients wait" in each.getMessage()]
    assert "(user 'ann', client 'second')" in line.getMessage()
    assert second.address in line.getMessage()
    assert vars(line)["fields"]["username"] == "ann"


async def test_a_refusal_by_scram_names_user_and_client(
    rig: Rig, users: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await guarded(rig, users)
    device = await rig.dial(broker.port)
    device.hello("device", properties=Properties(authentication_method=METHOD, authentication_data=b"n,,n=eve,r=x"))
    await device.expect(Auth)
    device.send(auth(0x18, b"c=biws,r=x,p=AAAA"))
    await device.expect(Connack)
    assert await device.goodbye() is None
    assert "authentication by SCRAM-SHA-256 failed (user 'eve', client 'device')" in caplog.text


@pytest.mark.parametrize("version", [MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5])
@pytest.mark.parametrize(("password", "accepted"), [("secret", True), ("wrong", False)])
async def test_paho_says_user_name_and_password(
    rig: Rig, users: Path, version: MQTTProtocolVersion, password: str, accepted: bool
) -> None:
    broker = await guarded(rig, users)
    answers: list[bool] = []

    def visit() -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, "paho", protocol=version)
        client.username_pw_set("ann", password)
        client.on_connect = lambda *arguments: answers.append(arguments[3].is_failure)
        client.connect("127.0.0.1", broker.port)
        while not answers:
            client.loop(0.1)
        client.disconnect()
        client.loop(0.1)

    await asyncio.to_thread(visit)
    assert answers == [not accepted]


# ── SCRAM ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_scram_by_hand(rig: Rig, users: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker = await guarded(rig, users)
    device = await rig.dial(broker.port)
    talk = ScramSha256("ann", "secret").begin()
    device.hello("device", properties=Properties(authentication_method=METHOD, authentication_data=talk.first()))
    challenge = await device.expect(Auth)
    assert (challenge.reason_code, challenge.properties.authentication_method) == (0x18, METHOD)
    device.send(auth(0x18, await talk.reply(challenge.properties.authentication_data or b"")))
    connack = await device.expect(Connack)
    assert connack.properties.authentication_method == METHOD
    talk.finish(connack.properties.authentication_data or b"")
    await device.ping()
    assert "as 'ann'" in caplog.text


async def test_our_client_needs_no_password_on_the_wire(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users)
    trace: list[str] = []
    async with Client(
        "127.0.0.1", broker.port, authentication=ScramSha256("ann", "secret"), trace=trace.append
    ) as client:
        await client.subscribe("t")
        await client.publish("t", "hello", qos=1)
        assert (await anext(client.messages)).payload == b"hello"
    assert [line.split()[1] for line in trace[:4]] == ["CONNECT", "AUTH", "AUTH", "CONNACK"]


@pytest.mark.parametrize(("username", "password"), [("ann", "wrong"), ("eve", "secret")])
async def test_mqtt_4_12_0_4_a_wrong_password_and_an_unknown_user_look_alike(
    rig: Rig, users: Path, username: str, password: str
) -> None:
    broker = await guarded(rig, users)
    trace: list[str] = []
    who = ScramSha256(username, password)
    with pytest.raises(ConnectRefused, match=r"authentication by SCRAM-SHA-256 failed") as error:
        await Client("127.0.0.1", broker.port, authentication=who, trace=trace.append).__aenter__()
    assert error.value.reason_code == 0x87
    assert error.value.permanent
    assert [line.split()[1] for line in trace] == ["CONNECT", "AUTH", "AUTH", "CONNACK"]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (auth(0x18, b"c=biws,r=wrongnonce,p=AAAA"), 0x87),
        (auth(0x18, b"\xff"), 0x87),
        (auth(0x18), 0x87),
        (auth(0x18, b"c=biws", "PLAIN"), 0x82),
    ],
    ids=["wrong nonce", "no text", "nothing", "method switched"],
)
async def test_mqtt_4_12_0_5_what_is_no_answer_ends_the_attempt(rig: Rig, users: Path, answer: Auth, code: int) -> None:
    broker = await guarded(rig, users)
    device = await rig.dial(broker.port)
    device.hello("device", properties=Properties(authentication_method=METHOD, authentication_data=b"n,,n=ann,r=x"))
    await device.expect(Auth)
    device.send(answer)
    assert (await device.expect(Connack)).reason_code == code
    assert await device.goodbye() is None
    assert len(core_of(broker).sessions) == 0


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_peer_that_does_not_answer_in_time_is_cut_off(
    rig: Rig, users: Path, jump: Callable[[float], None]
) -> None:
    broker = await guarded(rig, users, limits=Limits(connect_timeout_s=60))
    device = await rig.dial(broker.port)
    device.hello("device", properties=Properties(authentication_method=METHOD, authentication_data=b"n,,n=ann,r=x"))
    await device.expect(Auth)
    jump(61)
    assert await device.goodbye() is None
    await until(lambda: not core_of(broker).connections)


async def test_no_question_is_asked_for_a_client_that_left(rig: Rig) -> None:
    cancelled = asyncio.Event()

    class Slow:
        async def authenticate(self, credentials: Credentials) -> bool:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                cancelled.set()
            return True

    broker = await rig.broker(authenticator=Slow())
    device = await rig.dial(broker.port)
    device.hello("device")
    await until(lambda: bool(questions_of(broker)))
    device.drop()
    async with asyncio.timeout(60):
        await cancelled.wait()
    await until(lambda: not questions_of(broker))


async def test_a_program_brings_a_method_of_its_own(rig: Rig) -> None:
    class Doubling:
        """Lets in who can double a number."""

        methods = frozenset({"DOUBLE"})

        def begin(self, method: str, credentials: Credentials) -> "Doubling":
            self.seen = credentials
            return self

        async def step(self, data: bytes | None) -> Verdict:
            if data is None:
                return Verdict(0x18, b"21")
            return Verdict(0, b"well done", "ann") if data == b"42" else Verdict(0x87)

    doubling = Doubling()
    broker = await rig.broker(method_authenticator=doubling)
    device = await rig.dial(broker.port)
    device.hello("device", properties=Properties(authentication_method="DOUBLE"))
    assert (await device.expect(Auth)).properties.authentication_data == b"21"
    device.send(auth(0x18, b"42", "DOUBLE"))
    assert (await device.expect(Connack)).properties.authentication_data == b"well done"
    assert doubling.seen.client_id == "device"
    plain = await rig.dial(broker.port)
    plain.hello("plain", username="ann")
    assert (await plain.expect(Connack)).reason_code == 0x86


# ── again ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
async def test_mqtt_4_12_1_1_it_authenticates_again_while_messages_pass(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users)
    async with Client("127.0.0.1", broker.port, authentication=ScramSha256("ann", "secret")) as client:
        await client.subscribe("t", 1)

        async def publish() -> None:
            for number in range(50):
                await client.publish("t", str(number), qos=1)

        publishing = asyncio.create_task(publish())
        for _ in range(3):
            await client.reauthenticate()
        await publishing
        await asyncio.gather(client.reauthenticate(), client.reauthenticate())
        assert [int((await anext(client.messages)).payload) for _ in range(50)] == list(range(50))


async def test_mqtt_4_12_1_2_who_is_no_user_any_more_is_disconnected(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users)
    async with Client("127.0.0.1", broker.port, authentication=ScramSha256("ann", "secret")) as client:
        set_user(users, "ann", OTHER, create=False)
        with pytest.raises(DisconnectedByServer) as error:
            await client.reauthenticate()
        assert error.value.reason_code == 0x87


async def test_mqtt_4_12_1_2_a_device_that_fails_is_disconnected_while_it_publishes(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users)
    device = await rig.dial(broker.port)
    talk = ScramSha256("ann", "secret").begin()
    device.hello("device", properties=Properties(authentication_method=METHOD, authentication_data=talk.first()))
    challenge = await device.expect(Auth)
    device.send(auth(0x18, await talk.reply(challenge.properties.authentication_data or b"")))
    await device.expect(Connack)
    device.send(auth(0x19, b"n,,n=ann,r=x"))
    device.publish("t", b"x", 1)
    packets = [await device.next(), await device.next()]
    assert {type(packet) for packet in packets} == {Ack, Auth}
    device.send(auth(0x18, b"c=biws,r=x,p=AAAA"))
    assert await device.goodbye() == 0x87


async def test_a_client_authenticates_in_every_connection(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users)
    back = asyncio.Event()
    async with Client(
        "127.0.0.1",
        broker.port,
        authentication=ScramSha256("ann", "secret"),
        min_reconnect_delay=0.01,
        on_reconnected=lambda _present: back.set(),
    ) as client:
        for listener in broker.listeners:
            listener.abort()
        async with asyncio.timeout(60):
            await back.wait()
        await client.reauthenticate()
        await client.publish("t", "x", qos=1)


async def test_a_broker_that_stops_does_not_wait_for_logins(rig: Rig, users: Path) -> None:
    broker = await guarded(rig, users)
    device = await rig.dial(broker.port)
    device.hello("device", properties=Properties(authentication_method=METHOD, authentication_data=b"n,,n=ann,r=x"))
    await device.expect(Auth)
    stop = asyncio.create_task(broker.stop())
    assert await device.goodbye() is None
    await device.close()
    await stop


async def test_without_authentication_there_is_none_to_do_again(rig: Rig) -> None:
    broker = await rig.broker()
    async with Client("127.0.0.1", broker.port) as client:
        with pytest.raises(ValueError, match="no authentication"):
            await client.reauthenticate()
