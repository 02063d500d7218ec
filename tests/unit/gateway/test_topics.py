"""Topics that callers make: who may, what the rules hold of them, and that they outlive the broker."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mqttlite.gateway import topics
from mqttlite.gateway.caller import Role
from mqttlite.security.api_keys import FILE_NAME, add
from mqttlite.security.topic_file import TopicFile, load
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.security.topic_records import TopicRecord
from tests.support.device import until
from tests.support.gateway import GatewayUnderTest, nobody_without_credentials, running_gateway

TOPICS = "/api/v1/topics"


async def test_a_topic_is_made_shown_changed_and_deleted(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann",)) as gateway:
        ann = gateway.user("ann")
        made = await ann.post(TOPICS, json={"name": "a/b", "permissions": "PRIVATE", "class": "ephemeral"})
        assert made.status_code == 201
        found = made.json()
        path = f"{TOPICS}/{found['topic_id']}"
        assert made.headers["location"] == path
        assert (found["owner_id"], found["permissions"], found["class"]) == ("ann", "PRIVATE", "ephemeral")
        assert (await ann.get(path)).json() == {**found, "subscriber_count": 0}
        changes = {"members": ["bob"], "ttl_s": 60, "tell_publisher": True}
        assert (await ann.patch(path, json=changes)).json() == {**found, **changes}
        assert (await ann.delete(path)).json() == {"success": True}
        assert (await ann.get(path)).json()["code"] == "not_found"


@pytest.mark.long
async def test_members_and_groups_are_added_and_removed_one_by_one(tmp_path: Path) -> None:
    users = ("ann", "bob", "eve")
    async with running_gateway(tmp_path, users=users, groups={"staff": ("eve",)}) as gateway:
        ann, bob, eve = (gateway.user(name) for name in users)
        path = f"{TOPICS}/{(await ann.post(TOPICS, json={'name': 'a', 'permissions': 'PRIVATE'})).json()['topic_id']}"
        changes = [*(f"{path}/members/u{n}" for n in range(20)), f"{path}/members/bob", f"{path}/groups/staff"]
        answers = await asyncio.gather(*[ann.put(each) for each in (*changes, *changes)])
        assert {each.status_code for each in answers} == {200}
        listed = (await ann.get(f"{path}/members")).json()
        assert sorted(listed["members"]) == sorted(["bob", *(f"u{n}" for n in range(20))])
        assert listed["groups"] == ["staff"]
        assert [(await who.put("/topics/a", content=b"x")).status_code for who in (bob, eve)] == [200, 200]
        assert (await bob.put(f"{path}/members/zoe")).status_code == 403
        for each in changes:
            assert (await ann.delete(each)).status_code == 200
        assert (await ann.get(f"{path}/members")).json() == {"members": [], "groups": []}
        assert [(await who.put("/topics/a", content=b"x")).status_code for who in (bob, eve)] == [403, 403]
        answer = await ann.delete(f"{path}/members/bob")
        assert (answer.status_code, "'bob' is none of the members" in answer.json()["detail"]) == (404, True)


@pytest.mark.long
async def test_a_topic_outlives_the_broker_and_so_do_its_permissions(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann", "bob")) as gateway:
        made = (await gateway.user("ann").post(TOPICS, json={"name": "a", "permissions": "PRIVATE"})).json()
    async with running_gateway(tmp_path, users=("ann2",)) as again:
        admin = again.client(Role.ADMIN)
        assert (await admin.get(f"{TOPICS}/{made['topic_id']}")).json() == made
        assert (await admin.put("/topics/a", content=b"x")).status_code == 403


async def test_permissions_hold_at_once(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann", "bob", "eve")) as gateway:
        ann, bob, eve = (gateway.user(name) for name in ("ann", "bob", "eve"))
        body = {"name": "a", "permissions": "PRIVATE", "members": ["bob"]}
        path = f"{TOPICS}/{(await ann.post(TOPICS, json=body)).json()['topic_id']}"
        publish = [(await who.put("/topics/a", content=b"x")).status_code for who in (ann, bob, eve)]
        assert publish == [200, 200, 403]
        for permissions, may_write, may_read in (
            ("PUBLIC", 200, 404),
            ("PUBLISH_ONLY", 200, 403),
            ("SUBSCRIBE_ONLY", 403, 404),
            ("PRIVATE", 403, 403),
        ):
            assert (await ann.patch(path, json={"permissions": permissions})).status_code == 200
            assert (await eve.put("/topics/a", content=b"x")).status_code == may_write
            assert (await eve.get("/topics/a")).status_code == may_read
        assert (await gateway.client(key="x").get(path)).status_code == 401


async def test_a_retained_message_is_read_while_its_writer_may_write_it(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann", "bob", "eve")) as gateway:
        ann, bob, eve = (gateway.user(name) for name in ("ann", "bob", "eve"))
        body = {"name": "a", "permissions": "PUBLISH_ONLY", "members": ["bob"]}
        path = f"{TOPICS}/{(await ann.post(TOPICS, json=body)).json()['topic_id']}"
        assert (await eve.put("/topics/a?retain=1&qos=1", content=b"x")).status_code == 200
        for permissions, status in (("PUBLISH_ONLY", 200), ("SUBSCRIBE_ONLY", 404), ("PUBLISH_ONLY", 200)):
            assert (await ann.patch(path, json={"permissions": permissions})).status_code == 200
            assert (await bob.get("/topics/a")).status_code == status


async def test_a_caller_without_permission_neither_sees_nor_changes_a_topic(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann", "eve")) as gateway:
        ann, eve, viewer = gateway.user("ann"), gateway.user("eve"), gateway.client(Role.VIEWER)
        made = (await ann.post(TOPICS, json={"name": "secret", "permissions": "PRIVATE"})).json()
        path = f"{TOPICS}/{made['topic_id']}"
        open_one = (await ann.post(TOPICS, json={"name": "open"})).json()
        assert [each["name"] for each in (await eve.get(TOPICS)).json()["topics"]] == ["open"]
        assert [each["name"] for each in (await viewer.get(TOPICS)).json()["topics"]] == ["open", "secret"]
        assert (await eve.get(path)).status_code == 404
        assert (await eve.delete(path)).status_code == 404
        for who in (eve, viewer):
            assert (await who.patch(f"{TOPICS}/{open_one['topic_id']}", json={"ttl_s": 1})).status_code == 403
        assert (await eve.get(f"{TOPICS}/{open_one['topic_id']}/subscribers")).status_code == 403
        assert (await gateway.client(Role.ADMIN).patch(path, json={"ttl_s": 1})).json()["ttl_s"] == 1


async def test_no_caller_makes_a_topic_that_is_not_its_own(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("user ann\ntopic ann/#\ntopic read shown\n")
    options = {"acl_file": str(acl), **nobody_without_credentials(tmp_path)}
    async with running_gateway(tmp_path / "data", users=("ann",), **options) as gateway:
        ann = gateway.user("ann")
        assert (await ann.post(TOPICS, json={"name": "ann/x", "permissions": "PRIVATE"})).status_code == 201
        for name in ("bob/x", "shown"):
            assert (await ann.post(TOPICS, json={"name": name})).json()["code"] == "not_authorized"
        assert (await gateway.client(Role.ADMIN).post(TOPICS, json={"name": "bob/x"})).status_code == 201


async def test_topics_may_be_made_by_some_roles_alone(tmp_path: Path) -> None:
    async with running_gateway(tmp_path, users=("ann",), http={"topic_creation": "operator"}) as gateway:
        refused = await gateway.user("ann").post(TOPICS, json={"name": "x", "permissions": "PRIVATE"})
        assert (refused.status_code, refused.json()["code"]) == (403, "not_authorized")
        assert "[http] topic_creation" in refused.text
        assert (await gateway.client(Role.VIEWER).post(TOPICS, json={"name": "x"})).status_code == 403
        for role in (Role.OPERATOR, Role.ADMIN):
            assert (await gateway.client(role).post(TOPICS, json={"name": f"of-{role.name}"})).status_code == 201


async def test_a_policy_of_the_configuration_is_not_taken_from_its_owner(tmp_path: Path) -> None:
    policies = (TopicPolicyOptions(prefix="billing", access="PRIVATE", owner="eve", members=("ann",), min_qos=1),)
    async with running_gateway(tmp_path, users=("ann", "eve"), topic_policies=policies) as gateway:
        ann, eve, admin = gateway.user("ann"), gateway.user("eve"), gateway.client(Role.ADMIN)
        for body in ({"permissions": "PRIVATE"}, {"max_qos": 1}, {"schema": "none"}):
            answer = await ann.post(TOPICS, json={"name": "billing/x", **body})
            assert (answer.status_code, answer.json()["code"]) == (403, "not_authorized")
        plain = (await ann.post(TOPICS, json={"name": "billing/x"})).json()
        path = f"{TOPICS}/{plain['topic_id']}"
        assert (await ann.patch(path, json={"permissions": "PUBLISH_ONLY"})).status_code == 403
        assert (await ann.patch(path, json={"description": "mine"})).status_code == 200
        assert (await eve.put("/topics/billing/x?qos=1", content=b"x")).status_code == 200
        assert (await ann.put("/topics/billing/x?qos=0", content=b"x")).json()["code"] == "policy_refuses"
        assert (await eve.post(TOPICS, json={"name": "billing/y", "permissions": "PRIVATE"})).status_code == 201
        assert (await admin.post(TOPICS, json={"name": "billing/z", "max_qos": 1})).status_code == 201


async def test_a_caller_without_a_user_name_gives_and_takes_no_policy(tmp_path: Path) -> None:
    key = add(tmp_path / FILE_NAME, "admin", None, None)[0]
    async with running_gateway(tmp_path, http={"anonymous_role": "user"}) as gateway:
        nobody, viewer, admin = gateway.client(), gateway.client(Role.VIEWER), gateway.client(key=key)
        for body in ({"min_qos": 2}, {"schema": "none"}, {"presence": True}):
            assert (await nobody.post(TOPICS, json={"name": "a", **body})).json()["code"] == "not_authorized"
        plain = f"{TOPICS}/{(await nobody.post(TOPICS, json={'name': 'a'})).json()['topic_id']}"
        assert (await nobody.patch(plain, json={"max_payload_bytes": 1})).status_code == 403
        assert (await nobody.get(f"{plain}/subscribers")).status_code == 403
        assert (await viewer.get(f"{plain}/subscribers")).status_code == 200
        with_policy = f"{TOPICS}/{(await admin.post(TOPICS, json={'name': 'b', 'min_qos': 1})).json()['topic_id']}"
        assert (await nobody.patch(with_policy, json={"min_qos": 0})).status_code == 403
        assert (await nobody.delete(with_policy)).status_code == 403
        assert (await nobody.delete(plain)).status_code == 200


WRONG: list[dict[str, object]] = [
    {},
    {"name": ""},
    {"name": "a/#"},
    {"name": "$SYS/x"},
    {"name": "a\0"},
    {"name": "a", "permissions": "NONE"},
    {"name": "a", "min_qos": 2, "max_qos": 1},
    {"name": "a", "members": [""]},
    {"name": "a", "unknown": 1},
    {"name": "a", "message_retention_days": 32},
    {"name": "a", "permissions": "PRIVATE"},
]


@pytest.mark.long
async def test_a_wrong_topic_is_refused_and_nothing_is_kept(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    for body in WRONG:
        answer = await client.post(TOPICS, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_value"), body
        assert (await client.get(TOPICS)).json() == {"topics": [], "cursor": None}, body


async def test_a_name_is_one_topic_and_the_configuration_comes_first(tmp_path: Path) -> None:
    policies = (TopicPolicyOptions(filter="fixed", access="PUBLIC", max_qos=1),)
    async with running_gateway(tmp_path, users=("ann",), topic_policies=policies) as gateway:
        ann, admin = gateway.user("ann"), gateway.client(Role.ADMIN)
        first = (await ann.post(TOPICS, json={"name": "a"})).json()
        second = await ann.post(TOPICS, json={"name": "a"})
        assert (second.status_code, second.json()["topic_id"]) == (409, first["topic_id"])
        assert (await ann.post(TOPICS, json={"name": "fixed", "permissions": "PRIVATE"})).status_code == 403
        assert (await admin.post(TOPICS, json={"name": "fixed", "permissions": "PRIVATE"})).status_code == 409


async def test_topics_are_listed_by_pages(gateway: GatewayUnderTest) -> None:
    client = gateway.client()
    for name in ("c", "a", "b", "e", "d"):
        assert (await client.post(TOPICS, json={"name": name})).status_code == 201
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get(TOPICS, params={"limit": 2, "cursor": cursor})).json()
        seen += [each["name"] for each in page["topics"]]
        cursor = page["cursor"]
    assert seen == ["a", "b", "c", "d", "e"]


async def test_subscribers_are_listed_by_pages(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.VIEWER)
    made = (await client.post(TOPICS, json={"name": "a/b"})).json()
    for topic_filter in ("a/b", "a/+", "#", "$share/g/a/b", "other"):
        gateway.broker.subscribe(topic_filter)
    path = f"{TOPICS}/{made['topic_id']}"
    assert (await client.get(path)).json()["subscriber_count"] == 4
    filters: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await client.get(f"{path}/subscribers", params={"limit": 2, "cursor": cursor})).json()
        for each in page["subscribers"]:
            filters.append(each["topic_filter"])
            connected_at, subscribed_at = (datetime.fromisoformat(each[at]) for at in ("connected_at", "subscribed_at"))
            assert connected_at <= subscribed_at <= datetime.now(UTC)
        cursor = page["cursor"]
        assert page["count"] == 4
    assert sorted(filters) == ["#", "$share/g/a/b", "a/+", "a/b"]


async def test_there_are_so_many_topics_at_most(gateway: GatewayUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.gateway.topics.MAX_TOPICS", 1)
    client = gateway.client()
    assert (await client.post(TOPICS, json={"name": "a"})).status_code == 201
    assert (await client.post(TOPICS, json={"name": "b"})).json()["code"] == "quota_exceeded"


async def test_a_topic_that_cannot_be_kept_is_not_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_gateway(tmp_path, users=("ann", "eve")) as gateway:
        ann = gateway.user("ann")

        def fail(file: TopicFile, line: bytes, topics: list[TopicRecord]) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(TopicFile, "write", fail)
        answer = await ann.post(TOPICS, json={"name": "a", "permissions": "PRIVATE"})
        assert (answer.status_code, answer.json()["code"]) == (503, "busy")
        assert (await gateway.user("eve").put("/topics/a", content=b"x")).status_code == 200
        assert (await ann.get(TOPICS)).json()["topics"] == []


@pytest.mark.long
async def test_presence_of_a_topic_is_turned_on_and_off(gateway: GatewayUnderTest) -> None:
    client = gateway.client(Role.USER)
    answer = await client.post("/api/v1/topics", json={"name": "rooms/1", "presence": True})
    assert answer.json()["presence"] is True
    retained = gateway.broker.admin.retained_message
    await until(lambda: retained("$SYS/broker/presence/rooms/1") is not None)
    path = f"/api/v1/topics/{answer.json()['topic_id']}"
    assert (await client.patch(path, json={"presence": False})).json()["presence"] is False
    await until(lambda: retained("$SYS/broker/presence/rooms/1") is None)


LARGE = ["ann", *("😀" * 998 + chr(0x4E00 + number) for number in range(40))]
"""Members that take 160 KB, where their characters would pass for 40 KB."""


@pytest.mark.long
async def test_the_topics_of_an_owner_are_limited_and_can_be_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "MAX_OWNED_TOPICS", 3)
    monkeypatch.setattr(topics, "MAX_OWNED_BYTES", 200_000)
    monkeypatch.setattr(topics, "MAX_TOPICS_BYTES", 450_000)
    async with running_gateway(tmp_path, users=("ann", "bob")) as gateway:
        ann, bob, admin = gateway.user("ann"), gateway.user("bob"), gateway.client(Role.ADMIN)
        huge = await ann.post(TOPICS, json={"name": "huge", "members": [f"{n}{'x' * 900}" for n in range(1_000)]})
        assert (huge.status_code, huge.json()["code"]) == (422, "invalid_value")
        first = (await ann.post(TOPICS, json={"name": "a", "members": LARGE})).json()
        second = (await ann.post(TOPICS, json={"name": "b"})).json()
        change = {"members": LARGE}
        for answer in (
            await ann.post(TOPICS, json={"name": "c", "members": LARGE}),
            await ann.patch(f"{TOPICS}/{second['topic_id']}", json=change),
        ):
            assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
            assert "the user 'ann' has topics of 200000 bytes" in answer.json()["detail"]
        assert (await ann.patch(f"{TOPICS}/{first['topic_id']}", json={"members": ["bob"]})).status_code == 200
        assert (await ann.patch(f"{TOPICS}/{second['topic_id']}", json=change)).status_code == 200
        assert (await ann.post(TOPICS, json={"name": "c"})).status_code == 201
        fourth = await ann.post(TOPICS, json={"name": "d"})
        assert "the user 'ann' has 3 topics" in fourth.json()["detail"]
        assert (await ann.delete(f"{TOPICS}/{first['topic_id']}")).status_code == 200
        assert (await ann.post(TOPICS, json={"name": "d"})).status_code == 201
        assert (await bob.post(TOPICS, json={"name": "of bob", "members": LARGE})).status_code == 201
        names = [f"of admin/{number}" for number in range(5)]
        statuses = [(await admin.post(TOPICS, json={"name": name})).status_code for name in names]
        assert statuses == [201] * 5, "an admin has no limit but that of all"
        full = await admin.post(TOPICS, json={"name": "x", "members": LARGE})
        assert (full.status_code, full.json()["code"]) == (429, "quota_exceeded")
        kept = (await admin.get(TOPICS)).json()
    assert {each.name for each in load(tmp_path / "topics.json")} == {"b", "c", "d", "of bob", *names}
    async with running_gateway(tmp_path) as again:
        assert (await again.client(Role.ADMIN).get(TOPICS)).json() == kept
