"""Queues over HTTP: what is answered is what the OpenAPI document describes."""

from pathlib import Path

import pytest

from mqttlite.extensions.queues.options import QueueOptions
from mqttlite.gateway.caller import Role
from tests.support.gateway import running_gateway


@pytest.mark.long
async def test_a_queue_is_shown_with_the_members_that_are_described(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, queues=(QueueOptions(name="jobs", filters=("work/#",)),)) as gateway:
        client = gateway.client(Role.ADMIN)
        schemas = (await client.get("/openapi.json")).json()["components"]["schemas"]
        shown = (await client.get("/api/v1/queues/jobs")).json()
        [listed] = (await client.get("/api/v1/queues")).json()["items"]
    assert shown.keys() == schemas["QueueDetails"]["properties"].keys() - {"push", "push_secret"}
    assert listed.keys() == schemas["QueueState"]["properties"].keys()
    assert shown == {**listed, "options": shown["options"], "oldest_age_s": shown["oldest_age_s"]}
