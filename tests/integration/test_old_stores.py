"""A database that an earlier version wrote is read. `tests/data` has one of each schema; none is ever made anew.

`python -m tests.integration.test_old_stores` writes one of the present schema, for a version that changes it.
`logs-v2.db` and `features-v2.db` are of the version in which the changes of logs had the names of sessions.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from mqttlite import Broker, Client
from mqttlite.config import Config, ListenerOptions
from mqttlite.core.changes import (
    Change,
    Enqueue,
    SaveDelayed,
    SaveReceived,
    SaveReleased,
    SaveRetained,
    SaveSession,
    SaveSubscription,
    SaveWill,
    Sent,
)
from mqttlite.core.identity import Identity
from mqttlite.core.log_changes import Append, KeepFrom, LoadedOfLog, SaveDeadline, SaveRecord
from mqttlite.core.message import Delivery, Message
from mqttlite.core.route.subscription import Subscription
from mqttlite.store.sqlite.files import DATABASE
from mqttlite.store.sqlite.schema import SCHEMA_VERSION
from mqttlite.store.sqlite.store import SqliteStore
from mqttlite.wire.constants import NEVER_EXPIRES, V311
from mqttlite.wire.packets import Will
from mqttlite.wire.properties import Properties
from tests.support.stores import everything

DATA: Final = Path(__file__).parent.parent / "data"


def kept() -> list[Change]:
    """What each of the databases holds."""
    properties = Properties(content_type="text/plain", user_properties=[("key", "value")])
    messages = [
        Delivery(Message(f"topic/{at}".encode(), b"payload %d" % at, 2, False, properties), 1 + at % 2, False, (7,))
        for at in range(8)
    ]
    return [
        SaveSession("device", NEVER_EXPIRES, 0.0, Identity("user"), V311),
        SaveSubscription("device", Subscription("device", b"topic/+", 2, True, True, 7)),
        SaveSubscription("device", Subscription("device", b"$share/group/jobs", 1)),
        SaveWill("device", Will(b"gone", b"device", 1, True, properties), 60.0),
        *(Enqueue("device", at, delivery) for at, delivery in enumerate(messages)),
        *(Sent("device", at, at + 1) for at in range(3)),
        SaveReleased("device", 2, 3),
        SaveReceived("device", 9),
        SaveRetained(Message(b"retained", b"value", 1, True)),
        SaveDelayed(5, Message(b"later", b"delayed", 1), 100.0, "device"),
    ]


def told(changes: list[Change]) -> set[str]:
    """What changes say, but for times, which depend on the clock."""
    found = set()
    for change in changes:
        if isinstance(change, Enqueue):
            message = change.delivery.message
            detail = [
                message.topic,
                message.payload,
                message.properties,
                change.delivery.qos,
                change.delivery.identifiers,
            ]
            found.add(f"{change.sequence} {change.packet_id} {detail}")
        elif isinstance(change, SaveRetained | SaveDelayed):
            found.add(f"{type(change).__name__} {change.message.topic!r} {change.message.payload!r}")
        elif isinstance(change, SaveSession):
            username = change.identity.username
            found.add(f"session {change.client_id} {change.expiry_interval} {username} {change.version}")
        elif isinstance(change, SaveSubscription):
            each = change.subscription
            options = each.qos, each.no_local, each.retain_as_published, each.identifier
            found.add(f"subscription {each.topic_filter!r} {options}")
        elif isinstance(change, SaveWill):
            found.add(f"will {change.will}")
        elif isinstance(change, SaveReleased | SaveReceived):
            found.add(f"{type(change).__name__} {change.packet_id}")
    return found


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
async def test_the_database_of_each_schema_is_read(version: int, tmp_path: Path) -> None:
    shutil.copy(DATA / f"store-v{version}.db", tmp_path / DATABASE)
    store = SqliteStore(tmp_path)
    try:
        found = told(await everything(store))
    finally:
        store.close()
    memory = SqliteStore(tmp_path / "now")
    try:
        await memory.commit(kept())
        assert found == told(await everything(memory))
    finally:
        memory.close()


def of_log(change: LoadedOfLog) -> tuple[object, ...]:
    """What a change says, but for the size of what is kept."""
    match change:
        case SaveRecord():
            return change.key, change.data
        case Append():
            return (
                change.key,
                change.offset,
                change.mark,
                change.delivery.message.payload,
                change.delivery.message.number,
            )
        case SaveDeadline():
            return "due", change.key, change.offset
        case KeepFrom():
            return "kept from", change.key, change.offset
    raise AssertionError(change)


async def test_logs_that_were_written_as_queues_are_read(tmp_path: Path) -> None:
    shutil.copy(DATA / "logs-v2.db", tmp_path / DATABASE)
    store = SqliteStore(tmp_path)
    jobs, dead, events = "\0$queue/jobs", "\0$dlq/jobs", "\0$stream/events/0"
    number = 1_700_000_000_000_000
    try:
        found = [of_log(each) for each in await everything(store)]  # type: ignore[arg-type]
        retained = await store.page(jobs, 1, 1)
    finally:
        store.close()
    assert found == [
        (jobs, b"definition"),
        *((jobs, at, mark, b"payload %d" % at, number + at) for at, mark in ((2, 202), (3, 103))),
        ("kept from", jobs, 1),
        *((jobs, at, 0, b"payload %d" % at, number + at) for at in range(4, 9)),
        ("due", jobs, 3),
        (dead, b""),
        (dead, 7, 7, b"payload 20", number + 20),
        (events, b"segments"),
        *((events, at, 0, b"payload %d" % (30 + at), number + 30 + at) for at in range(2, 5)),
        ("\0$snapshot/kept", b"record"),
    ]
    assert [each and each.message.payload for each in retained] == [b"payload 1"]


@pytest.mark.slow
async def test_queues_and_streams_of_an_earlier_version_go_on(tmp_path: Path) -> None:
    """The queue had six messages: one acknowledged, one a dead letter, one leased. The reader of the stream had read
    six of nine."""
    shutil.copy(DATA / "features-v2.db", tmp_path / DATABASE)
    config = Config(data_dir=str(tmp_path), listeners=(ListenerOptions(port=0),))
    async with Broker(config) as broker:
        queues = broker.queues
        assert [each.message.payload for each in queues.dead_letters("jobs").letters()] == [b"job 1"]
        assert queues.state("jobs").depth == 4
        pulled: list[bytes] = []
        async with asyncio.timeout(30):
            while len(pulled) < 4:
                pulled += [each.message.payload for each in queues.pull("jobs", 4)]
                await asyncio.sleep(0.01)  # what waits is read from the disk
        assert sorted(pulled) == [b"job 2", b"job 3", b"job 4", b"job 5"]
        options = {"client_id": "reader", "clean_start": False, "session_expiry_interval": NEVER_EXPIRES}
        async with asyncio.timeout(30), Client("127.0.0.1", broker.port, **options) as client:
            got = [(await anext(client.messages)).payload for _ in range(3)]
    assert sorted(got) == [b"event 6", b"event 7", b"event 8"]


async def _write(path: Path) -> None:
    with tempfile.TemporaryDirectory() as directory:
        store = SqliteStore(Path(directory))
        await store.commit(kept())
        store.close()
        shutil.copy(Path(directory) / DATABASE, path)


if __name__ == "__main__":
    written = DATA / f"store-v{SCHEMA_VERSION}.db"
    if written.exists():
        sys.exit(f"{written} exists: it is never made anew")
    asyncio.run(_write(written))
