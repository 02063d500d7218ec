"""The dashboard as a person uses it, in a browser that reaches the broker and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pytest

from mqttlite import Client
from mqttlite.core.limits import Limits
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.gateway.caller import Role
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from tests.support.axe import axe_core, violations
from tests.support.browser import Browser, Page
from tests.support.gateway import GatewayUnderTest, running_gateway
from tests.support.prefix_proxy import proxy_below
from tests.support.rounds import todays

pytestmark = pytest.mark.slow

HOSTILE: Final = "<img src=x onerror=\"document.title='hacked'\">"

VIEWS: Final = (
    "/",
    "/ui/clients",
    "/ui/clients?by=bytes",
    f"/ui/client?id={quote(HOSTILE, safe='')}",
    "/ui/topics",
    "/ui/topics?below=plant",
    "/ui/topic?name=plant/1",
    "/ui/topic?name=plant/1&form=hex&user=ann",
    "/ui/console?topic=plant/1",
    "/ui/trace",
    "/ui/trace?filter=plant/%23",
    "/ui/queues",
    "/ui/streams",
    "/ui/bridges",
    "/ui/queue?name=jobs",
    "/ui/queue/dead-letter?name=jobs&number=1",
    "/ui/catalogue",
    "/ui/schema?subject=rooms",
    "/ui/bans",
    "/ui/access",
    "/ui/access?topic=plant/1&user=ann",
    "/ui/listeners",
    "/ui/login",
    "/docs",
    "/ui/client?id=nobody",
)

WAIT_S: Final = 20.0


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[GatewayUnderTest]:
    policies = (
        TopicPolicyOptions(prefix="plant", owner="ann"),
        TopicPolicyOptions(prefix="rooms", owner="ann", schema="rooms", description=HOSTILE),
    )
    http = {"anonymous_role": "admin"}
    data = tmp_path / "data"
    queue = QueueOptions(name="jobs", filters=("work/#",), max_attempts=1, retry=RetryOptions(min_s=0, max_s=0))
    async with running_gateway(
        data,
        http=http,
        topic_policies=policies,
        delivery_log=DeliveryLogOptions(),
        queues=(queue,),
        limits=Limits(max_queued_messages=3),
    ) as under_test:
        await _fill(under_test)
        yield under_test


async def _fill(gateway: GatewayUnderTest) -> None:
    """A dead letter, a message that waits, a schema and a ban."""
    broker, admin = gateway.broker, gateway.client(Role.ADMIN)
    for _ in range(2):
        await broker.publish(f"work/{HOSTILE}", HOSTILE.encode(), qos=1)
    broker.queues.nack("jobs", [each.ack_id for each in broker.queues.pull("jobs", 1)])
    await broker.commit()
    await admin.post("/registry/subjects/rooms/versions", json={"schemaType": "JSON", "schema": "{}"})
    await admin.post("/api/v1/bans", json={"kind": "user", "value": HOSTILE, "duration_s": 60, "reason": HOSTILE})


@pytest.fixture
async def device(gateway: GatewayUnderTest) -> AsyncIterator[Client]:
    """A device that publishes, with a name that wants to be a script."""
    async with Client("127.0.0.1", gateway.broker.port, client_id=HOSTILE) as client:
        await client.subscribe("commands/#", qos=1)
        await client.publish("plant/1", '{"on":true}', qos=1, retain=True)
        await client.publish(f"{HOSTILE}/1", HOSTILE, qos=1, retain=True)

        async def publish() -> None:
            number = 0
            while True:
                number += 1
                await client.publish("plant/2", f"value {number} {HOSTILE}", qos=1)
                await client.publish(f"office/{HOSTILE}", HOSTILE, qos=1)
                await asyncio.sleep(0.05)

        publishing = asyncio.create_task(publish())
        yield client
        publishing.cancel()
        await asyncio.wait([publishing])


async def until(page: Page, script: str) -> Any:
    """Wait until an expression in the page is true; its value."""
    async with asyncio.timeout(WAIT_S):
        while not (found := await page.find(script)):
            await asyncio.sleep(0.1)
    return found


async def test_each_view_is_accessible_in_light_and_dark_and_fits_a_phone(
    gateway: GatewayUnderTest, device: Client, browser: Browser
) -> None:
    base = gateway.gateway.urls[0]
    axe = axe_core()
    wrong: list[str] = []
    async with browser.showing(f"{base}/", is_offline=False) as page:
        for view in todays(VIEWS, 3):
            await page.go(base + view)
            await page.find(f"{axe};0")
            await page.find("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
            for scheme in ("light", "dark"):
                await page.prefer(scheme)
                wrong += [f"{view} ({scheme}): {each}" for each in await violations(page)]
            await page.resize(360, 800)
            width = await page.find("document.documentElement.scrollWidth")
            if width > 360:
                wrong.append(f"{view} is {width} wide")
            await page.resize(1280, 2000)
            if await page.find("document.querySelectorAll('main img').length"):
                wrong.append(f"{view} has an image")
            assert await page.find("document.title") != "hacked"
    assert wrong == [], "\n".join(wrong)
    expected = "/ui/client?id=nobody"  # a status of 404 is an error to the browser
    assert [each for each in page.errors if expected not in each] == []
    assert {urlsplit(each).netloc for each in page.requests} == {urlsplit(base).netloc}


async def test_the_overview_is_live_and_its_stream_ends_with_it(
    gateway: GatewayUnderTest, device: Client, browser: Browser
) -> None:
    async with browser.showing(gateway.gateway.urls[0] + "/", is_offline=False) as page:
        await until(
            page, "document.querySelector('[data-spark] polyline')?.getAttribute('points').split(' ').length > 2"
        )
        await until(page, "+document.querySelector('[data-live=\"rates.messages_received\"]').textContent > 1")
        assert await page.find("document.querySelector('[data-top=bytes] td a').textContent") == HOSTILE
        assert await page.find("document.getElementById('live-state').textContent") == "Live"
        await page.press("Tab")
        assert await page.find("document.activeElement.className") == "skip"
        assert await page.find("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    async with asyncio.timeout(WAIT_S):
        while gateway.gateway.server.open:
            await asyncio.sleep(0.1)
    assert page.errors == []


async def test_topics_show_values_as_they_come(gateway: GatewayUnderTest, device: Client, browser: Browser) -> None:
    base = gateway.gateway.urls[0]
    async with browser.showing(f"{base}/ui/topics?below=plant", is_offline=False) as page:
        line = "document.querySelector('[data-level=\"2\"]')"  # nothing is retained there
        await until(page, f"{line}?.querySelector('.value').textContent.startsWith('value ')")
        await until(page, f"+{line}.querySelector('.rate').textContent > 1")
        await page.go(f"{base}/ui/topics")
        await until(page, "document.querySelector('[data-level=office]')?.cells[0].textContent === 'office/'")
        await page.go(f"{base}/ui/topics?below=office")
        await until(page, "document.querySelector('#tree .value')?.textContent.startsWith('<img')")
        await page.go(f"{base}/ui/topic?name=plant/2")
        await until(page, "document.getElementById('last').textContent.startsWith('value ')")
        assert await page.find("document.querySelectorAll('main img').length") == 0
    assert page.errors == []


async def test_the_console_publishes_and_subscribes(
    gateway: GatewayUnderTest, device: Client, browser: Browser
) -> None:
    base = gateway.gateway.urls[0]
    fill = "(place, text) => { document.querySelector(place).value = text; }"
    async with browser.showing(f"{base}/ui/console", is_offline=False) as page:
        await page.find(f"({fill})('#subscribe-form input', 'commands/#')")
        await page.find("document.querySelector('#subscribe-form button').click()")
        await until(page, "document.getElementById('subscribed').textContent.startsWith('Subscribed')")
        await page.find(f"({fill})('#publish input[name=topic]', 'commands/a b/é')")
        await page.find(f"({fill})('#publish textarea', '{{\"rpm\": 21.50}}')")
        await page.find("document.querySelector('#publish button').click()")
        await until(
            page, "document.getElementById('outcome').textContent === 'Delivered to 2 receivers, queued for 0.'"
        )
        await until(page, "document.querySelector('#messages pre')?.textContent === '{\"rpm\": 21.50}'")
        assert await page.find("document.querySelector('#messages .head span').textContent") == "commands/a b/é"
        await page.find(f"({fill})('#publish input[name=topic]', 'a/#')")
        await page.find("document.querySelector('#publish button').click()")
        await until(page, "document.querySelectorAll('#outcome.notice.bad').length")
        await page.find("document.getElementById('stop').click()")
        await until(page, "document.getElementById('subscribed').textContent === 'Not subscribed.'")


async def test_a_stranger_finds_who_loses_messages_why_and_what_a_topic_holds(
    gateway: GatewayUnderTest, browser: Browser
) -> None:
    async with Client("127.0.0.1", gateway.broker.port, client_id="archive", session_expiry_interval=60) as away:
        await away.subscribe("meters/#", qos=1)
    for number in range(5):
        await gateway.broker.publish("meters/7", f"{number} kWh".encode(), qos=1, retain=True)
    shown = "document.querySelector('main').innerText"
    async with browser.showing(gateway.gateway.urls[0] + "/", is_offline=False) as page:
        await until(page, "document.querySelector('[data-top=drops] td a')?.textContent === 'archive'")
        await page.click("[data-top=drops] td a")
        text = await page.find(shown)
        assert "queue_full" in text
        assert "See limits.max_queued_messages" in text
        await page.click("nav [href='/ui/topics']")
        await page.click("[data-level=meters] a")
        await until(page, "document.querySelector('#tree .value')?.textContent === '4 kWh'")
        await page.click("[data-level='7'] a")
        text = await page.find(shown)
        assert "archive" in text
        assert "anonymous, and users without rules of their own" in text
    assert page.errors == []


async def test_a_trace_lists_outcomes(gateway: GatewayUnderTest, device: Client, browser: Browser) -> None:
    address = f"{gateway.gateway.urls[0]}/ui/trace?filter=plant/2"
    async with browser.showing(address, is_offline=False) as page:
        await until(page, "document.getElementById('lines').textContent.includes('reached nobody')")
        assert await page.find("document.querySelectorAll('main img').length") == 0
    assert page.errors == []


async def test_somebody_logs_in_disconnects_a_client_and_logs_out(
    gateway: GatewayUnderTest, device: Client, browser: Browser
) -> None:
    base = gateway.gateway.urls[0]
    async with Client("127.0.0.1", gateway.broker.port, client_id="pump", session_expiry_interval=60) as pump:
        await pump.subscribe("commands/#", qos=1)
    target = "/ui/client?id=pump"
    async with browser.showing(f"{base}/ui/login?target={quote(target)}", is_offline=False) as page:
        key = gateway.keys[Role.OPERATOR]
        await page.find(f"document.querySelector('[name=key]').value = '{key}'")
        await page.click("form .primary")
        assert await page.find("document.querySelector('.who').innerText.startsWith('key-operator')")
        assert await page.find("document.cookie") == ""
        await page.find("document.querySelector('[action=\"/ui/client/end-session\"]').closest('details').open = true")
        await page.click("[action='/ui/client/end-session'] button")
        assert "The session was ended." in await page.find("document.body.innerText")
        await page.click("[action='/ui/logout'] button")
        assert await page.find("location.pathname") == "/ui/login"
    assert page.errors == []


async def test_an_admin_makes_a_key_looks_who_is_banned_and_replays_a_dead_letter(
    gateway: GatewayUnderTest, device: Client, browser: Browser
) -> None:
    base = gateway.gateway.urls[0]
    async with browser.showing(f"{base}/ui/access", is_offline=False) as page:
        await page.find("document.querySelector('[action=\"/ui/access/keys\"]').closest('details').open = true")
        await page.click("[action='/ui/access/keys'] button")
        key = await page.find("document.querySelector('pre').innerText")
        assert key.startswith("mqk_")
        holder = gateway.client(key=key)
        key_id = (await holder.get("/api/v1/me")).json()["how"].removeprefix("key ")
        await page.go(f"{base}/ui/access")
        row = f"form:has([value='{key_id}'])"
        await page.find(f"document.querySelector(\"{row}\").closest('details').open = true")
        await page.click(f"{row} button")
        async with asyncio.timeout(WAIT_S):
            while (await holder.get("/api/v1/me")).status_code != 401:
                await asyncio.sleep(0.1)
        await page.go(f"{base}/ui/queues")
        await until(page, "document.querySelector('#queues td.number').textContent === '1'")
        await gateway.broker.publish("work/2", b"2", qos=1)
        await until(page, "document.querySelector('#queues td.number').textContent === '2'")
        await page.go(f"{base}/ui/queue?name=jobs")
        await page.click("[action='/ui/queue/dead-letters/replay'] button")
        await until(page, "document.querySelector('[data-live=depth]').textContent === '3'")
        await page.go(f"{base}/ui/bans")
        await page.click("[action='/ui/bans/lift'] button")
        assert "Nobody is banned." in await page.find("document.body.innerText")
    assert page.errors == []


async def test_the_dashboard_works_below_the_path_of_a_proxy(browser: Browser, tmp_path: Path) -> None:
    http = {"anonymous_role": "viewer", "trusted_proxies": ("127.0.0.1",)}
    prefix = "/api/hassio_ingress/Zx-_9"
    async with (
        running_gateway(tmp_path / "data", http=http) as gateway,
        proxy_below(prefix, gateway.gateway.port, headers={"X-Ingress-Path": prefix}) as base,
        Client("127.0.0.1", gateway.broker.port, client_id="pump") as pump,
    ):
        await pump.publish("plant/1", "21", qos=1, retain=True)
        async with browser.showing(f"{base}/", is_offline=False) as page:
            await until(page, "document.getElementById('live-state').textContent === 'Live'")
            await page.click(f"nav [href='{prefix}/ui/topics']")
            await page.click("[data-level=plant] a")
            await until(page, "document.querySelector('#tree .value')?.textContent === '21'")
            async with asyncio.timeout(WAIT_S):  # the stream of the page tells what comes after its beginning
                while not await page.find("!!document.querySelector('[data-level=\"2\"] .value a')"):
                    await pump.publish("plant/2", "22", qos=1)
                    await asyncio.sleep(0.1)
            await page.click("[data-level='2'] .value a")
            assert await page.find("location.pathname") == f"{prefix}/ui/topic"
            await page.go(f"{base}/ui/console")
            await page.find("document.querySelector('#subscribe-form input').value = 'a'")
            await page.find("document.querySelector('#subscribe-form button').click()")
            await until(page, "document.getElementById('subscribed').textContent.startsWith('Subscribed')")
            await page.find("document.querySelector('#publish input[name=topic]').value = 'a'")
            await page.find("document.querySelector('#publish button').click()")
            await until(page, "document.querySelectorAll('#messages .head').length")
            await page.click(f"[href^='{prefix}/ui/login']")
            await page.find(f"document.querySelector('[name=key]').value = '{gateway.keys[Role.OPERATOR]}'")
            await page.click("form .primary")
            assert await page.find("document.querySelector('.who').innerText.startsWith('key-operator')")
            await page.click(f"[action='{prefix}/ui/logout'] button")
            assert await page.find("location.pathname") == f"{prefix}/ui/login"
    assert page.errors == []
    assert all(urlsplit(each).path.startswith(f"{prefix}/") for each in page.requests)
