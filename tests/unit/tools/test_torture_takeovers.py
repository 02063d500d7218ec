"""The client of the torture that connects at all nodes at once."""

import random

import pytest

from tools import torture_takeovers
from tools.torture_promises import Result
from tools.torture_takeovers import Takeovers


async def test_a_fight_in_which_nobody_can_connect_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    async def subscribe(_: Takeovers) -> None:
        return

    monkeypatch.setattr(torture_takeovers, "TAKEOVER_S", 0.01)
    monkeypatch.setattr(Takeovers, "_subscribe", subscribe)
    with pytest.raises(AssertionError, match="takeovers are missing"):
        await Takeovers([1], random.Random(1)).fight(2, Result())  # nothing listens at the port 1
