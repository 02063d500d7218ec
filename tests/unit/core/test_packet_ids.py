"""Identifiers in ranges are the same as identifiers one by one."""

from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.session.packet_ids import PacketIds
from mqttlite.wire.blocks import PUBRELS, counted

ids = st.integers(1, 12)
actions = st.lists(st.tuples(st.sampled_from(["add", "discard", "acknowledge", "ask"]), ids, st.integers(1, 5)))


@given(actions)
def test_they_behave_like_an_ordered_set(actions: list[tuple[str, int, int]]) -> None:
    real, oracle = PacketIds(), dict[int, None]()
    for action, first, count in actions:
        run = range(first, first + count)
        if action == "ask":
            assert real.has_any(first, count) == any(each in oracle for each in run)
        elif action == "add" and not any(each in oracle for each in run):
            real.add(first, count)
            oracle.update(dict.fromkeys(run))
        elif action == "discard":
            assert real.discard(first) == (first in oracle)
            oracle.pop(first, None)
        elif action == "acknowledge":
            taken = real.take_leading(b"?" + counted(PUBRELS, first, count), 1, PUBRELS)
            for each in run[:taken]:
                del oracle[each]
        assert real.all() == list(oracle)
        assert len(real) == len(oracle)
        assert [each for each in range(1, 20) if real.has(each)] == sorted(oracle)


def test_those_that_are_counted_up_go_in_one_step() -> None:
    real = PacketIds()
    real.add(1, 300)
    real.add(301, 200)
    assert real.take_leading(counted(PUBRELS, 1, 400), 0, PUBRELS) == 400
    assert real.all() == list(range(401, 501))
