"""A broker that pushes is killed at random moments: each message that it took is pushed, and attempts count."""

import asyncio
import random
from pathlib import Path

import pytest
from aiohttp import web

from mqttlite.extensions.queues.push_target import new_secret
from tests.support.killed import free_port, publish, running

CONFIG = """
[[listeners]]
port = {port}
[push]
allowed_hosts = ["127.0.0.1"]
[[queues]]
name = "jobs"
filters = ["work/#"]
max_attempts = 50
ack_deadline_s = 0.5
allow_short_deadlines = true
retry = {{ min_s = 0, max_s = 0.1 }}
push = {{ url = "http://127.0.0.1:{endpoint}/", secret = "{secret}" }}
"""
MESSAGES = 300
KILLS = 2


class Endpoint:
    """Takes most requests, and fails others in all the ways that there are."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.taken: set[bytes] = set()
        self.ids: dict[str, set[str]] = {}
        self.attempts: dict[str, list[int]] = {}

    async def answer(self, request: web.Request) -> web.Response:
        whole = await request.json()
        message = whole["message"]
        self.ids.setdefault(message["data"], set()).add(request.headers["webhook-id"])
        self.attempts.setdefault(message["data"], []).append(whole["deliveryAttempt"])
        what = self._rng.random()
        if what < 0.05:
            return web.Response(status=503)
        if what < 0.08:
            await asyncio.sleep(0.7)
        elif what < 0.1 and request.transport is not None:
            request.transport.abort()
        self.taken.add(message["data"])
        return web.Response(status=204)


@pytest.mark.slow
async def test_each_message_that_was_acknowledged_is_pushed_whatever_kills_the_broker(tmp_path: Path) -> None:
    rng = random.Random(7)
    endpoint = Endpoint(random.Random(rng.random()))
    app = web.Application()
    app.router.add_post("/", endpoint.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port, acknowledged = free_port(), set[str]()
    config = CONFIG.format(port=port, endpoint=runner.addresses[0][1], secret=new_secret())
    publisher = asyncio.create_task(publish(port, MESSAGES, acknowledged, pause_s=0.01))  # still there after the kills
    for _ in range(KILLS):
        async with running(tmp_path, config):
            await asyncio.sleep(1.0 + rng.random())
    async with running(tmp_path, config):
        await publisher
        async with asyncio.timeout(60):
            while len(endpoint.taken) < MESSAGES:
                await asyncio.sleep(0.05)
        await asyncio.sleep(1.5)  # the acknowledgements are on disk, and nothing comes again
        settled = {key: len(attempts) for key, attempts in endpoint.attempts.items()}
    async with running(tmp_path, config):
        await asyncio.sleep(2.0)
    await runner.cleanup()
    assert len(acknowledged) == MESSAGES
    assert {key: len(attempts) for key, attempts in endpoint.attempts.items()} == settled
    # A message that the publisher sent again, for it saw no acknowledgement, is another one.
    assert all(
        attempts == sorted(set(attempts)) for key, attempts in endpoint.attempts.items() if len(endpoint.ids[key]) == 1
    )
    assert max(max(attempts) for attempts in endpoint.attempts.values()) <= 50
