"""Bans as a document that all nodes have, without a broker."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from mqttlite.files.shared_document import NotAgreed
from mqttlite.operations import shared_bans as module
from mqttlite.operations.bans import Ban, BanKind, Bans
from mqttlite.operations.shared_bans import SharedBans


class Node:
    """The bans of a node whose clock of the broker began at another time."""

    def __init__(self, path: Path | None = None, began: float = 1_700_000_000.0) -> None:
        self.now = 100.0
        self.bans = Bans(lambda: self.now)
        self.enforced: list[str] = []
        self.shared = SharedBans(
            *(self.bans, lambda: self.now, lambda at: datetime.fromtimestamp(began + at, UTC), self.enforce, path)
        )

    async def enforce(self, ban: Ban) -> int:
        self.enforced.append(ban.value)
        return 1

    async def content(self) -> bytes:
        found = await asyncio.to_thread(self.shared.document.read)
        assert found is not None
        return found

    def values(self) -> list[tuple[int, str]]:
        return [(each.number, each.value) for each in self.bans.list()]


async def agree(content: bytes) -> None:
    """All nodes agree."""


async def refuse(content: bytes) -> None:
    raise NotAgreed("NATS is away")


async def test_a_node_has_the_bans_of_another_one_with_their_numbers_and_their_ends() -> None:
    a, b = Node(), Node(began=1_699_999_000.0)
    a.shared.document.agreeing = agree
    await a.shared.add("client", "x", 60, "noise", "ann")
    b.now = 1_110.0  # ten seconds later
    await b.shared.document.replace(await a.content())
    (ban,) = b.bans.list()
    assert (ban.number, ban.value, ban.reason, ban.by) == (1, "x", "noise", "ann")
    assert ban.until - b.now == pytest.approx(50)
    assert b.enforced == ["x"]
    await b.shared.document.replace(await a.content())
    assert b.enforced == ["x"]


async def test_a_ban_of_a_node_that_is_alone_gets_the_next_number_of_all() -> None:
    a, b = Node(), Node()
    a.shared.document.agreeing, b.shared.document.agreeing = agree, refuse
    await a.shared.add("client", "x", 60, "", "")
    await b.shared.add("client", "y", 60, "", "")
    assert [(each.number, each.is_alone) for each in b.bans.list()] == [(1, True)]
    assert b.shared.document.merge is not None
    merged = b.shared.document.merge(await b.content(), await a.content())
    await b.shared.document.replace(merged)
    assert b.values() == [(1, "x"), (2, "y")]
    assert not any(each.is_alone for each in b.bans.list())


async def test_a_ban_of_a_node_that_is_alone_beyond_the_limit_of_all_is_lifted_by_name(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_BANS", 1)
    a, b = Node(), Node()
    a.shared.document.agreeing, b.shared.document.agreeing = agree, refuse
    await a.shared.add("client", "x", 60, "", "")
    await b.shared.add("client", "y", 60, "", "")
    assert b.shared.document.merge is not None
    await b.shared.document.replace(b.shared.document.merge(await b.content(), await a.content()))
    assert b.values() == [(1, "x")]
    assert "the ban of the client y is lifted: all nodes have 1, which is the limit" in caplog.text


async def test_bans_stay_when_no_node_has_stored_any() -> None:
    a = Node()
    a.shared.document.agreeing = agree
    await a.shared.add("client", "x", 60, "", "")
    a.shared.document.agreeing = refuse
    await a.shared.add("client", "y", 60, "", "")
    assert a.shared.document.merge is not None
    content = await a.content()
    await a.shared.document.replace(a.shared.document.merge(content, content))
    assert a.values() == [(1, "x"), (2, "y")]
    assert not any(each.is_alone for each in a.bans.list())


@pytest.mark.parametrize(("ours_s", "theirs_s"), [(60, 3600), (3600, 60)])
async def test_the_later_end_of_two_bans_that_were_made_apart_holds(ours_s: float, theirs_s: float) -> None:
    a, b = Node(), Node()
    a.shared.document.agreeing, b.shared.document.agreeing = agree, refuse
    await a.shared.add("client", "x", theirs_s, "", "")
    await b.shared.add("client", "x", ours_s, "", "")
    assert b.shared.document.merge is not None
    await b.shared.document.replace(b.shared.document.merge(await b.content(), await a.content()))
    (ban,) = b.bans.list()
    assert ban.until - b.now == pytest.approx(3600)


@pytest.mark.parametrize(("kind", "value", "same"), [("client", "x", "x"), ("address", "::1", "0:0:0:0:0:0:0:1")])
async def test_a_ban_is_shortened_only_while_other_nodes_agree(kind: BanKind, value: str, same: str) -> None:
    node = Node()
    node.shared.document.agreeing = agree
    await node.shared.add(kind, value, 3600, "", "")
    node.shared.document.agreeing = refuse
    with pytest.raises(NotAgreed, match=f"a ban of the {kind} {same} that ends later holds: NATS is away"):
        await node.shared.add(kind, same, 60, "", "")
    assert [(each.until, each.is_alone) for each in node.bans.list()] == [(3700, False)]
    await node.shared.add(kind, same, 7200, "", "")
    assert [(each.until, each.is_alone) for each in node.bans.list()] == [(7300, True)]
    node.shared.document.agreeing = agree
    await node.shared.add(kind, same, 60, "", "")
    assert [(each.until, each.is_alone) for each in node.bans.list()] == [(160, False)]


async def test_a_ban_of_another_node_holds_though_the_file_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = Node(), Node(tmp_path / "no folder" / "bans.json")
    a.shared.document.agreeing = agree
    await a.shared.add("client", "x", 60, "", "")
    await b.shared.document.replace(await a.content())
    assert (b.values(), b.enforced) == ([(1, "x")], ["x"])
    assert await b.content() == await a.content()
    assert "bans.json cannot be written; the bans hold all the same: No such file or directory" in caplog.text


async def test_bans_are_in_the_file_of_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "bans.json"
    a = Node(path)
    a.shared.document.agreeing = agree
    await a.shared.add("client", "x", 60, "", "")
    assert Node(path).values() == [(1, "x")]
    path.write_text("{")
    assert Node(path).values() == []
    assert "bans.json cannot be used, nobody is banned until the other nodes are reached" in caplog.text


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version":2,"bans":[]}', b'{"version":1,"bans":[{"number":1}]}'])
async def test_a_document_that_is_not_of_bans_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="it has no bans: "):
        Node().shared.document.check(content)
