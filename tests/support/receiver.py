"""An endpoint of pushed messages: it keeps the requests, and answers as the path says."""

import asyncio
import base64
import json
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any, Self

from aiohttp import web


@dataclass
class Pushed:
    """A request. `at` is the time of the loop."""

    path: str
    headers: dict[str, str]
    body: bytes
    at: float

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found

    @property
    def payload(self) -> bytes:
        return base64.b64decode(self.json["message"].get("data", ""))


@dataclass
class Receiver:
    """Paths: `/status/N`; `/fail/K/N` answers K requests with the status N and then 204; `/later/N` answers the first
    with N and `Retry-After: 1`, `/later-date/N` with a date; `/hang`, `/reset`, `/garbage`, `/slow-body`, `/huge-body`,
    `/redirect`, `/sleep/SECONDS`; anything else is 204."""

    tls: ssl.SSLContext | None = None
    requests: list[Pushed] = field(default_factory=list)
    connections: int = 0
    released: asyncio.Event = field(default_factory=asyncio.Event)
    """Lets the requests to `/hang` go."""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=64 * 1_048_576)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self.tls).start()
        self.port: int = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self.released.set()
        await self._runner.cleanup()

    def url(self, path: str = "/ok") -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}{path}"

    def of(self, path: str) -> list[Pushed]:
        return [each for each in self.requests if each.path == path]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        path = request.path
        self.requests.append(Pushed(path, dict(request.headers), body, asyncio.get_running_loop().time()))
        _, what, *values = path.split("/")
        match what:
            case "status":
                return web.Response(status=int(values[0]))
            case "fail":
                return web.Response(status=int(values[1]) if len(self.of(path)) <= int(values[0]) else 204)
            case "hang":
                await self.released.wait()
            case "sleep":
                await asyncio.sleep(float(values[0]))
            case "reset" if request.transport is not None:
                request.transport.abort()
            case "garbage" if request.transport is not None:
                request.transport.write(b"\x00\x01\xff" * 100)  # type: ignore[attr-defined]
                request.transport.close()
            case "redirect":
                return web.Response(status=307, headers={"Location": self.url("/redirected")})
            case "later" | "later-date":
                at = format_datetime(datetime.now(UTC) + timedelta(seconds=2), usegmt=True)
                first = len(self.of(path)) == 1
                headers = {"Retry-After": "1" if what == "later" else at}
                return web.Response(status=int(values[0]), headers=headers) if first else web.Response(status=204)
            case "slow-body" | "huge-body":
                response = web.StreamResponse(headers={"Content-Length": "1000000000"})
                await response.prepare(request)
                for _ in range(1_000):
                    await response.write(bytes(1 if what == "slow-body" else 65_536))
                    await asyncio.sleep(0.05 if what == "slow-body" else 0)
                return response
        return web.Response(status=204)
