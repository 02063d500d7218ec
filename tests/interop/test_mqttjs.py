"""MQTT.js in Node and in a page of a headless Chromium, over WebSocket with and without TLS, beside a device on TCP.

What it does there is in js/exercise.mjs. Invariant: the browser has a profile of its own, and ends with the test.
"""

import asyncio
import contextlib
import http.server
import json
import os
import queue
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from mqttlite import Broker, Config, ListenerOptions, TlsOptions
from mqttlite.net.upgrade import WebSocketOptions
from mqttlite.wire.packets import Ack, Publish
from tests.interop.support import JS, tool
from tests.support.device import Device, until
from tests.support.inside import core_of

pytestmark = pytest.mark.slow

BROWSER_S: Final = 90.0
"""A browser that starts for the first time on a busy machine takes its time."""

BURST: Final = 300
VERSIONS: Final = pytest.mark.parametrize("version", [4, 5])

FLAGS: Final = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Site:
    """A web site of four files, which keeps what pages post to it."""

    def __init__(self, mqttjs: Path) -> None:
        files = {
            "/page.html": (JS / "page.html", "text/html"),
            "/exercise.mjs": (JS / "exercise.mjs", "text/javascript"),
            "/mqtt.min.js": (mqttjs / "dist" / "mqtt.min.js", "text/javascript"),
        }
        results: queue.Queue[Any] = queue.Queue()

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                path, kind = files[self.path.partition("?")[0]]
                self.answer(path.read_bytes(), kind)

            def do_POST(self) -> None:
                results.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.answer(b"", "text/plain")

            def answer(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: object) -> None:
                pass

        self.results: Final = results
        self.server: Final = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin: Final = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def site(mqttjs: Path) -> Iterator[Site]:
    site = Site(mqttjs)
    thread = threading.Thread(target=site.server.serve_forever, name="site")
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


@contextlib.asynccontextmanager
async def serving(*more: ListenerOptions) -> AsyncIterator[Broker]:
    async with Broker(Config(listeners=(ListenerOptions(port=0), *more))) as broker:
        yield broker


async def partner(port: int) -> Device:
    """A device that hears what MQTT.js publishes."""
    device = await Device.dial(port)
    await device.connect("partner")
    await device.subscribe("from/js/#", qos=1)
    return device


async def converse(device: Device) -> list[Publish]:
    """What MQTT.js publishes until it is done, and then the answers to it."""
    heard: list[Publish] = []
    async with asyncio.timeout(BROWSER_S):
        while not heard or heard[-1].topic != b"from/js/last":
            try:
                heard.append(await device.expect(Publish))
            except TimeoutError:  # a browser takes longer to start than a device has patience
                continue
            if heard[-1].qos:
                device.send(Ack(4, heard[-1].packet_id))
    device.publish("to/js/all", bytes(range(256)))
    await device.published("to/js/large", b"y" * 100_000, qos=1)
    packet_id = device.publish("to/js/last", qos=2)
    await device.expect(Ack)
    device.send(Ack(6, packet_id))
    return heard


def check(result: dict[str, Any], heard: list[Publish]) -> None:
    """Both sides got what the other sent."""
    assert "error" not in result, result
    assert result["granted"] == [2]
    assert [(each["topic"], each["qos"], bytes(each["payload"])) for each in result["received"]] == [
        ("to/js/all", 0, bytes(range(256))),
        ("to/js/large", 1, b"y" * 100_000),
        ("to/js/last", 2, b""),
    ]
    said = [(each.topic.decode(), each.qos, each.payload.decode()) for each in heard]
    assert said[:3] == [(f"from/js/{qos}", min(qos, 1), f"grüße {qos}") for qos in range(3)]
    assert said[3:-1] == [("from/js/burst", 1, "x" * 5_000)] * BURST


# ── Node ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def in_node(*arguments: str) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        *(tool("node", package="nodejs"), str(JS / "node.mjs"), *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(BROWSER_S):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    result: dict[str, Any] = json.loads(out)
    return result


@VERSIONS
async def test_mqtt_js_in_node_publishes_and_subscribes_over_websocket(mqttjs: Path, version: int) -> None:
    async with serving(ListenerOptions(port=0, websocket=True)) as broker:
        device = await partner(broker.port)
        heard, result = await asyncio.gather(
            converse(device), in_node(f"ws://127.0.0.1:{broker.listeners[1].port}/mqtt", str(version))
        )
        check(result, heard)
        await device.close()


async def test_mqtt_js_in_node_publishes_and_subscribes_over_tls(mqttjs: Path, certificate_files: Path) -> None:
    tls = TlsOptions(str(certificate_files / "server.crt"), str(certificate_files / "server.key"))
    async with serving(ListenerOptions(port=0, tls=tls, websocket=True)) as broker:
        url = f"wss://localhost:{broker.listeners[1].port}/mqtt"
        device = await partner(broker.port)
        heard, result = await asyncio.gather(converse(device), in_node(url, "5", str(certificate_files / "ca.crt")))
        check(result, heard)
        await device.close()


# ── Chromium ───────────────────────────────────────────────────────────────────────────────────────────────────────


@contextlib.asynccontextmanager
async def browsing(url: str, profile: Path) -> AsyncIterator[None]:
    """A browser that shows a page, while inside."""
    chromium = tool("chromium", "chromium-browser", "google-chrome", package="chromium")
    process = await asyncio.create_subprocess_exec(
        *(chromium, *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def in_page(site: Site, port: int, version: int, profile: Path) -> dict[str, Any]:
    url = f"{site.origin}/page.html?url=ws://127.0.0.1:{port}/mqtt&version={version}"
    async with browsing(url, profile):
        result: dict[str, Any] = await asyncio.to_thread(site.results.get, timeout=BROWSER_S)
    return result


@VERSIONS
async def test_mqtt_js_in_a_page_publishes_and_subscribes(site: Site, tmp_path: Path, version: int) -> None:
    web = WebSocketOptions(origins=(site.origin,))
    async with serving(ListenerOptions(port=0, websocket=web)) as broker:
        device = await partner(broker.port)
        heard, result = await asyncio.gather(
            converse(device), in_page(site, broker.listeners[1].port, version, tmp_path / "profile")
        )
        check(result, heard)
        await until(lambda: len(core_of(broker).connections) == 1)  # the page has left, the partner has not
        await device.close()


async def test_a_page_whose_origin_is_not_listed_gets_nowhere(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(
        ListenerOptions(port=0, websocket=WebSocketOptions(origins=("https://other.example",)))
    ) as broker:
        result = await in_page(site, broker.listeners[1].port, 5, tmp_path / "profile")
        assert "closed before it was connected" in result["error"]
        assert any(f"403: Pages of {site.origin} may not connect" in line for line in caplog.messages)
        assert not core_of(broker).connections
