"""The catalogue, its AsyncAPI document, and the commands that print both from files."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from mqttlite.catalogue.asyncapi import document, servers_of
from mqttlite.catalogue.entries import Entry, SchemaEntry, catalogue
from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.schemas.registry import Registry, Schema
from mqttlite.net.upgrade import WebSocketOptions
from mqttlite.security.tls import TlsOptions
from mqttlite.security.topic_file import save as save_topics
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.security.topic_records import TopicRecord

ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$id": "https://example.com/order",
    "properties": {"next": {"$ref": "#"}, "item": {"$ref": "#/definitions/item"}},
    "definitions": {"item": {"type": "object"}},
}
NEWER = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "string"}
ANCHORED = {"items": {"$ref": "#item"}, "definitions": {"item": {"$id": "#item", "type": "string"}}}
AVRO = {"type": "record", "name": "P", "fields": []}
POLICIES = (
    TopicPolicyOptions(prefix="orders", schema="orders", owner="shop", description="Orders", ttl_s=60),
    TopicPolicyOptions(filter="plant/+/{t}/#", topic_class="ephemeral"),
    TopicPolicyOptions(prefix="archive", schema="orders"),
    TopicPolicyOptions(prefix="late", schema="late:2"),
)
MADE = TopicRecord(topic_id="t-1", name="news", owner="ann", description="News", created_at=0.0)


def registry_of(**schemas: Any) -> Registry:
    registry = Registry()
    for name, tree in schemas.items():
        registry, _ = registry.register(name, Schema("AVRO" if name == "avro" else "JSON", json.dumps(tree)))
    return registry


def described(entries: list[Entry], registry: Registry) -> Any:
    return document(entries, registry, (), title="Shop", version="1")


def payload_of(tree: Any, name: str = "s") -> Any:
    """What the document says of the payloads of a topic with a schema."""
    registry = registry_of(**{name: tree})
    found = described(catalogue((TopicPolicyOptions(prefix="t", schema=name),), (), registry), registry)
    return found["components"]["messages"]["schema-1"]["payload"], found["components"]["schemas"]


def test_an_entry_for_each_policy_and_each_topic_that_somebody_made() -> None:
    entries = catalogue(POLICIES, [MADE], registry_of(orders=ORDER))
    assert [each.topics for each in entries] == ["archive/#", "late/#", "news", "orders/#", "plant/+/{t}/#"]
    archive, late, news, orders, plant = entries
    assert (orders.owner, orders.description, orders.schema, orders.ttl_s) == ("shop", "Orders", "orders", 60)
    assert orders.schema_in_use == SchemaEntry(subject="orders", version=1, id=1, type="JSON")
    assert archive.schema_in_use == orders.schema_in_use
    assert (late.schema, late.schema_in_use) == ("late:2", None)
    assert (news.topic_id, news.owner, news.description, news.schema) == ("t-1", "ann", "News", None)
    assert (plant.topic_class, plant.owner, plant.topic_id) == ("ephemeral", None, None)


def test_a_document_has_a_channel_and_two_operations_for_each_entry() -> None:
    registry = registry_of(orders=ORDER)
    found = described(catalogue(POLICIES, [MADE], registry), registry)
    assert found["asyncapi"] == "3.0.0"
    assert list(found["channels"]) == ["archive-all", "late-all", "news", "orders-all", "plant-any-t-all"]
    orders, plant = found["channels"]["orders-all"], found["channels"]["plant-any-t-all"]
    assert (orders["address"], orders["description"]) == ("orders/{rest}", "Orders")
    assert orders["x-mqttlite"]["owner"] == "shop"
    assert orders["messages"] == {"schema-1": {"$ref": "#/components/messages/schema-1"}}
    assert (plant["address"], list(plant["parameters"])) == ("plant/{level2}/_t_/{rest}", ["level2", "rest"])
    assert plant["x-mqtt-topic-filter"] == "plant/+/{t}/#"
    assert len(found["operations"]) == 10
    publish = found["operations"]["publish-orders-all"]
    assert (publish["action"], publish["channel"]) == ("receive", {"$ref": "#/channels/orders-all"})
    assert publish["bindings"]["mqtt"] == {"qos": 2, "messageExpiryInterval": 60, "bindingVersion": "0.2.0"}
    assert found["operations"]["subscribe-orders-all"]["action"] == "send"
    assert list(found["components"]["messages"]) == ["schema-1", "late-all", "news", "plant-any-t-all"]


def test_a_schema_keeps_its_references_where_it_goes() -> None:
    payload, schemas = payload_of(ORDER)
    assert payload == {"$ref": "#/components/schemas/schema-1"}
    assert schemas["schema-1"] == {
        "properties": {
            "next": {"$ref": "#/components/schemas/schema-1"},
            "item": {"$ref": "#/components/schemas/schema-1/definitions/item"},
        },
        "definitions": {"item": {"type": "object"}},
    }


@pytest.mark.parametrize(
    ("tree", "payload"),
    [
        (True, True),
        (NEWER, {"x-json-schema": json.dumps(NEWER)}),
        (ANCHORED, {"x-json-schema": json.dumps(ANCHORED)}),
        ({"allOf": [ANCHORED]}, {"x-json-schema": json.dumps({"allOf": [ANCHORED]})}),
    ],
)
def test_a_schema_that_asyncapi_cannot_read_is_beside_it(tree: Any, payload: Any) -> None:
    assert payload_of(tree) == (payload, {})


def test_an_avro_schema_names_its_format() -> None:
    expected = {"schemaFormat": "application/vnd.apache.avro;version=1.9.0", "schema": AVRO}
    assert payload_of(AVRO, "avro") == (expected, {})


def test_topics_with_like_names_have_different_keys() -> None:
    policies = [TopicPolicyOptions(filter=each) for each in ("a b", "a-b", "é", "ü")]
    found = described(catalogue(policies, (), Registry()), Registry())
    assert list(found["channels"]) == ["a-b", "a-b-2", "topic", "topic-2"]


def test_the_servers_are_the_listeners() -> None:
    tls = TlsOptions(cert_file="c", key_file="k")
    config = Config(
        listeners=(
            ListenerOptions(port=1),
            ListenerOptions(port=2, host="0.0.0.0", tls=tls),
            ListenerOptions(port=3, host="::1", websocket=WebSocketOptions(path="/ws")),
            ListenerOptions(port=4, host="broker.example", websocket=True, tls=tls),
            ListenerOptions(path="/run/mqtt.sock"),
        )
    )
    servers = [tuple(each) for each in servers_of(config)]
    assert servers == [
        ("tcp-1", "127.0.0.1:1", "mqtt", ""),
        ("tls-2", "localhost:2", "secure-mqtt", ""),
        ("ws-3", "[::1]:3", "ws", "/ws"),
        ("wss-4", "broker.example:4", "wss", "/mqtt"),
    ]
    found = document((), Registry(), servers_of(config), title="t", version="1")["servers"]
    assert found["ws-3"] == {"host": "[::1]:3", "protocol": "ws", "protocolVersion": "5.0", "pathname": "/ws"}


def test_the_commands_read_files(tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text(
        f'data_dir = "{tmp_path}"\n[[topic_policies]]\nprefix = "orders"\nschema = "orders"\nowner = "shop"\n'
    )
    save_topics(tmp_path / "topics.json", [MADE])
    arguments = ["-c", str(tmp_path / "broker.toml")]

    def said(*words: str) -> str:
        result = CliRunner().invoke(main, [*words, *arguments], catch_exceptions=False)
        assert result.exit_code == 0
        return result.stdout

    expected = "news\tann\tstandard\tPUBLIC\t-\tNews\norders/#\tshop\tstandard\tPUBLIC\tnot registered\t-\n"
    assert said("topics", "catalogue") == expected
    assert [each["topics"] for each in json.loads(said("topics", "catalogue", "--json"))] == ["news", "orders/#"]
    found = json.loads(said("asyncapi", "--title", "Shop", "--version", "3"))
    assert (found["info"]["title"], found["info"]["version"]) == ("Shop", "3")
    (tmp_path / "schemas.json").write_text("{")
    wrong = CliRunner().invoke(main, ["asyncapi", *arguments])
    assert wrong.exit_code == 2
    assert "schemas.json: it is no file of a schema registry" in wrong.stderr
