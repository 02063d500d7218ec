"""400 and 422 over all routes: a request that cannot be read, and one that can be and has a wrong value."""

import re
from pathlib import Path

import pytest

from mqttlite.gateway.caller import Role
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from tests.support.gateway import GatewayUnderTest, routes_of, running_gateway

JSON = {"Content-Type": "application/json"}

NO_JSON = re.compile(r"/ui/|.*/push-secret|/topics/\{topic:path\}|.*/acl/text")
"""Routes whose body is a form, a payload, the text of a file, or nothing."""

OF_OTHERS = ("/v1/", "/registry/")
"""Google's and Confluent's interfaces have their own codes."""

WRONG_QUERIES = (
    *("/api/v1/clients?limit=x", "/api/v1/queues?limit=0", "/api/v1/retained?filter=a%23", "/api/v1/why"),
    *("/api/v1/explain/publish?topic=", "/api/v1/explain/publish?topic=a&payload=!&payload_encoding=base64"),
    *(
        "/api/v1/explain/permission?action=publish&topic=a%2B",
        "/events",
        "/events?filter=a%23",
        "/events?filter=a&qos=9",
    ),
    *("/api/v1/queues/q/messages?limit=x", "/api/v1/topics?limit=x"),
)


def with_bodies(gateway: GatewayUnderTest) -> list[tuple[str, str]]:
    """Method and path of each route of ours that takes JSON."""
    return sorted(
        (method, path)
        for method, path in routes_of(gateway.gateway.app)
        if method in ("POST", "PUT", "PATCH") and not path.startswith(OF_OTHERS) and not NO_JSON.match(path)
    )


@pytest.mark.long
async def test_a_body_that_is_no_json_is_400_and_json_with_a_wrong_value_is_never(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, delivery_log=DeliveryLogOptions()) as gateway:
        admin = gateway.client(Role.ADMIN)
        assert (await admin.post("/api/v1/queues", json={"name": "q", "filters": ["q/#"]})).status_code == 201
        topic = (await admin.post("/api/v1/topics", json={"name": "t"})).json()["topic_id"]
        unreadable, wrong = set(), set()
        found = with_bodies(gateway)
        for method, path in found:
            filled = re.sub(r"\{[^}]+\}", "q", path.replace("{topic_id}", topic))
            broken = await admin.request(method, filled, content=b"nope", headers=JSON)
            assert broken.status_code != 422, (method, path, broken.text)
            unreadable |= {(method, path)} if broken.status_code == 400 else set()
            other = await admin.request(method, filled, content=b"[1]", headers=JSON)
            assert other.status_code != 400, (method, path, other.text)
            wrong |= {(method, path)} if other.status_code == 422 else set()
        assert len(found) > 15
        assert len(unreadable) > len(found) // 2, unreadable
        assert len(wrong) > len(found) // 2, wrong


@pytest.mark.parametrize("path", WRONG_QUERIES)
async def test_a_wrong_or_missing_value_in_the_address_is_422(tmp_path: Path, path: str) -> None:
    async with running_gateway(tmp_path, delivery_log=DeliveryLogOptions()) as gateway:
        answer = await gateway.client(Role.ADMIN).get(path)
    assert (answer.status_code, answer.json()["code"]) in ((422, "invalid_value"), (422, "invalid_topic"))
