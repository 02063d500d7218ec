"""The EventSource and the WebSocket of a browser, as a page of the gateway's origin uses them."""

import asyncio
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.browser import Browser, Page
from tests.support.gateway import running_gateway

pytestmark = pytest.mark.slow

LISTEN: Final = """
window.seen = [];
fetch("/events", { method: "POST", body: JSON.stringify({ filters: ["a/+"], client_id: "page" }) })
  .then((answer) => answer.json())
  .then(({ url }) => new Promise((resolve) => {
    const events = new EventSource(url);
    events.onmessage = (event) => seen.push(JSON.parse(event.data).payload);
    events.addEventListener("gap", () => seen.push("gap"));
    events.onopen = () => resolve(true);
  }))
"""

TALK: Final = """
new Promise((resolve) => {
  const socket = new WebSocket("ws://" + location.host + "/ws/subscribe");
  const said = [];
  socket.onopen = () => socket.send('{"type":"subscribe","topic":"b"}');
  socket.onmessage = (message) => {
    const event = JSON.parse(message.data);
    said.push(event.type);
    if (event.type == "subscribed") socket.send('{"type":"publish","topic":"b","payload":[1]}');
    if (said.length == 3) resolve(said.sort());
  };
})
"""


async def seen(page: Page, count: int) -> list[Any]:
    """What the page saw, once it is so much."""
    async with asyncio.timeout(60):
        while len(found := await page.find("seen")) < count:
            await asyncio.sleep(0.05)
    assert isinstance(found, list)
    return found


async def test_a_page_gets_each_event_once_although_it_is_cut_off(browser: Browser, tmp_path: Path) -> None:
    async with running_gateway(tmp_path / "data") as gateway:
        address = f"http://127.0.0.1:{gateway.gateway.port}/api/v1/me"
        async with browser.showing(address, is_offline=False) as page:
            assert await page.find(LISTEN)
            for number in range(6):
                await gateway.broker.publish("a/x", str(number).encode(), qos=1)
                if number in (1, 3):
                    await seen(page, number + 1)
                    gateway.broker.admin.kick("page")
            assert await seen(page, 6) == list(range(6))
            assert await page.find(TALK) == ["message", "published", "subscribed"]
