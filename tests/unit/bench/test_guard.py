"""The guard over instruction counts: what it says, what it keeps, and that it notices a core that got slower."""

import json
import shutil
from pathlib import Path
from typing import Literal

import pytest

from bench.guard import command, counting, judge
from bench.guard.alone import MESSAGES, Alone
from bench.guard.bridging import Bridging
from bench.guard.driver import IN_CORE, PIECES, WARM_UP

HERE = "CPython 3.11, here"
ROOT = Path(__file__).resolve().parents[3]

needs_valgrind = pytest.mark.skipif(
    shutil.which("valgrind") is None or shutil.which("cc") is None, reason="needs valgrind and a C compiler"
)


@pytest.mark.parametrize("share", [0.5, 0.5 * 1.0299, 0.5 * 0.9701])
def test_a_cost_equal_to_the_accepted_one_passes(share: float) -> None:
    verdict = judge.judge(HERE, {"match": share}, {HERE: {"match": 0.5}})
    assert verdict == judge.Verdict(False, ("1 pieces of work cost what was accepted, within 3.0 %.",))


def test_a_higher_cost_fails_and_says_how_to_accept_it() -> None:
    kept = {HERE: {"match": 0.5, "walk": 0.2}}
    verdict = judge.judge(HERE, {"match": 0.5 * 1.031, "walk": 0.2}, kept)
    assert verdict.dearer
    assert verdict.sentences == (
        "Dearer: match costs 3.1 % more instructions than was accepted. "
        "If that is the price of something worth it: python -m bench guard --accept",
    )


def test_a_lower_cost_passes_and_asks_to_be_kept() -> None:
    verdict = judge.judge(HERE, {"match": 0.25}, {HERE: {"match": 0.5}})
    assert not verdict.dearer
    assert verdict.sentences == ("Cheaper: match 50.0 %. So that it stays so: python -m bench guard --accept",)


@pytest.mark.parametrize(
    ("now", "said"), [({"match": 0.5, "walk": 0.1}, "walk is new"), ({}, "match is gone")], ids=["new", "gone"]
)
def test_a_piece_of_work_that_was_not_kept_fails_so_that_none_is_unguarded(now: dict[str, float], said: str) -> None:
    verdict = judge.judge(HERE, now, {HERE: {"match": 0.5}})
    assert verdict.dearer
    assert said in verdict.sentences[0]


def test_an_interpreter_of_which_nothing_was_kept_passes_and_is_told_so() -> None:
    verdict = judge.judge("PyPy 9", {"match": 0.5}, {HERE: {"match": 0.1}})
    assert not verdict.dearer
    assert "no figures were kept for PyPy 9 (kept: CPython 3.11, here)" in verdict.sentences[0]


def test_accepting_keeps_the_figures_of_other_interpreters(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    judge.accept(HERE, {"match": 0.5}, path)
    judge.accept("PyPy 9", {"match": 0.1}, path)
    judge.accept(HERE, {"match": 0.4}, path)
    assert judge.load(path) == {HERE: {"match": 0.4}, "PyPy 9": {"match": 0.1}}


def test_the_figures_that_are_kept_are_of_both_builds_and_of_all_the_work() -> None:
    kept = judge.load()
    assert {name.split(", ")[-1].split()[0] for name in kept} == {"pure", "compiled"}
    for shares in kept.values():
        assert shares.keys() == PIECES.keys() - {counting.CALIBRATION}


@pytest.mark.parametrize("name", IN_CORE)
def test_each_piece_of_work_can_be_done_again_and_again(name: str) -> None:
    work = IN_CORE[name]()
    for _ in range(WARM_UP + 2):
        work()


class Mark:
    """What callgrind would be told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def counting_pauses(self) -> None:
        self.said.append("pauses")

    def counting_goes_on(self) -> None:
        self.said.append("goes on")


@pytest.mark.parametrize("retain", [False, True])
def test_messages_that_come_alone_pass_from_end_to_end_again_and_again(retain: bool) -> None:
    mark = Mark()
    alone = Alone(mark, [b"site/#", b"$share/workers/site/#", b"$share/workers/site/#"], retain=retain)
    for _ in range(2):
        alone.work()
    alone.close()
    assert mark.said == ["pauses", "goes on"] * (len(mark.said) // 2)
    assert len(mark.said) > 2 * 2 * MESSAGES * 3, "published, received, and acknowledged by two"


@pytest.mark.parametrize("direction", ["out", "in"])
def test_messages_pass_through_a_bridge_again_and_again(direction: Literal["out", "in"]) -> None:
    mark = Mark()
    bridging = Bridging(mark, direction)
    for _ in range(2):
        bridging.work()
    bridging.close()
    assert mark.said == ["pauses", "goes on"] * (len(mark.said) // 2)
    assert len(mark.said) >= 2 * 2 * 2, "sent, and acknowledged, twice"


def test_without_valgrind_the_command_says_so_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(counting.shutil, "which", lambda _name: None)
    assert command.run(accept=False) == 0
    assert "Instructions were not counted: valgrind is not installed" in capsys.readouterr().err
    assert command.run(accept=True, kept=tmp_path / "kept.json") == 1


@pytest.mark.long
def test_a_compiled_build_of_other_sources_is_not_taken_for_this_one(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "mqttlite", tmp_path / "mqttlite", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    assert command.same_sources(ROOT, tmp_path)
    with (tmp_path / "mqttlite" / "topics" / "tree.py").open("a") as source:
        source.write("# edited\n")
    assert not command.same_sources(ROOT, tmp_path)


DUMP = """\
desc: Trigger: Client Request: match
positions: line
events: Ir
fl=(1) match.c
fn=(1) work
10 5
+2 7
cfn=(2) unlink_chunk.constprop.0
calls=3 20
* 300
-1 1
fn=(2)
20 300
fn=(3) memcpy
0 30
totals: 343
"""


def test_all_instructions_count_but_those_that_search_for_free_memory() -> None:
    assert counting._read(DUMP) == ("match", 5 + 7 + 1 + 30)


SLOWER = """
_feed = Broker.feed
def _slower(self, connection, data, now):
    for _ in range(3_000):
        pass
    return _feed(self, connection, data, now)
Broker.feed = _slower
"""


@pytest.mark.slow
@needs_valgrind
def test_a_core_that_got_slower_is_noticed_and_the_same_core_is_not(tmp_path: Path) -> None:
    """Three thousand empty turns for each chunk, whatever else is going on on this machine."""
    copy = tmp_path / "slower"
    shutil.copytree(ROOT / "mqttlite", copy / "mqttlite", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    piece = "QoS 1 there and back"
    now = counting.shares(copy, [piece])
    kept = {HERE: now}
    assert not judge.judge(HERE, counting.shares(copy, [piece]), kept).dearer
    with (copy / "mqttlite" / "core" / "broker.py").open("a") as source:
        source.write(SLOWER)
    verdict = judge.judge(HERE, counting.shares(copy, [piece]), kept)
    assert verdict.dearer
    assert json.dumps(verdict.sentences[0]).startswith(f'"Dearer: {piece} costs ')
