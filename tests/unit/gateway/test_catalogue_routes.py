"""The catalogue over HTTP: pages, and the AsyncAPI document."""

from pathlib import Path

import pytest

from mqttlite.gateway.caller import Role
from mqttlite.security.topic_policies import TopicPolicyOptions
from tests.support.gateway import running_gateway


@pytest.mark.slow
async def test_the_catalogue_comes_in_pages_and_as_asyncapi(tmp_path: Path) -> None:
    policies = (
        TopicPolicyOptions(prefix="orders", schema="orders", description="Orders"),
        TopicPolicyOptions(prefix="plant", owner="ann"),
    )
    async with running_gateway(tmp_path, topic_policies=policies) as gateway:
        client = gateway.client(Role.ADMIN)
        topic = {"name": "news", "description": "News", "schema": "orders:1"}
        made = await client.post("/api/v1/topics", json=topic)
        assert (made.status_code, made.json()["schema"]) == (201, "orders:1")
        refused = await client.put("/topics/news", json=[])
        assert (refused.status_code, refused.json()["code"]) == (422, "policy_refuses")
        schema = {"schemaType": "JSON", "schema": '{"type": "object"}'}
        await client.post("/registry/subjects/orders/versions", json=schema)
        refused = await client.put("/topics/news", json=[])
        assert (refused.status_code, refused.json()["code"]) == (422, "schema_invalid")
        first = (await client.get("/api/v1/catalogue?limit=2")).json()
        assert [each["topics"] for each in first["items"]] == ["news", "orders/#"]
        in_use = {"subject": "orders", "version": 1, "id": 1, "type": "JSON"}
        assert [each["schema_in_use"] for each in first["items"]] == [in_use, in_use]
        assert (first["items"][0]["topic_id"], first["items"][0]["schema"]) == (made.json()["topic_id"], "orders:1")
        second = (await client.get(f"/api/v1/catalogue?cursor={first['cursor']}")).json()
        assert ([each["owner"] for each in second["items"]], second["cursor"]) == (["ann"], None)
        answer = await client.get("/api/v1/asyncapi.json")
        described = (await client.get("/openapi.json")).json()["paths"]["/api/v1/asyncapi.json"]["get"]["responses"]
        assert list(described["200"]["content"]) == [answer.headers["content-type"]]
        assert answer.headers["content-type"].startswith("application/vnd.aai.asyncapi+json")
        assert list(answer.json()["channels"]) == ["news", "orders-all", "plant-all"]
