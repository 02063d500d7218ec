"""Libraries of others that subscribe over HTTP: two for Server-Sent Events, and the package ws of Node.

Chromium's EventSource is tried in tests/e2e, and the package websockets in tests/integration.
"""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import sseclient
from httpx_sse import connect_sse

from tests.interop.support import JS
from tests.support.gateway import GatewayUnderTest, running_gateway

pytestmark = pytest.mark.slow


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    async with running_gateway(tmp_path) as under_test:
        yield under_test


def by_httpx_sse(url: str, last: str, count: int) -> Iterator[tuple[str, Any]]:
    headers = {"Last-Event-ID": last} if last else {}
    with httpx.Client(timeout=60) as client, connect_sse(client, "GET", url, headers=headers) as source:
        for event in source.iter_sse():
            if not event.data:  # it takes `retry:` alone for an event, which EventSource does not
                continue
            yield event.id, json.loads(event.data)["payload"]
            count -= 1
            if not count:
                return


def by_sseclient(url: str, last: str, count: int) -> Iterator[tuple[str, Any]]:
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last} if last else {})
    with httpx.Client(timeout=60) as client, client.stream("GET", url, headers=headers) as response:
        for event in sseclient.SSEClient(response.iter_bytes()).events():
            assert event.id is not None
            yield event.id, json.loads(event.data)["payload"]
            count -= 1
            if not count:
                return


@pytest.mark.parametrize("read", [by_httpx_sse, by_sseclient])
async def test_a_library_for_events_reads_a_stream_and_goes_on_after_a_cut(
    gateway: GatewayUnderTest, read: Any
) -> None:
    payloads = ["ä\nb", {"n": 1}, [1, 2], "3", ""]
    await gateway.broker.publish("web/0", b"retained", qos=1, retain=True)
    url = f"http://localhost:{gateway.gateway.port}{await gateway.named_stream('web/#')}"
    first = asyncio.create_task(asyncio.to_thread(lambda: list(read(url, "", 3))))
    while not gateway.broker._assembly.core.online:
        await asyncio.sleep(0.01)
    for payload in payloads:
        await gateway.broker.publish("web/x", payload if isinstance(payload, str) else json.dumps(payload), qos=1)
    found = await first
    assert [payload for _, payload in found] == ["retained", "ä\nb", {"n": 1}]
    again = await asyncio.to_thread(lambda: list(read(url, found[-1][0], 3)))
    assert [payload for _, payload in again] == [[1, 2], 3, ""]


async def test_ws_of_node_subscribes_and_publishes(gateway: GatewayUnderTest, node: str) -> None:
    url = f"ws://localhost:{gateway.gateway.port}/ws/subscribe"
    command = [node, str(JS / "sockets.mjs"), url]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=True)
    by_type = {each["type"]: each for each in json.loads(done.stdout)}
    assert by_type["subscribed"]["id"] == 1
    assert (by_type["published"]["id"], by_type["published"]["delivered_to"]) == (2, 1)
    assert (by_type["message"]["topic"], by_type["message"]["payload"]) == ("web/x", {"n": 1})
