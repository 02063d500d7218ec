"""What users take of their rates at one node is charged at the others."""

import pytest

from mqttlite.core.load.rate_limits import BucketTable, Rate
from mqttlite.extensions.nodes import spending
from mqttlite.extensions.nodes.blobs import Note, Spent
from mqttlite.extensions.nodes.spending import KNOWS_SPENT, MAX_NAME, Spending

RATE = "user_ "


class Node:
    """One that passes on what it is told."""

    def __init__(self, *, is_connected: bool = True, minor: int = KNOWS_SPENT) -> None:
        self.is_connected = is_connected
        self.minor = minor
        self.notes: list[Note] = []

    def note(self, note: Note) -> None:
        self.notes.append(note)


def spending_of(peers: dict[str, Node], table: BucketTable, rate: str = RATE) -> Spending:
    made = Spending(peers, lambda: 0.0)
    made.share({rate: table})
    return made


def test_each_node_that_knows_the_note_gets_the_use_of_a_user_once() -> None:
    peers = {"b": Node(), "c": Node(is_connected=False), "d": Node(minor=KNOWS_SPENT - 1)}
    table = BucketTable(Rate(10.0))
    here = spending_of(peers, table)
    table.of("u", 0.0).take(3, 300, 0.0)
    table.of("u", 0.0).take(1, 100, 0.0)
    table.of("silent", 0.0)
    here.tick()
    here.tick()
    assert peers["b"].notes == [Spent(RATE, [("u", 4, 400)])]
    assert peers["c"].notes == peers["d"].notes == []
    table.of("u", 0.0).take(0, 5, 0.0)
    here.tick()
    assert peers["b"].notes[1:] == [Spent(RATE, [("u", 0, 5)])]


def test_many_users_are_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spending, "MOST_USERS", 3)
    monkeypatch.setattr(spending, "USERS_A_NOTE", 2)
    peer, table = Node(), BucketTable(Rate(10.0))
    here = spending_of({"b": peer}, table)
    for user in ("u", "v", "l" * (MAX_NAME + 1), "w"):
        table.of(user, 0.0).take(1, 1, 0.0)
    here.tick()
    here.tick()
    assert peer.notes == [Spent(RATE, [("u", 1, 1), ("v", 1, 1)]), Spent(RATE, [("w", 1, 1)])]


def test_a_node_charges_users_that_are_here_and_reports_nothing_back() -> None:
    peer, table = Node(), BucketTable(Rate(10.0, 1000.0))
    here = spending_of({"b": peer}, table)
    buckets = table.of("u", 0.0)
    here.on_spent(Spent(RATE, [("u", 4, 100), ("elsewhere", 4, 100)]))
    here.on_spent(Spent("a rate of its own", [("u", 4, 100)]))
    assert (buckets.have(6, 900, 0.0), buckets.have(7, 0, 0.0), buckets.have(0, 901, 0.0)) == (True, False, False)
    assert len(table) == 1
    here.tick()
    assert peer.notes == []


def test_two_nodes_together_give_a_user_its_rate() -> None:
    now = 0.0
    tables = [BucketTable(Rate(100.0)) for _ in range(2)]
    nodes = [Node(), Node()]
    both = [Spending({"other": nodes[1 - at]}, lambda: now) for at in range(2)]
    for at, each in enumerate(both):
        each.share({RATE: tables[at]})
    sent, free_at = [0, 0], [0.0, 0.0]
    while now < 60.0:
        for at in range(2):
            if now >= free_at[at]:
                sent[at] += 10
                free_at[at] = now + tables[at].of("u", now).take(10, 0, now)
        if round(now * 100) % 25 == 0:  # as often as nodes tick
            for each in both:
                each.tick()
            for at in range(2):
                for note in nodes[at].notes:
                    assert isinstance(note, Spent)
                    both[at].on_spent(note)
                nodes[at].notes.clear()
        now += 0.01
    assert 6_000 <= sum(sent) <= 6_000 + 2 * 100 + 100, "the rate, a burst each, and what the last tick has not told"
    assert min(sent) > 2_000, "none of them starves"
