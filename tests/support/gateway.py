"""A broker with a gateway, and clients of its ASGI application: no socket, but the same authentication and routes."""

from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.gateway.app import HttpApp
from mqttlite.gateway.caller import Role
from mqttlite.operations.surroundings import Surroundings
from mqttlite.security.api_keys import FILE_NAME, KeyRole, add
from mqttlite.server import Broker
from tests.support.device import until

ROLES: tuple[KeyRole, ...] = ("user", "viewer", "operator", "admin")


class GatewayUnderTest:
    """A broker that runs, and callers of its gateway. `keys` has an API key of each role, of a user `key-ROLE`."""

    def __init__(self, broker: Broker, data_dir: Path, keys: dict[Role, str], users: dict[str, str]) -> None:
        self.broker = broker
        self.data_dir = data_dir
        self.keys = keys
        self.users = users
        assert broker.gateway is not None
        self.gateway = broker.gateway
        self._clients: list[httpx.AsyncClient] = []

    def client(
        self, role: Role | None = None, *, key: str | None = None, peer: str = "127.0.0.1", host: str = "localhost"
    ) -> httpx.AsyncClient:
        """A caller with a role, or with a `key` (an API key or token), or without credentials."""
        transport = httpx.ASGITransport(self.gateway.app, client=(peer, 50_000))  # type: ignore[arg-type]
        shown = key if role is None else self.keys[role]
        headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
        client = httpx.AsyncClient(transport=transport, base_url=f"http://{host}:8080", headers=headers)
        self._clients.append(client)
        return client

    def user(self, name: str) -> httpx.AsyncClient:
        """A caller with the key of one of the `users`."""
        return self.client(key=self.users[name])

    async def named_stream(self, *filters: str, key: str | None = None, client_id: str = "page") -> str:
        """Make a session for event streams; the path that attaches to it."""
        asked = {"filters": filters, "client_id": client_id, "session_expiry_s": 60}
        answer = await self.client(key=key).post("/events", json=asked)
        answer.raise_for_status()
        return str(answer.json()["url"])

    async def pages_are_told(self) -> None:
        """Wait until the open page that is kept up to date was told what there is now."""
        for _ in range(2):  # the first look may have begun before this call
            before = self._looks()
            await until(lambda before=before: bool(self._looks()) and not before & self._looks())  # type: ignore[misc]

    def _looks(self) -> set[int]:
        """Of the streams of pages, each of which waits for the end until it looks again."""
        return set(map(id, self.gateway.app.stopping._waiters))  # type: ignore[attr-defined]

    async def close(self) -> None:
        for client in self._clients:
            await client.aclose()


@asynccontextmanager
async def running_gateway(
    data_dir: Path,
    *,
    http: dict[str, Any] | None = None,
    users: tuple[str, ...] = (),
    around: Surroundings | None = None,
    **config: Any,
) -> AsyncIterator[GatewayUnderTest]:
    """A broker on ports that the system chooses; each of the `users` has a key with the role `user`."""
    config.setdefault("listeners", (ListenerOptions(port=0),))
    keys = {Role[role.upper()]: add(data_dir / FILE_NAME, role, f"key-{role}", None)[0] for role in ROLES}
    secrets = {name: add(data_dir / FILE_NAME, "user", name, None)[0] for name in users}
    options = Config(http=HttpOptions(**{"port": 0, **(http or {})}), data_dir=str(data_dir), **config)
    unstarted = Broker(options)
    unstarted.surroundings = around
    async with unstarted as broker:
        under_test = GatewayUnderTest(broker, data_dir, keys, secrets)
        try:
            yield under_test
        finally:
            await under_test.close()


def nobody_without_credentials(folder: Path) -> dict[str, Any]:
    """Options of a broker whose callers have to say who they are: a password file without users."""
    path = folder / "users"
    path.write_text("")
    return {"password_file": str(path)}


def routes_of(app: HttpApp) -> set[tuple[str, str]]:
    """The method and path of each route."""
    return {(route.method, route.path) for route in app.table.routes}


async def handshake(app: HttpApp, path: str, headers: Mapping[str, str], peer: str = "127.0.0.1") -> int:
    """The status with which a WebSocket is opened (101) or refused; it is closed at once."""
    events = iter([{"type": "websocket.connect"}, {"type": "websocket.disconnect"}])
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return next(events)

    async def send(message: MutableMapping[str, Any]) -> None:
        statuses.append(101 if message["type"] == "websocket.accept" else message.get("status", 0))

    shown = {**headers, "Host": "localhost"}
    scope = {
        "type": "websocket",
        "path": path,
        "query_string": b"",
        "headers": [(name.lower().encode(), value.encode()) for name, value in shown.items()],
        "client": (peer, 50_000),
        "extensions": {"websocket.http.response": {}},
    }
    await app(scope, receive, send)
    return statuses[0]
