"""Nodes of several versions: what one does not know of the other is left alone, and named."""

import asyncio
from typing import Any

import msgspec
import pytest

from mqttlite.extensions.nodes.blobs import MINOR, VERSION, Hello, encode
from mqttlite.extensions.nodes.notes import NoteBook
from mqttlite.server import Broker
from tests.integration.conftest import Rig
from tests.integration.nodes.test_nodes import Fleet, Reader, air, client_of, connected, fleet, nodes_of, peer_of
from tests.support.air import Air
from tests.support.device import until
from tests.support.inside import assembly_of

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_factories=["asyncio"])]

__all__ = ["air", "fleet"]


def alarm_of(broker: Broker) -> str:
    return " ".join(assembly_of(broker).telemetry.reports.alarms.values())


async def test_a_node_goes_on_when_a_newer_one_sends_notes_and_blobs_that_it_does_not_know(
    fleet: Fleet, air: Air, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = await fleet.together("a", "b")
    take = NoteBook.take

    def with_news(book: NoteBook, node: str, connection: int) -> Any:
        for each in take(book, node, connection):
            if node == "b":
                yield _WithNews(node, connection, each.number, [*each.notes, ["sing", 4]])
            else:
                yield each

    monkeypatch.setattr(NoteBook, "take", with_news)
    async with client_of(a) as here, client_of(b, "us") as there:  # b asks a about the client
        await here.subscribe("t", qos=1)
        reader = Reader(here)
        await there.publish("t", "x", qos=1)
        await reader.gets("x")
    air.send("b", "a", msgspec.msgpack.encode(["poem", "b", 1]))
    await until(lambda: "'sing', which this version does not know" in alarm_of(a))
    assert peer_of(a, "b").connects == 1
    assert alarm_of(a) == (
        "Node b says 'sing', which this version does not know: it is left alone. Run one version on all nodes."
    )
    assert alarm_of(b) == ""


class _WithNews(msgspec.Struct, frozen=True, tag="notes", array_like=True):
    node: str
    connection: int
    number: int
    notes: list[Any]


async def test_a_node_of_another_version_is_named_in_the_alarm(fleet: Fleet, air: Air) -> None:
    a = await fleet.start("a")
    air.send("x", "a", encode(Hello(VERSION + 1, "x", 7)))
    await until(lambda: "Node x speaks version" in alarm_of(a))
    assert nodes_of(a).states() == []


async def test_a_node_drains_only_when_all_know_how(fleet: Fleet, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.extensions.nodes.nodes.MINOR", 0)
    a, b = await fleet.together("a", "b")
    device = await rig.device(a.port, "us")
    drain = nodes_of(a).drain
    drain.begin()
    await asyncio.sleep(0.6)
    assert drain.state().waits_for == "Node b runs an older version, which cannot take part in this."
    await device.ping()
    monkeypatch.setattr("mqttlite.extensions.nodes.nodes.MINOR", MINOR)
    await until(lambda: drain.state().step == "drained")
    await connected(a, b)
