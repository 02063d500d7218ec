"""`why --follow` at several nodes, without a broker."""

import json
from typing import Any

import pytest

from mqttlite.cli import ask as asking
from mqttlite.cli import following
from mqttlite.cli.asker import Answer, Place
from mqttlite.cli.following import Following


class Brokers:
    """`nodes` is what `/nodes` answers."""

    def __init__(self, nodes: Answer) -> None:
        self.nodes = nodes

    def ask(self, where: Place, target: str, _timeout_s: float) -> Answer:
        if target == "/nodes":
            return self.nodes
        return Answer(200, json.dumps({"latest": 1, "node": where.node or "a"}).encode())


def listed(*nodes: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps({"items": nodes}).encode())


def refused(status: int, detail: str) -> Answer:
    return Answer(status, json.dumps({"detail": detail}).encode(), is_problem=True)


B_AWAY = {"name": "b", "state": "away", "reason": "nothing was heard for 3 s"}
C = {"name": "c", "state": "connected", "reason": ""}


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    found = Brokers(listed(B_AWAY, C))
    for module in (following, asking):  # `ask_json` asks there
        monkeypatch.setattr(module, "ask", found.ask)
    return found


def test_a_node_that_is_away_is_named_once_with_the_reason(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    followed = Following(Place(), "#", 1.0)
    for _ in range(2):
        assert [node for node, _ in followed.look()] == ["a", "c"]
    assert capsys.readouterr().err == "Node b is not followed: nothing was heard for 3 s\n"
    brokers.nodes = listed(B_AWAY | {"state": "connected"}, C)
    assert [node for node, _ in followed.look()] == ["a", "b", "c"]
    brokers.nodes = listed(B_AWAY, C)
    list(followed.look())
    assert capsys.readouterr().err == "Node b is not followed: nothing was heard for 3 s\n"


def test_a_refused_list_of_nodes_is_told_once(brokers: Brokers, capsys: pytest.CaptureFixture[str]) -> None:
    followed = Following(Place(), "#", 1.0)
    brokers.nodes = refused(403, "the role viewer is needed")
    for _ in range(2):
        assert len(list(followed.look())) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("No other node is followed: ")
    assert "role viewer is needed" in line


def test_a_broker_that_serves_no_list_of_nodes_is_followed_alone_without_a_word(
    brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    brokers.nodes = refused(404, "there is no such route")
    assert len(list(Following(Place(), "#", 1.0).look())) == 1
    assert capsys.readouterr().err == ""
