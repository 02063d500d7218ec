"""The messages of a queue are pushed to an endpoint over HTTP, whatever it answers, and wherever it claims to be."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from aiohttp.client_proto import ResponseHandler
from standardwebhooks import Webhook

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.event_hub import PUSH_STOPPED, Listener
from mqttlite.extensions.push import pusher, service
from mqttlite.extensions.push.endpoint import Endpoint
from mqttlite.extensions.push.guard import Guard
from mqttlite.extensions.push.limited_answers import MAX_INTERIM, PIECE_BYTES
from mqttlite.extensions.push.options import PushOptions
from mqttlite.extensions.push.results import NOT_REACHED
from mqttlite.extensions.queues.errors import PushRefused
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.extensions.queues.push_target import PushTarget, new_secret
from mqttlite.security.tls import TlsOptions, client_context, server_context
from mqttlite.server import Broker
from mqttlite.wire.properties import Properties
from tests.support.device import until
from tests.support.inside import push_of
from tests.support.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

SECRET = new_secret()
LOCAL = PushOptions(allowed_hosts=("127.0.0.1",))


def queue(name: str, url: str, **fields: Any) -> QueueOptions:
    """A queue of `a/#` that tries twice, at once."""
    target = PushTarget(url=url, secret=SECRET, **fields.pop("target", {}))
    options = {"max_attempts": 2, "retry": RetryOptions(min_s=0, max_s=0), "allow_short_deadlines": True}
    return QueueOptions(**{"name": name, "filters": ("a/#",), "push": target, **options, **fields})


def config(*queues: QueueOptions, **fields: Any) -> Config:
    return Config(**{"listeners": (ListenerOptions(port=0),), "queues": queues, "push": LOCAL, **fields})


def ends(broker: Broker, name: str = "q") -> dict[str, int]:
    return {end: count for end, count in broker.queues.state(name).ends.items() if count}


async def test_a_message_is_pushed_signed_and_acknowledged() -> None:
    async with Receiver() as receiver, Broker(config(queue("shop.mail", receiver.url("/in?x=1")))) as broker:
        pairs = [("country", "US"), ("ordering-key", "k")]
        await broker.publish("a/b", b"two apples", qos=1, properties=Properties(user_properties=pairs))
        await until(lambda: ends(broker, "shop.mail") == {"acknowledged": 1})
        (request,) = receiver.requests
        Webhook(SECRET).verify(request.body, request.headers)
        message = request.json["message"]
        assert (request.payload, message["attributes"], message["orderingKey"]) == (
            b"two apples",
            {"country": "US"},
            "k",
        )
        assert (request.json["subscription"], request.json["deliveryAttempt"]) == (
            "projects/shop/subscriptions/mail",
            1,
        )
        assert (request.headers["Content-Type"], request.headers["Host"]) == (
            "application/json",
            f"127.0.0.1:{receiver.port}",
        )


@pytest.mark.long
async def test_a_payload_alone_is_pushed_where_the_target_says_so_and_a_large_one_either_way() -> None:
    async with Receiver() as receiver:
        bare = queue("bare", receiver.url("/bare"), target={"wrapper": False})
        async with Broker(config(bare, queue("wrapped", receiver.url("/wrapped")))) as broker:
            payload = bytes(range(250)) * 4_194  # just within the limit of a packet
            await broker.publish("a/b", payload, qos=1, properties=Properties(content_type="image/png"))
            await until(lambda: all(ends(broker, name) == {"acknowledged": 1} for name in ("bare", "wrapped")))
            (request,) = receiver.of("/bare")
            assert (request.body, request.headers["Content-Type"]) == (payload, "image/png")
            (request,) = receiver.of("/wrapped")
            assert request.payload == payload


ACKNOWLEDGED = (
    "/ok",
    "/status/200",
    "/status/201",
    "/status/202",
    "/status/299",
    "/fail/1/500",
    "/slow-body",
    "/huge-body",
)
GIVEN_UP = {
    "/status/500": "nacked",
    "/status/400": "nacked",
    "/status/304": "nacked",
    "/redirect": "nacked",
    "/reset": "disconnected",
    "/garbage": "disconnected",
    "/hang": "deadline",
}


@pytest.mark.long
async def test_each_answer_means_an_end_and_repeated_requests_have_one_id() -> None:
    async with Receiver() as receiver:
        paths = [*ACKNOWLEDGED, *GIVEN_UP]
        made = [
            queue(f"q{number}", receiver.url(path), ack_deadline_s=0.5 if path == "/hang" else 60.0)
            for number, path in enumerate(paths)
        ]
        async with Broker(config(*made)) as broker:
            await broker.publish("a/b", b"x", qos=1)
            await until(lambda: all(ends(broker, each.name) for each in made))
            for path, each in zip(paths, made, strict=True):
                state = broker.queues.state(each.name)
                requests = receiver.of(path)
                attempts = [request.json["deliveryAttempt"] for request in requests]
                assert attempts == [1, 2] if path in GIVEN_UP or "fail" in path else attempts == [1], path
                assert len({request.headers["webhook-id"] for request in requests}) == 1
                if path in GIVEN_UP:
                    assert ends(broker, each.name) == {"dead_lettered": 1}, path
                    assert state.failures[GIVEN_UP[path]] == 2, path
                else:
                    assert ends(broker, each.name) == {"acknowledged": 1}, path
            assert receiver.of("/redirected") == []
            receiver.released.set()


class Alarms(Listener):
    def __init__(self) -> None:
        self.heard: list[tuple[bool, str]] = []

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        if alarm == PUSH_STOPPED:
            self.heard.append((active, detail))


@pytest.mark.long
async def test_an_endpoint_that_is_gone_is_left_alone_until_it_is_resumed(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        made = queue("q", receiver.url("/fail/1/410"), max_attempts=5)
        broker = Broker(config(made, data_dir=str(tmp_path)))
        alarms = Alarms()
        broker.event_listeners.append(alarms)
        async with broker:
            await broker.publish("a/b", b"1", qos=1)
            await until(lambda: broker.queues.push_stopped("q") != "")
            await broker.publish("a/b", b"2", qos=1)
            await asyncio.sleep(0.2)
            assert (len(receiver.requests), broker.queues.state("q").depth) == (1, 2)
            why = f"http://127.0.0.1:{receiver.port} answered 410 (Gone)"
            assert alarms.heard == [(True, f"q: {why}")]
        async with broker:  # it is still so after a restart
            await asyncio.sleep(0.2)
            assert (len(receiver.requests), broker.queues.push_stopped("q")) == (1, why)
            broker.queues.pause("q", False)
            await broker.commit()
            await until(lambda: ends(broker) == {"acknowledged": 2})
            assert alarms.heard[-1] == (False, "")


@pytest.mark.long
@pytest.mark.parametrize("path", ["/later/429", "/later/503", "/later-date/429"])
async def test_an_endpoint_that_wants_to_be_asked_later_is_asked_later(path: str) -> None:
    async with Receiver() as receiver, Broker(config(queue("q", receiver.url(path)))) as broker:
        await broker.publish("a/b", b"x", qos=1)
        await until(lambda: ends(broker) == {"acknowledged": 1})
        first, second = receiver.requests
        assert second.at - first.at >= 0.95


@pytest.mark.long
async def test_a_slow_endpoint_delays_no_other() -> None:
    async with Receiver() as receiver:
        slow = queue("slow", receiver.url("/hang"), ack_deadline_s=30.0)
        async with Broker(config(slow, queue("quick", receiver.url()))) as broker:
            for number in range(50):
                await broker.publish("a/b", b"%d" % number, qos=1)
            await until(lambda: ends(broker, "quick") == {"acknowledged": 50})
            assert ends(broker, "slow") == {}
            receiver.released.set()
            await until(lambda: ends(broker, "slow") == {"acknowledged": 50})


@pytest.mark.long
async def test_no_more_requests_are_open_than_the_target_says() -> None:
    async with Receiver() as receiver:
        made = queue("q", receiver.url("/sleep/0.01"), target={"max_requests": 4})
        async with Broker(config(made)) as broker:
            for _ in range(60):
                await broker.publish("a/b", b"x", qos=1)
            most = 0
            while ends(broker).get("acknowledged", 0) < 60:
                state = push_of(broker).state("q")
                assert state is not None
                assert state.open <= 4
                most = max(most, state.window)
                await asyncio.sleep(0.001)
            assert most == 4


async def test_messages_with_one_key_are_pushed_one_after_the_other() -> None:
    async with Receiver() as receiver, Broker(config(queue("q", receiver.url(), ordering=True))) as broker:
        for number in range(40):
            pairs = [("ordering-key", str(number % 4))]
            await broker.publish("a/b", b"%d" % number, qos=1, properties=Properties(user_properties=pairs))
        await until(lambda: ends(broker) == {"acknowledged": 40})
        payloads = [int(each.payload) for each in receiver.requests]
        for key in range(4):
            assert [each for each in payloads if each % 4 == key] == list(range(key, 40, 4))


@pytest.mark.long
async def test_a_stop_waits_for_open_requests_and_gives_back_what_does_not_end(tmp_path: Path) -> None:
    async with Receiver() as receiver:
        made = queue("q", receiver.url("/hang"), ack_deadline_s=30.0)
        broker = Broker(config(made, data_dir=str(tmp_path), stop_timeout_s=0.3))
        async with broker:
            await broker.publish("a/b", b"x", qos=1)
            await until(lambda: len(receiver.requests) == 1)
        receiver.released.set()
        async with broker:
            await until(lambda: ends(broker) == {"acknowledged": 1})
        assert [each.json["deliveryAttempt"] for each in receiver.requests] == [1, 2]
        receiver.released.clear()
        async with Broker(config(made, data_dir=str(tmp_path), stop_timeout_s=60)) as patient:
            await patient.publish("a/b", b"y", qos=1)
            await until(lambda: len(receiver.requests) == 3)
            asyncio.get_running_loop().call_later(0.05, receiver.released.set)
        async with broker:
            await asyncio.sleep(0.1)
            assert (len(receiver.requests), broker.queues.state("q").depth) == (3, 0)


async def test_another_target_holds_at_once_and_none_gives_the_messages_to_consumers() -> None:
    async with Receiver() as receiver, Broker(config(queue("q", receiver.url("/one")))) as broker:
        broker.queues.change(queue("q", receiver.url("/two")))
        await broker.publish("a/b", b"x", qos=1)
        await until(lambda: ends(broker) == {"acknowledged": 1})
        broker.queues.change(QueueOptions(name="q", filters=("a/#",)))
        await broker.publish("a/b", b"y", qos=1)
        assert [pulled.message.payload for pulled in broker.queues.pull("q", 10)] == [b"y"]
        assert [each.path for each in receiver.requests] == ["/two"]
        broker.queues.delete("q")
        broker.queues.create(queue("q", receiver.url("/three")))
        await broker.publish("a/b", b"z", qos=1)
        await until(lambda: len(receiver.of("/three")) == 1)


async def test_changes_of_a_queue_hold_for_open_requests(caplog: pytest.LogCaptureFixture) -> None:
    async with Receiver() as receiver:
        names = ("purged", "paused", "deleted")
        made = [queue(name, receiver.url(f"/hang/{name}"), ack_deadline_s=30.0) for name in names]
        async with Broker(config(*made)) as broker:
            await broker.publish("a/b", b"x", qos=1)
            await until(lambda: len(receiver.requests) == 3)
            assert broker.queues.purge("purged") == 1
            broker.queues.pause("paused", True)
            broker.queues.delete("deleted")
            await broker.publish("a/b", b"y", qos=1)
            receiver.released.set()
            await until(lambda: ends(broker, "purged") == {"purged": 1, "acknowledged": 1})
            await until(lambda: ends(broker, "paused") == {"acknowledged": 1})
            assert (broker.queues.state("paused").depth, len(receiver.of("/hang/paused"))) == (1, 1)
            assert len(receiver.of("/hang/deleted")) == 1
            assert [each for each in caplog.records if each.levelname == "ERROR"] == []


async def test_a_secret_is_made_kept_and_rotated() -> None:
    async with Receiver() as receiver, Broker(config()) as broker:
        made = PushTarget(url=receiver.url())
        broker.queues.create(QueueOptions(name="q", filters=("a/#",), push=made))
        first = broker.queues.options("q").push
        assert first is not None
        second = broker.queues.rotate_push_secret("q")
        broker.queues.change(QueueOptions(name="q", filters=("a/#",), push=made, max_attempts=7))
        await broker.publish("a/b", b"x", qos=1)
        await until(lambda: ends(broker) == {"acknowledged": 1})
        (request,) = receiver.requests
        for secret in (first.secret, second):
            Webhook(secret).verify(request.body, request.headers)


async def test_targets_that_are_not_allowed_are_refused_however_they_come() -> None:
    with pytest.raises(ValueError, match=r"q\.push\.secret is missing"):
        config(QueueOptions(name="q", push=PushTarget(url="https://h.example")))
    refused = queue("q", "https://10.0.0.1/")
    with pytest.raises(ConfigError, match=r"queues\[0\]: push\.url is 'https://10\.0\.0\.1'"):
        await Broker(config(refused)).start()
    async with Broker(config()) as broker:
        with pytest.raises(PushRefused):
            broker.queues.create(refused)
        broker.queues.create(QueueOptions(name="q"))
        with pytest.raises(PushRefused):
            broker.queues.change(refused)


# ── where a connection goes ──────────────────────────────────────────────────────────────────────────────────────────


def resolving(*addresses: str) -> Any:
    """A resolver that gives one address after the other."""
    left = list(addresses)

    def resolve(host: str, port: int) -> list[tuple[Any, ...]]:
        address = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    return resolve


async def posted(guard: Guard, url: str, tls: Any = None) -> Any:
    endpoint = Endpoint(PushTarget(url=url).target, guard, tls)
    try:
        return await endpoint.post(b"{}", {}, 5.0)
    finally:
        await endpoint.close()


async def test_a_name_that_is_a_private_address_is_not_connected() -> None:
    async with Receiver() as receiver:
        found = await posted(Guard(PushOptions(), resolving("127.0.0.1")), f"http://h.example:{receiver.port}/")
        assert (found.kind, found.detail) == ("denied", "h.example: 127.0.0.1 is a private or reserved address")
        assert receiver.requests == []


async def test_an_address_that_was_resolved_before_the_check_is_not_connected() -> None:
    """aiohttp connects addresses without a resolver: the socket is what is checked."""
    async with Receiver() as receiver:
        found = await posted(Guard(PushOptions()), f"http://127.0.0.1:{receiver.port}/")
        assert (found.kind, receiver.requests) == ("denied", [])


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    async with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url(""))
        found = await posted(Guard(LOCAL), receiver.url())
        assert (found.is_success, len(receiver.requests), proxy.requests) == (True, 1, [])


@pytest.mark.long
async def test_tls_is_for_the_name_of_the_url_and_goes_to_the_address_that_was_checked(certs: Path) -> None:
    tls = server_context(TlsOptions(str(certs / "server.crt"), str(certs / "server.key"), None))
    trusted = client_context(str(certs / "ca.crt"))
    async with Receiver(tls) as receiver:
        allowed = PushOptions(allowed_hosts=("localhost", "h.example"))
        found = await posted(Guard(allowed, resolving("127.0.0.1")), f"https://localhost:{receiver.port}/", trusted)
        assert found.is_success
        assert receiver.requests[0].headers["Host"] == f"localhost:{receiver.port}"
        found = await posted(Guard(allowed, resolving("127.0.0.1")), f"https://h.example:{receiver.port}/", trusted)
        assert (found.kind, len(receiver.requests)) == ("failed", 1)
        assert found.detail.startswith("the certificate is not accepted")
        found = await posted(
            Guard(allowed, resolving("127.0.0.1")), f"https://localhost:{receiver.port}/", client_context()
        )
        assert (found.kind, len(receiver.requests)) == ("failed", 1)


async def test_a_push_whose_ca_file_cannot_be_read_is_told_and_recovers(
    certs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pusher, "RETRY_S", 0.05)
    trusted, alarms = tmp_path / "ca.crt", Alarms()
    trusted.write_bytes((certs / "ca.crt").read_bytes())
    tls = server_context(TlsOptions(str(certs / "server.crt"), str(certs / "server.key"), None))
    broker = Broker(config(push=PushOptions(allowed_hosts=("localhost",), ca_file=str(trusted))))
    broker.event_listeners.append(alarms)
    async with Receiver(tls) as receiver, broker:
        trusted.unlink()
        url = f"https://localhost:{receiver.port}/ok"
        for name in ("q", "r"):
            broker.queues.create(queue(name, url))
        await until(lambda: all(push_of(broker).state(name).why for name in ("q", "r")))  # type: ignore[union-attr]
        state = push_of(broker).state("q")
        assert state is not None
        assert (state.state, str(trusted) in state.why) == ("failing", True)
        assert alarms.heard[-1][0]
        assert "q: " in alarms.heard[-1][1]
        assert "r: " in alarms.heard[-1][1]
        await broker.publish("a/b", b"x", qos=1)
        trusted.write_bytes((certs / "ca.crt").read_bytes())
        await until(lambda: all(ends(broker, name) == {"acknowledged": 1} for name in ("q", "r")))
        assert not alarms.heard[-1][0]
        state = push_of(broker).state("q")
        assert state is not None
        assert (state.state, state.why) == ("pushing", "")


async def test_a_push_that_fails_by_a_fault_is_stopped_until_it_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(service.Push, "_connect", fail)
    async with Receiver() as receiver, Broker(config(queue("q", receiver.url("/ok")))) as broker:
        await until(lambda: broker.queues.push_stopped("q") == "a fault of the broker: a fault")
        monkeypatch.undo()
        broker.queues.pause("q", False)
        await broker.publish("a/b", b"x", qos=1)
        await until(lambda: ends(broker) == {"acknowledged": 1})


async def test_an_endpoint_that_is_not_there_is_told_in_words() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        found = await posted(Guard(LOCAL), f"http://127.0.0.1:{unused.getsockname()[1]}/")
    assert (found.kind, found.detail.startswith("no connection: ")) == ("failed", True)


async def interim_server(answers: int | None, end: bytes = b"HTTP/1.1 204 No Content\r\n\r\n") -> asyncio.Server:
    """A server that answers 102 so often, or for ever, and then `end`."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        interim = b"HTTP/1.1 102 Processing\r\n\r\n"
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                if answers is not None:
                    writer.write(interim * answers + end)
                while answers is None:
                    writer.write(interim * 5_000)
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, "127.0.0.1", 0)


async def test_an_endpoint_that_answers_102_for_ever_holds_no_other_up(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []
    read = ResponseHandler.data_received
    monkeypatch.setattr(ResponseHandler, "data_received", lambda self, data: (fed.append(len(data)), read(self, data)))
    for answers, kind in (
        (0, "2xx"),
        (2, "2xx"),
        (MAX_INTERIM, "2xx"),
        (MAX_INTERIM + 1, NOT_REACHED),
        (None, NOT_REACHED),
    ):
        server = await interim_server(answers)
        async with server:
            fed.clear()
            found = await posted(Guard(LOCAL), f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
            assert found.kind == kind, answers
            assert sum(fed) <= 2 * PIECE_BYTES, answers
