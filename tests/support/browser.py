"""A headless Chromium without a network, or with no other than this machine. It says what happened in a page: errors,
requests, and what a script finds.

It is asked over Chromium's own debugging protocol. To start it takes more than most tests of a page, so the tests of a
file share one. Invariant: each page has a context of its own, with cookies, storage and a cache that end with it.
"""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final, Self

from websockets.asyncio.client import ClientConnection, connect

from tests.interop.support import tool

START_S: Final = 90.0
"""A browser that starts for the first time on a busy machine takes its time."""

ANSWER_S: Final = 60.0

WIDTH: Final = 1280
HEIGHT: Final = 2000

FLAGS: Final = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--remote-debugging-port=0"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


_KEYS: Final = {"Tab": 9}


class Page:
    """A page that is loaded. `errors` are exceptions, console errors and what the browser complains of."""

    def __init__(self, connection: ClientConnection) -> None:
        self.errors: Final[list[str]] = []
        self.requests: Final[list[str]] = []
        """Every address that was asked for, the page's own included."""
        self._connection: Final = connection
        self._numbers: Final = itertools.count(1)
        self._session: str | None = None
        self._loaded: Final = asyncio.Event()
        self._answers: Final[dict[int, asyncio.Future[dict[str, Any]]]] = {}

    async def load(self, address: str, *, is_offline: bool) -> None:
        """Show a page, without a network if it is offline, and wait until it says that it is loaded."""
        context = (await self._ask("Target.createBrowserContext", disposeOnDetach=True))["browserContextId"]
        target = await self._ask(
            "Target.createTarget", url="about:blank", browserContextId=context, width=WIDTH, height=HEIGHT
        )
        attached = await self._ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self._ask(f"{domain}.enable")
        offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await self._ask("Network.emulateNetworkConditions", offline=is_offline, **offline)
        await self.go(address)

    async def go(self, address: str) -> None:
        """Show another page."""
        self._loaded.clear()  # about:blank has said so
        await self._ask("Page.navigate", url=address)
        await self._wait_until_loaded()

    async def click(self, selector: str) -> None:
        """Click on what leads to another page."""
        self._loaded.clear()
        await self.find(f"document.querySelector({json.dumps(selector)}).click()")
        await self._wait_until_loaded()

    async def press(self, key: str) -> None:
        """Press a key."""
        for kind in ("rawKeyDown", "keyUp"):
            await self._ask("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=_KEYS[key])

    async def prefer(self, scheme: str) -> None:
        """Prefer `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self._ask("Emulation.setEmulatedMedia", features=features)

    async def _wait_until_loaded(self) -> None:
        async with asyncio.timeout(ANSWER_S):
            await self._loaded.wait()

    async def find(self, script: str) -> Any:
        """The value of an expression in the page; of a promise what it is resolved to."""
        found = await self._ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def resize(self, width: int, height: int) -> None:
        """Show it in a window of that size."""
        await self._ask(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
        )

    async def listen(self) -> None:
        """Take what the browser says until cancelled."""
        async for text in self._connection:
            said = json.loads(text)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            else:
                self._note(said["method"], said.get("params", {}))

    def _note(self, method: str, told: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        elif (
            method == "Runtime.exceptionThrown"
            or (method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"))
            or (method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"))
        ):
            self.errors.append(json.dumps(told))

    async def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        question = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            question["sessionId"] = self._session
        await self._connection.send(json.dumps(question))
        async with asyncio.timeout(ANSWER_S):
            answer = await self._answers[number]
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result


class Browser:
    """Ends where its `with` ends."""

    def __init__(self, profile: Path) -> None:
        self._profile: Final = profile
        chromium = tool("chromium", "chromium-browser", "google-chrome", package="chromium")
        quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        self._process: Final = subprocess.Popen(
            [chromium, *FLAGS, f"--user-data-dir={profile}"], start_new_session=True, **quiet
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    @contextlib.asynccontextmanager
    async def showing(self, address: str, *, is_offline: bool = True) -> AsyncIterator[Page]:
        """A page, while inside. It reaches this machine only, or nothing if it is offline."""
        async with connect(await self._debugger(), max_size=None) as connection:
            page = Page(connection)
            listening = asyncio.create_task(page.listen())
            try:
                await page.load(address, is_offline=is_offline)
                yield page
            finally:
                listening.cancel()
                await asyncio.wait([listening])

    async def _debugger(self) -> str:
        """Where the browser listens, which it writes into its profile."""
        place = self._profile / "DevToolsActivePort"
        async with asyncio.timeout(START_S):
            while not (place.exists() and len(lines := place.read_text().split()) == 2):
                await asyncio.sleep(0.05)
        return f"ws://127.0.0.1:{lines[0]}{lines[1]}"
