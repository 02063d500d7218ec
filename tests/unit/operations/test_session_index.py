"""The index of sessions is in order and up to date, whatever began and ended since it was last asked."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqttlite.operations import session_index
from mqttlite.operations.session_index import SessionIndex
from tests.support.core_driver import World

NAMES = st.sampled_from([f"{number}" for number in range(12)])


async def living(world: World, index: SessionIndex) -> list[str]:
    names = await index.names()
    assert names == sorted(set(names))
    return [name for name in names if world.broker.sessions.get(name) is not None]


@pytest.mark.long
@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["begin", "end", "look"]), NAMES), max_size=40))
async def test_it_has_all_sessions_in_their_order(steps: list[tuple[str, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_index, "CHUNK", 3)
        world = World()
        index = SessionIndex(world.broker.sessions)
        for what, name in steps:
            if what == "begin":
                world.connect(name, expiry=9)
            elif what == "end":
                world.broker.end_session(name, world.now)
                world.settle()
            else:
                assert await living(world, index) == sorted(each.client_id for each in world.broker.sessions.values())
        assert await living(world, index) == sorted(each.client_id for each in world.broker.sessions.values())


async def test_names_of_ended_sessions_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_index, "CHUNK", 4)
    world = World()
    index = SessionIndex(world.broker.sessions)
    for number in range(100):
        world.connect(f"c{number}", expiry=9)
        await index.names()
        world.broker.end_session(f"c{number}", world.now)
        world.settle()
    assert len(await index.names()) <= 4
