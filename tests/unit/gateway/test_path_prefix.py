"""The gateway below the path of a reverse proxy: what it answers leads back to the proxy, and hostile paths nowhere."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from mqttlite.config.http import OWN_PATHS, HttpOptions
from mqttlite.gateway.caller import Role
from tests.support.gateway import GatewayUnderTest, handshake, nobody_without_credentials, running_gateway

VIEWS = (
    "/",
    "/ui/clients",
    "/ui/client?id=c",
    "/ui/topics",
    "/ui/topic?name=plant/1",
    "/ui/console",
    "/ui/trace?filter=a",
    "/ui/queues",
    "/ui/queue?name=jobs",
    "/ui/catalogue",
    "/ui/bans",
    "/ui/access",
    "/ui/listeners",
    "/ui/login",
    "/ui/none",
    "/docs",
)
ADDRESS = re.compile(r'(?:href|src|action)="([^"]*)"')
SCRIPTS = sorted((Path(__file__).parents[3] / "mqttlite" / "extensions").glob("*/assets/*.js"))

App = Callable[[Any, Any, Any], Awaitable[None]]


def below(
    prefix: str, gateway: GatewayUnderTest, *, strips: bool, header: str = "", key: str = ""
) -> httpx.AsyncClient:
    """A browser whose requests go through a proxy, which serves nothing but what is below the prefix."""
    app: App = gateway.gateway.app  # type: ignore[assignment]

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        assert scope["raw_path"] == prefix.encode() or scope["raw_path"].startswith(f"{prefix}/".encode())
        if strips:
            scope = {**scope, "path": scope["path"][len(prefix) :], "raw_path": scope["raw_path"][len(prefix) :]}
        if header:
            scope["headers"] = [*scope["headers"], (header.encode(), prefix.encode())]
        await app(scope, receive, send)

    transport = httpx.ASGITransport(proxy, client=("10.0.0.5", 50_000))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(transport=transport, base_url=f"https://home.example{prefix}", headers=headers)


PROXIES = [
    ({"root_path": "/mqtt"}, "/mqtt", True, ""),
    ({"root_path": "/mqtt"}, "/mqtt", False, ""),
    ({"trusted_proxies": ("10.0.0.0/8",)}, "/a/b.c", True, "x-forwarded-prefix"),
    ({"trusted_proxies": ("10.0.0.5",), "root_path": "/other"}, "/api/hassio_ingress/Zx-_9", True, "x-ingress-path"),
]


@pytest.mark.long
@pytest.mark.parametrize(("http", "prefix", "strips", "header"), PROXIES)
async def test_every_address_of_every_page_is_below_the_prefix_and_leads_to_something(
    tmp_path: Path, http: dict[str, Any], prefix: str, strips: bool, header: str
) -> None:
    async with running_gateway(tmp_path, http=http) as gateway:
        key = gateway.keys[Role.ADMIN]
        await gateway.client(Role.ADMIN).put("/topics/plant/1?retain=true", content=b"21")
        await gateway.client(Role.ADMIN).put("/api/v1/queues/jobs", json={"filters": ["jobs/#"]})
        async with below(prefix, gateway, strips=strips, header=header, key=key) as browser:
            seen: set[str] = set()
            for view in VIEWS:
                page = await browser.get(view)
                assert page.status_code in (200, 404), view
                is_framed = header == "x-ingress-path"
                assert page.headers["x-frame-options"] == ("SAMEORIGIN" if is_framed else "DENY")
                assert ("frame-ancestors 'self'" in page.headers["content-security-policy"]) == (
                    is_framed and view != "/docs"
                )
                for address in ADDRESS.findall(page.text.replace("&amp;", "&")):
                    if not address.startswith("#"):
                        seen.add(str(page.url.join(address).raw_path.decode()))
            assert len(seen) > 25
            for address in sorted(seen):
                assert address.startswith(f"{prefix}/")
                answer = await browser.request("OPTIONS", address.removeprefix(prefix))
                assert answer.json()["detail"].startswith("this path has the methods"), address
            found = (await browser.get("/openapi.json")).json()
            assert found["servers"] == [{"url": prefix}]
            made = await browser.post("/api/v1/topics", json={"name": "made/topic"})
            assert made.headers["location"].startswith(f"{prefix}/api/v1/topics/")
            told = await browser.post("/events", json={"filters": ["a"], "session_expiry_s": 60})
            assert told.json()["url"].startswith(f"{prefix}/events?ticket=")
            slashed = await browser.get("/api/v1/clients/a%2Fb")
            assert slashed.json()["detail"] == "the client 'a/b' has no session"


@pytest.mark.parametrize(("http", "prefix", "strips", "header"), PROXIES)
async def test_a_browser_logs_in_and_out_below_the_prefix(
    tmp_path: Path, http: dict[str, Any], prefix: str, strips: bool, header: str
) -> None:
    own = {"Origin": "https://home.example"}
    options = nobody_without_credentials(tmp_path)
    async with (
        running_gateway(tmp_path / "data", http=http, **options) as gateway,
        below(prefix, gateway, strips=strips, header=header) as browser,
    ):
        form = await browser.get("/ui/clients?by=bytes")
        assert form.status_code == 401
        [target] = set(re.findall(r'name="target" value="([^"]*)"', form.text))
        fields = {"key": gateway.keys[Role.VIEWER], "target": target}
        done = await browser.post("/ui/login", data=fields, headers=own)
        assert done.headers["location"] == f"{prefix}/ui/clients?by=bytes"
        assert f"; Path={prefix};" in done.headers["set-cookie"]
        assert (await browser.get(done.headers["location"].removeprefix(prefix))).status_code == 200
        gone = await browser.post("/ui/logout", headers=own)
        assert gone.headers["location"] == f"{prefix}/ui/login"
        assert (await browser.get("/ui/clients")).status_code == 401


@pytest.fixture
async def gateway_with_proxy(tmp_path: Path) -> Any:
    async with running_gateway(tmp_path, http={"trusted_proxies": ("10.0.0.5",)}) as under_test:
        yield under_test


HOSTILE = [
    "//evil.example",
    "/a//evil.example",
    "https://evil.example",
    "javascript:alert(1)",
    "/a/../b",
    "/..",
    "/.",
    "/a\n/b",
    "/a\r\nSet-Cookie: a=b",
    '/"><script>',
    "/%2e%2e",
    "/\\evil.example",
    "/a?b",
    "/a#b",
    "/a, /b",
    "a",
    "/é",
    "/" + "a" * 200,
]


@pytest.mark.long
async def test_a_prefix_that_is_no_plain_path_is_refused(gateway_with_proxy: GatewayUnderTest) -> None:
    proxy = gateway_with_proxy.client(Role.ADMIN, peer="10.0.0.5")
    for hostile in HOSTILE:
        for header in (b"X-Forwarded-Prefix", b"X-Ingress-Path"):
            answer = await proxy.get("/ui/login", headers=[(header, hostile.encode())])
            assert (answer.status_code, answer.json()["code"]) == (400, "bad_request"), hostile
            assert "evil" not in answer.text
        with pytest.raises(ValueError, match="root_path"):
            HttpOptions(root_path=hostile)


async def test_headers_of_others_than_trusted_proxies_are_ignored(gateway_with_proxy: GatewayUnderTest) -> None:
    for header in ("X-Forwarded-Prefix", "X-Ingress-Path"):
        stranger = gateway_with_proxy.client(Role.ADMIN, peer="10.0.0.6")
        for value in ("/mqtt", "//evil.example"):
            page = await stranger.get("/", headers={header: value})
            assert page.status_code == 200
            assert value not in page.text
    for value in ("/", ""):
        page = await gateway_with_proxy.client(Role.ADMIN, peer="10.0.0.5").get("/", headers={header: value})
        assert 'href="/ui/clients"' in page.text


@pytest.mark.long
async def test_a_web_socket_is_found_below_the_prefix(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, http={"root_path": "/mqtt"}) as gateway:
        assert await handshake(gateway.gateway.app, "/mqtt/ws/subscribe", {}) == 101
        assert await handshake(gateway.gateway.app, "/ws/subscribe", {}) == 101
        assert await handshake(gateway.gateway.app, "/mqttws/subscribe", {}) == 404


async def test_a_root_path_may_not_begin_as_own_paths_do(gateway_with_proxy: GatewayUnderTest) -> None:
    firsts = {route.path.split("/")[1] for route in gateway_with_proxy.gateway.app.table.routes} - {""}
    assert firsts == OWN_PATHS
    for first in firsts:
        with pytest.raises(ValueError, match="the gateway has paths of its own"):
            HttpOptions(root_path=f"/{first}/x")
    with pytest.raises(ValueError, match="trusted_proxies has 'home'"):
        HttpOptions(trusted_proxies=("home",))


def test_scripts_of_the_dashboard_ask_below_the_prefix() -> None:
    """Each address in a script begins with `root`, or is given to `listen`, which adds it."""
    assert {"dashboard", "queues"} <= {script.parent.parent.name for script in SCRIPTS}
    for script in SCRIPTS:
        for line in script.read_text().splitlines():
            for address in re.findall(r"""["'`](?:\$\{\w+\})?/(?:ui|api|topics|events)[^"'`]*""", line):
                assert address.startswith("`${root}/") or "listen(" in line, f"{script.name}: {line}"
