"""The pages of the how-to for web pages, as they are written there, on a site of their own."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mqttlite import Client
from tests.support.browser import Browser, Page
from tests.support.documents import ALL_BLOCKS
from tests.support.gateway import running_gateway

pytestmark = pytest.mark.slow

PAGES = [block.text for block in ALL_BLOCKS if block.page.endswith("howto/web-page.md") and block.language == "html"]


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # as it is called there
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and where it is served."""
    folder = tmp_path / "site"
    folder.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


async def until(page: Page, script: str) -> None:
    async with asyncio.timeout(60):
        while not await page.find(script):
            await asyncio.sleep(0.05)


async def test_the_pages_of_the_how_to_work_as_written(
    browser: Browser, tmp_path: Path, site: tuple[Path, str]
) -> None:
    folder, origin = site
    listens, talks = PAGES
    async with running_gateway(tmp_path / "data", http={"allowed_origins": (origin,)}) as gateway:
        place = f"127.0.0.1:{gateway.gateway.port}"
        (folder / "index.html").write_text(listens.replace("localhost:8080", place))
        (folder / "chat.html").write_text(talks.replace("localhost:8080", place))
        async with (
            Client("127.0.0.1", gateway.broker.port) as client,
            browser.showing(f"{origin}/", is_offline=False) as page,
        ):
            await client.publish("home/kitchen/temperature", "21.5", retain=True, qos=1)
            await until(page, "document.getElementById('temperature').textContent === '21.5'")
            await page.find("document.getElementById('on').click()")
            await until(page, "document.getElementById('answer').textContent === 'not delivered: no_subscribers'")
            await client.subscribe("home/kitchen/light")
            await page.find("document.getElementById('on').click()")
            await until(page, "document.getElementById('answer').textContent === 'delivered to 1'")
            await page.go(f"{origin}/chat.html")
            async with asyncio.timeout(60):
                while not gateway.broker._core.has_subscribers(b"chat/page"):
                    await asyncio.sleep(0.05)
            await page.find("document.querySelector('input').value = '<b>hello</b>'")
            await page.find("document.getElementById('say').requestSubmit()")
            await until(page, "document.querySelector('#said li')?.textContent === 'chat/page: <b>hello</b>'")
    assert [each for each in page.errors if "favicon" not in each] == []
