"""An ACL file and topic policies over real sockets: what is refused, what is left out, and files that change."""

import asyncio
import logging
import os
from pathlib import Path

import pytest

from mqttlite.config import Config, ConfigError, ListenerOptions
from mqttlite.security.keys import keys_of
from mqttlite.security.password_file import set_user
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.server import Broker
from mqttlite.wire.constants import V5, V311
from tests.integration.conftest import Rig
from tests.support.device import Device
from tests.support.rules import OpenRules

NOT_AUTHORIZED = 0x87
KEYS = keys_of("secret", b"0123456789abcdef", 4_096)
ACL = """\
topic read news/#
user ann
topic readwrite plant/#
topic deny plant/secret/#
user bob
topic read plant/#
topic write bob/#
group staff
topic read staff/#
pattern readwrite own/%u/%c/#
"""


@pytest.fixture
def acl(tmp_path: Path) -> Path:
    path = tmp_path / "acl.conf"
    path.write_text(ACL)
    return path


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    set_user(path, "ann", KEYS, create=True)
    for name in ("bob", "eve"):
        set_user(path, name, KEYS, create=False)
    return path


def rewrite(path: Path, text: str) -> None:
    path.write_text(text)


async def ruled(rig: Rig, acl: Path | None, users: Path, **options: object) -> Broker:
    return await rig.broker(
        Config(
            listeners=(ListenerOptions(port=0),),
            password_file=str(users),
            allow_anonymous=True,
            acl_file=None if acl is None else str(acl),
            groups={"staff": ("bob",)},
            **options,  # type: ignore[arg-type]
        )
    )


async def user(rig: Rig, broker: Broker, name: str | None, client_id: str = "", version: int = V5) -> Device:
    login = {} if name is None else {"username": name}
    return await rig.device(broker.port, client_id or name or "anonymous", version, **login)


@pytest.mark.parametrize(
    ("name", "topic", "code"),
    [
        ("ann", "plant/a", 0x10),
        ("ann", "plant/secret", NOT_AUTHORIZED),
        ("ann", "other", NOT_AUTHORIZED),
        ("ann", "own/ann/ann/x", 0x10),
        ("ann", "own/ann/bob/x", NOT_AUTHORIZED),
        ("bob", "plant/a", NOT_AUTHORIZED),
        ("bob", "bob/x", 0x10),
        ("eve", "news/x", NOT_AUTHORIZED),
        (None, "news/x", NOT_AUTHORIZED),
    ],
)
async def test_publish_permissions(rig: Rig, acl: Path, users: Path, name: str | None, topic: str, code: int) -> None:
    broker = await ruled(rig, acl, users)
    device = await user(rig, broker, name)
    assert await device.published(topic, b"x") == code


@pytest.mark.parametrize(
    ("name", "topic_filter", "code"),
    [
        ("ann", "plant/+", 0),
        ("ann", "#", 0),
        ("ann", "plant/secret/#", NOT_AUTHORIZED),
        ("ann", "other/#", NOT_AUTHORIZED),
        ("ann", "$share/g/plant/#", 0),
        ("ann", "$share/g/other/#", NOT_AUTHORIZED),
        ("bob", "staff/#", 0),
        ("ann", "staff/#", NOT_AUTHORIZED),
        ("eve", "#", 0),  # own/eve/eve/#
        (None, "news/today", 0),
        (None, "#", 0),
        (None, "plant/#", NOT_AUTHORIZED),
        (None, "$SYS/#", 0),
    ],
)
async def test_subscribe_permissions(
    rig: Rig, acl: Path, users: Path, name: str | None, topic_filter: str, code: int
) -> None:
    broker = await ruled(rig, acl, users)
    device = await user(rig, broker, name)
    assert await device.subscribe(topic_filter) == bytes([code])


async def test_a_311_client_is_refused_with_0x80(rig: Rig, acl: Path, users: Path) -> None:
    broker = await ruled(rig, acl, users)
    device = await user(rig, broker, "ann", version=V311)
    assert await device.subscribe("other/#") == b"\x80"


async def test_a_client_named_like_a_wildcard_gets_nothing_from_patterns(rig: Rig, acl: Path, users: Path) -> None:
    broker = await ruled(rig, acl, users)
    device = await user(rig, broker, "bob", client_id="#")
    assert await device.published("own/bob/victim/x") == NOT_AUTHORIZED
    assert await device.subscribe("own/#") == bytes([NOT_AUTHORIZED])


async def test_a_changed_file_holds_within_a_second_for_connected_clients(
    rig: Rig, acl: Path, users: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mqttlite.security")
    broker = await ruled(rig, acl, users)
    ann = await user(rig, broker, "ann")
    assert await ann.published("plant/a") == 0x10
    rewrite(acl, "user ann\ntopic read #\n")
    async with asyncio.timeout(60):
        while await ann.published("plant/a") != NOT_AUTHORIZED:
            await asyncio.sleep(0.02)
    assert "was read again: 1 rules" in caplog.text


async def test_a_broken_file_changes_nothing_and_is_logged_with_its_line(
    rig: Rig, acl: Path, users: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await ruled(rig, acl, users)
    ann = await user(rig, broker, "ann")
    rewrite(acl, "user ann\ntopic deny #\ntopik read #\n")
    await broker.reload()
    assert f"the rules stay as they were: {acl}:3: 'topik' begins no rule; did you mean topic?" in caplog.text
    assert await ann.published("plant/a") == 0x10
    os.unlink(acl)
    await broker.reload()
    assert f"{acl}: cannot be read: No such file" in caplog.text
    assert await ann.published("plant/a") == 0x10
    rewrite(acl, "user ann\ntopic deny #\n")
    await broker.reload()
    assert await ann.published("plant/a") == NOT_AUTHORIZED


async def test_a_wrong_file_starts_no_broker(rig: Rig, acl: Path, users: Path) -> None:
    rewrite(acl, "user\n")
    with pytest.raises(ConfigError, match=r"acl_file: .*acl\.conf:1: user without a name"):
        await ruled(rig, acl, users)


async def test_rules_and_an_authorizer_of_the_program_do_not_go_together(acl: Path) -> None:
    broker = Broker(Config(listeners=(ListenerOptions(port=0),), acl_file=str(acl)), authorizer=OpenRules())
    with pytest.raises(ConfigError, match="acl_file: the program gives the broker an authorizer"):
        await broker.start()


async def test_policies_decide_about_the_use_of_topics(rig: Rig, users: Path) -> None:
    policies = (
        TopicPolicyOptions(prefix="private", access="PRIVATE", owner="ann", groups=("staff",)),
        TopicPolicyOptions(prefix="private/open", access="SUBSCRIBE_ONLY", members=("ann",)),
        TopicPolicyOptions(filter="+/inbox", access="PUBLISH_ONLY", members=("bob",)),
    )
    broker = await ruled(rig, None, users, topic_policies=policies)
    ann, bob, eve = [await user(rig, broker, name) for name in ("ann", "bob", "eve")]
    denied = bytes([NOT_AUTHORIZED])
    assert await eve.published("anything") == 0x10
    assert await eve.published("private/x") == NOT_AUTHORIZED
    assert await bob.published("private/x") == 0x10
    assert await eve.subscribe("private/#") == b"\0"  # for private/open
    assert await eve.subscribe("private/x") == denied
    assert await eve.subscribe("private/open/x") == b"\0"
    assert await eve.published("private/open/x") == NOT_AUTHORIZED
    assert await eve.published("a/inbox") == 0x10
    assert await eve.subscribe("+/inbox") == denied  # private/inbox, too: the longest beginning decides
    assert await eve.subscribe("a/inbox") == denied
    assert await bob.subscribe("a/inbox") == b"\0"
    assert await ann.published("private/open/x") == 0


async def test_other_policies_and_groups_hold_after_a_reload(rig: Rig, acl: Path, users: Path) -> None:
    broker = await ruled(rig, acl, users)
    ann = await user(rig, broker, "ann")
    assert await ann.subscribe("staff/#") == bytes([NOT_AUTHORIZED])
    policies = (TopicPolicyOptions(prefix="plant", access="PRIVATE", members=("bob",)),)
    await broker.reload(
        Config(acl_file=str(acl), password_file=str(users), groups={"staff": ("ann",)}, topic_policies=policies)
    )
    assert await ann.subscribe("staff/#") == b"\0"
    assert await ann.published("plant/a") == NOT_AUTHORIZED
    await broker.reload(Config())
    assert await ann.published("anything") == 0x10
