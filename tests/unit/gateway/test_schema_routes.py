"""The schema registry over HTTP: what a path means, who may change something, and Confluent's own client."""

import asyncio
from pathlib import Path

import pytest

from mqttlite.gateway.caller import Role
from mqttlite.security.topic_policies import TopicPolicyOptions
from tests.support.gateway import GatewayUnderTest, running_gateway

CLOSED = '{"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": false}'
WIDER = '{"type": "object", "properties": {"a": {"type": "string"}, "b": {}}, "additionalProperties": false}'
OTHER = '{"type": "array"}'
V1 = {"schemaType": "JSON", "schema": CLOSED}


@pytest.mark.long
async def test_the_life_of_a_schema(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.ADMIN)
    answer = await client.post("/registry/subjects/a%2Fb/versions", json=V1)
    assert (answer.status_code, answer.json()["id"]) == (200, 1)
    assert answer.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    assert (await client.get("/registry/subjects/a%2Fb/versions/latest")).json()["version"] == 1
    assert (await client.get("/registry/subjects")).json() == ["a/b"]
    assert (await client.get("/registry/schemas/ids/1")).json() == V1
    missing = await client.get("/registry/subjects/no/versions")
    assert (missing.status_code, missing.json()["error_code"]) == (404, 40401)
    broken = await client.post("/registry/subjects/a%2Fb/versions", json={"schemaType": "JSON", "schema": OTHER})
    assert (broken.status_code, broken.json()["error_code"]) == (409, 409)
    assert (await client.delete("/registry/subjects/a%2Fb")).json() == [1]
    assert (await client.get("/registry/")).json() == {}


@pytest.mark.parametrize("path", ["s/versions", "s/versions/", "/s/versions", "s%2Fversions/versions", "s//versions"])
async def test_no_path_lets_a_viewer_change_something(gateway: GatewayUnderTest, path: str) -> None:
    await gateway.client(Role.VIEWER).post(f"/registry/subjects/{path}", json=V1)
    assert gateway.broker.schemas.registry.subjects == {}


@pytest.mark.long
async def test_a_viewer_looks_up_and_compares(gateway: GatewayUnderTest) -> None:
    await gateway.client(Role.ADMIN).post("/registry/subjects/s/versions", json=V1)
    viewer = gateway.client(Role.VIEWER)
    assert (await viewer.post("/registry/subjects/s", json=V1)).json()["version"] == 1
    compared = await viewer.post("/registry/compatibility/subjects/s/versions/1", json=V1)
    assert compared.json() == {"is_compatible": True}


@pytest.mark.long
async def test_messages_published_over_http_are_checked(tmp_path: Path) -> None:
    policies = (TopicPolicyOptions(prefix="orders", schema="orders"),)
    async with running_gateway(tmp_path, topic_policies=policies) as gateway:
        client = gateway.client(Role.ADMIN)
        early = await client.put("/topics/orders/1", json={"a": "x"})
        assert (early.status_code, early.json()["code"]) == (422, "policy_refuses")
        assert "which is not registered" in early.json()["detail"]
        await client.post("/registry/subjects/orders/versions", json=V1)
        wrong = await client.put("/topics/orders/1", json={"a": 1})
        assert (wrong.status_code, wrong.json()["code"]) == (422, "schema_invalid")
        assert wrong.json()["detail"] == '$.a: 1 is not of type "string" (type), by the schema orders:1'
        assert (await client.put("/topics/orders/1", json={"a": "x"})).is_success


def with_confluents_client(url: str, key: str) -> None:
    """What a program does that uses `confluent-kafka`, and nothing but the address is other."""
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
    from confluent_kafka.schema_registry.error import SchemaRegistryError

    options = {
        "url": url,
        "bearer.auth.credentials.source": "STATIC_TOKEN",
        "bearer.auth.token": key,
        "bearer.auth.logical.cluster": "none",
        "bearer.auth.identity.pool.id": "none",
    }
    with SchemaRegistryClient(options) as client:
        schema = Schema(CLOSED, "JSON")
        schema_id = client.register_schema("orders", schema)
        assert client.get_schema(schema_id).schema_str == CLOSED
        assert client.lookup_schema("orders", schema).version == 1
        assert client.get_latest_version("orders").schema_id == schema_id
        assert client.get_version("orders", 1).subject == "orders"
        assert client.get_versions("orders") == [1]
        assert client.get_subjects() == ["orders"]
        assert client.test_compatibility("orders", Schema(WIDER, "JSON"))
        assert not client.test_compatibility("orders", Schema(OTHER, "JSON"))
        with pytest.raises(SchemaRegistryError) as caught:
            client.register_schema("orders", Schema(OTHER, "JSON"))
        assert caught.value.error_code == 409
        client.set_compatibility(subject_name="orders", level="FULL")
        assert client.get_compatibility(subject_name="orders") == "FULL"
        with pytest.raises(SchemaRegistryError) as caught:
            client.get_latest_version("nothing")
        assert caught.value.error_code == 40401
        avro = Schema('{"type": "record", "name": "P", "fields": []}', "AVRO")
        assert client.get_schema(client.register_schema("points", avro)).schema_type == "AVRO"
        assert client.delete_subject("orders") == [1]
        assert client.delete_subject("orders", permanent=True) == [1]


@pytest.mark.slow
async def test_confluents_client_works_unchanged(gateway: GatewayUnderTest) -> None:
    url = f"http://127.0.0.1:{gateway.gateway.port}/registry"
    await asyncio.to_thread(with_confluents_client, url, gateway.keys[Role.ADMIN])
