"""Hooks and sinks of a program in a running broker, for clients and by other ways in."""

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from mqttlite import (
    Broker,
    Client,
    Config,
    ConfigError,
    ConnectingClient,
    DisconnectedClient,
    Hooks,
    Host,
    Incoming,
    ListenerOptions,
    Reject,
    Subscribing,
)
from mqttlite.assembly import extensions
from mqttlite.cli.check import command
from mqttlite.client.errors import ConnectRefused, SubscribeRefused
from mqttlite.config import load_config
from mqttlite.config.extensions import ExtensionOptions
from mqttlite.config.http import HttpOptions
from mqttlite.extensions import ending
from mqttlite.extensions.publish_hook import Result
from mqttlite.extensions.queues.options import DeliveryOptions
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.wire.constants import V5, V311
from mqttlite.wire.packets import Ack, Disconnect, Publish
from tests.integration.conftest import Rig
from tests.support.device import Gone

pytestmark = pytest.mark.slow


def made() -> Hooks:
    """Hooks below `h`: one changes, one refuses, one waits."""
    hooks = Hooks()

    @hooks.on_publish("h/upper")
    def upper(message: Incoming) -> Incoming:
        return message.replace(payload=message.payload.upper())

    @hooks.on_publish("h/no")
    def refuse(message: Incoming) -> Result:
        return Reject(0x99, "never")

    @hooks.on_publish("h/late")
    async def late(message: Incoming) -> Incoming:
        await asyncio.sleep(0.05)
        return message.replace(payload=message.payload + b"!")

    return hooks


async def test_clients_meet_hooks() -> None:
    async with (
        Broker(port=0, extensions=[made()]) as broker,
        Client("127.0.0.1", broker.port, client_id="reader") as reader,
        Client("127.0.0.1", broker.port, client_id="c") as client,
    ):
        await reader.subscribe("#", qos=2)
        for qos in (0, 1, 2):
            await client.publish("h/upper", f"a{qos}", qos=qos)
            await client.publish("h/late", f"b{qos}", qos=qos)
        await client.publish("end", "")
        seen = []
        async with asyncio.timeout(20):
            async for message in reader.messages:
                if message.topic == "end":
                    break
                seen.append(message.payload.decode())
        assert seen == ["A0", "b0!", "A1", "b1!", "A2", "b2!"], "in the order in which they were sent"
        refused = await broker.publish("h/no", "x", qos=1)
        assert (refused.reason_code, refused.reason, refused.dropped) == (0x99, "never", {"hook_rejected": 1})
        late = await broker.publish("h/late", "x", qos=1)
        assert late.delivered == 1


class Collector:
    """A sink that can be made to fail."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.fails = False
        self.stopped = 0

    async def start(self, host: Host) -> None:
        host.bind("out/#", self._take)
        host.log.debug("%s starts at %f", host.name, host.clock())

    async def stop(self) -> None:
        self.stopped += 1

    async def _take(self, message: Incoming) -> None:
        await asyncio.sleep(0)
        if self.fails:
            raise OSError("disk")
        self.got.append(message.payload)


async def test_a_publisher_is_acknowledged_when_the_sink_is_done() -> None:
    collector = Collector()
    broker = Broker(port=0, extensions=[collector])
    for run in (1, 2):
        async with broker, Client("127.0.0.1", broker.port) as client:
            await client.publish("out/a", f"{run}", qos=1)
            await client.publish("out/a", f"{run}", qos=2)
            assert collector.got == [b"1", b"1", b"2", b"2"][: 2 * run]
            collector.fails = True
            refused = await broker.publish("out/a", "x", qos=1)
            assert refused.reason_code == 0x83
            collector.fails = False
        assert collector.stopped == run


async def test_a_stop_waits_for_no_hook() -> None:
    hooks, entered = Hooks(), asyncio.Event()

    @hooks.on_publish("h/#", deadline_s=1_000)
    async def never(message: Incoming) -> None:
        entered.set()
        await asyncio.Event().wait()

    broker = Broker(port=0, extensions=[hooks])
    async with asyncio.timeout(20), broker:
        task = asyncio.create_task(broker.publish("h/a", "x", qos=1))
        await entered.wait()
        await broker.stop()
        published = await task
        assert published.reason_code == 0x83


class Slow:
    """A hook and a sink that are never done."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()

    async def start(self, host: Host) -> None:
        hooks = Hooks()
        hooks.on_publish("h/#", deadline_s=1_000)(self._wait)
        await hooks.start(host)
        host.bind("out/#", self._wait)

    async def _wait(self, message: Incoming) -> None:
        self.entered.set()
        await asyncio.Event().wait()


@pytest.mark.parametrize("version", [V5, V311])
@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("topic", [b"h/a", b"out/a"])
async def test_a_stop_acknowledges_no_message_that_is_not_handled(
    rig: Rig, tmp_path: Path, topic: bytes, qos: int, version: int
) -> None:
    slow = Slow()
    config = Config(listeners=(ListenerOptions(port=0),), data_dir=str(tmp_path))
    async with asyncio.timeout(60), Broker(config, extensions=[slow]) as broker:
        device = await rig.device(broker.port, "device", version, clean_start=False, expiry=1_000)
        device.send(Publish(topic, b"x", qos, packet_id=7))
        await slow.entered.wait()
        stopping = asyncio.create_task(broker.stop())
        if version == V5:
            assert (await device.expect(Disconnect)).reason_code == 0x8B
        with pytest.raises(Gone):
            await device.next()
        await device.close()
        await stopping
    collector = Collector()
    async with Broker(config, extensions=[collector]) as broker, asyncio.timeout(60):
        device = await rig.device(broker.port, "device", version, clean_start=False, expiry=1_000)
        device.send(Publish(b"out/a", b"x", qos, dup=True, packet_id=7))
        assert (await device.expect(Ack)).packet_id == 7
        await device.close()
    assert collector.got == [b"x"], "it is no duplicate of a message that was never acknowledged"


@pytest.mark.parametrize("api", ["ours", "pubsub"])
async def test_a_stop_tells_publishers_over_http_that_a_message_was_not_handled(api: str) -> None:
    slow = Slow()
    config = Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0, anonymous_role="admin"))
    async with asyncio.timeout(60), Broker(config, extensions=[slow]) as broker:
        assert broker.gateway is not None
        async with httpx.AsyncClient(base_url=broker.gateway.urls[0], timeout=60) as client:
            if api == "ours":
                request = client.put("/topics/out/orders?qos=1", content=b"x")
            else:
                assert (await client.put("/v1/projects/out/topics/orders", json={})).status_code == 200
                request = client.post("/v1/projects/out/topics/orders:publish", json={"messages": [{"data": "eA=="}]})
            publishing = asyncio.create_task(request)
            await slow.entered.wait()
            await broker.stop()
            answer = await publishing
    if api == "ours":
        outcome = answer.json()
        assert (outcome["queued_for"], outcome["dropped"], outcome["reason"]) == (0, True, "nacked")
    else:
        assert (answer.status_code, answer.json()["error"]["status"]) == (503, "UNAVAILABLE")


async def test_a_traced_message_names_its_sink() -> None:
    collector = Collector()
    log = DeliveryLogOptions(topics=("out/#",))
    config = Config(listeners=(ListenerOptions(port=0),), delivery_log=log, http=HttpOptions(port=0))
    async with Broker(config, extensions=[collector]) as broker:
        await broker.publish("out/a", "x", qos=1)
        collector.fails = True
        await broker.publish("out/a", "y", qos=1)
        assert broker.gateway is not None
        async with httpx.AsyncClient(base_url=broker.gateway.urls[0]) as client:
            answer = await client.get("/api/v1/why?target=out/a")
    assert "delivered to extension tests.integration.test_extensions:Collector at QoS 1" in answer.text
    refused = (
        "refused by extension tests.integration.test_extensions:Collector: nacked, because it raised OSError('disk')"
    )
    assert refused in answer.text

    collector = Collector()
    collector.fails = True
    config = Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0))
    async with Broker(config, extensions=[collector]) as broker:
        assert broker.gateway is not None
        async with httpx.AsyncClient(base_url=broker.gateway.urls[0]) as client:
            answer = await client.put("/topics/out/a?qos=1", content=b"x")
    assert answer.json()["dropped"] is True
    assert answer.json()["reason"] == "nacked"


async def test_an_extension_that_raises_ends_the_start() -> None:
    class Broken:
        async def start(self, host: Host) -> None:
            host.bind("a/#/b", print)

    broker = Broker(port=0, extensions=[Broken()])
    with pytest.raises(ValueError, match="not a whole last level"):
        await broker.start()
    await broker.stop()


async def test_an_extension_that_cannot_stop_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Stubborn:
        async def start(self, host: Host) -> None: ...

        async def stop(self) -> None:
            raise RuntimeError("no")

    collector = Collector()
    async with Broker(port=0, extensions=[collector, Stubborn()]):
        pass
    assert "Stubborn did not stop as it should" in caplog.text
    assert collector.stopped == 1


async def test_an_extension_whose_stop_never_ends_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ending, "STOP_S", 0.01)
    monkeypatch.setattr(extensions, "STOP_S", 0.01)
    released = asyncio.Event()

    class Stubborn:
        async def start(self, host: Host) -> None: ...

        async def stop(self) -> None:
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()

    collector = Collector()
    async with asyncio.timeout(20):
        async with Broker(port=0, extensions=[collector, Stubborn()]):
            pass
    assert "Stubborn did not stop within 0.01 s" in caplog.text
    assert collector.stopped == 1
    released.set()


def test_a_configuration_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_by_a_file.py").write_text("from tests.integration.test_extensions import made\nhooks = made()")
    (tmp_path / "broker.toml").write_text('[[listeners]]\nport = 0\n[[extensions]]\nuse = "named_by_a_file:hooks"\n')
    monkeypatch.chdir(tmp_path)

    async def run() -> None:
        async with Broker(load_config(tmp_path / "broker.toml")) as broker:
            assert (await broker.publish("h/no", "x", qos=1)).reason == "never"

    asyncio.run(run())
    checked = CliRunner().invoke(command, ["broker.toml"])
    assert "  your extension named_by_a_file:hooks\n" in checked.stdout


async def test_a_wrong_section_is_refused_with_its_place() -> None:
    config = Config(listeners=(ListenerOptions(port=0),), extensions=(ExtensionOptions(use="nosuch:hooks"),))
    with pytest.raises(ConfigError, match=r"extensions\[0\]\.use is nosuch:hooks: there is no module nosuch"):
        await Broker(config).start()


async def test_hooks_are_asked_about_clients() -> None:
    hooks, gone = Hooks(), list[DisconnectedClient]()

    @hooks.on_connect()
    async def known(client: ConnectingClient) -> Reject | None:
        await asyncio.sleep(0)
        assert client.username in (None, "ann")
        return Reject(0x87, "not on the list") if client.client_id == "mallory" else None

    @hooks.on_subscribe()
    def narrow(request: Subscribing) -> Reject | None:
        return Reject(0x87, "too much") if request.topic_filter == "#" else None

    hooks.on_disconnect()(gone.append)
    async with Broker(port=0, extensions=[hooks]) as broker:
        with pytest.raises(ConnectRefused, match="not on the list"):
            async with Client("127.0.0.1", broker.port, client_id="mallory", username="ann", password=b"x"):
                pass
        async with broker.subscribe("#"):  # the program is not asked about
            pass
        async with Client("127.0.0.1", broker.port, client_id="c") as client:
            await client.subscribe("a/#")
            with pytest.raises(SubscribeRefused, match="too much"):
                await client.subscribe("#")
            await client.publish("a/b", "x", qos=1)
    assert [(each.client_id, each.reason) for each in gone] == [("c", "client_disconnected")]


async def test_streams_over_http_are_asked_about_what_they_subscribe_to() -> None:
    hooks = Hooks()
    hooks.on_connect()(lambda client: Reject(0x87, "nobody"))
    hooks.on_subscribe()(lambda request: Reject(0x87, "too much") if request.topic_filter == "secret" else None)
    config = Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0, anonymous_role="user"))
    async with Broker(config, extensions=[hooks]) as broker:
        assert broker.gateway is not None
        url = f"http://127.0.0.1:{broker.gateway.port}/events?filter="
        async with httpx.AsyncClient() as client:
            async with client.stream("GET", url + "a") as accepted:
                assert accepted.status_code == 200
            refused = await client.get(url + "secret")
        assert refused.status_code == 403
        assert "too much" in refused.text


async def test_a_hook_that_refuses_a_subscription_keeps_its_queue_from_being_made() -> None:
    hooks = Hooks()
    hooks.on_subscribe()(lambda request: Reject(0x87, "no") if "secret" in request.topic_filter else None)
    config = Config(listeners=(ListenerOptions(port=0),), delivery=DeliveryOptions(create_by_subscribing=True))
    async with Broker(config, extensions=[hooks]) as broker, Client("127.0.0.1", broker.port) as client:
        await client.subscribe("$queue/q1/open/#")
        with pytest.raises(SubscribeRefused):
            await client.subscribe("$queue/q2/secret/#")
        assert broker.queues.names == ["q1"]


class Chart:
    """Two pages; the second one raises."""

    async def start(self, host: Host) -> None:
        host.page("chart", "A < B", lambda: "<svg></svg>")
        host.page("broken", "Broken", lambda: str(1 / 0))


async def test_an_extension_adds_a_page_to_the_dashboard() -> None:
    config = Config(listeners=(ListenerOptions(port=0),), http=HttpOptions(port=0))
    async with Broker(config, extensions=[Chart()]) as broker:
        assert broker.gateway is not None
        async with httpx.AsyncClient(base_url=broker.gateway.urls[0]) as http:
            page = await http.get("/ui/x/chart")
            assert page.status_code == 200
            assert "<h1>A &lt; B</h1>\n<svg></svg>" in page.text
            assert "default-src 'self'" in page.headers["content-security-policy"]
            assert '<a href="/ui/x/chart">A &lt; B</a>' in (await http.get("/ui/clients")).text
            assert (await http.get("/ui/x/broken")).status_code == 500
            assert (await http.get("/ui/x/none")).status_code == 404


async def test_an_extension_with_pages_runs_without_a_gateway() -> None:
    async with Broker(port=0, extensions=[Chart()]) as broker:
        assert broker.gateway is None
