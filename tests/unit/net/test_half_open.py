"""Which connection goes when there is no room for one more."""

from typing import cast

import pytest

from mqttlite.net.half_open import HalfOpen
from mqttlite.net.link import Link


def links(count: int) -> list[Link]:
    return [cast(Link, object()) for _ in range(count)]


@pytest.mark.parametrize("limit", [1, 3])
def test_it_is_full_at_its_limit(limit: int) -> None:
    half_open = HalfOpen(limit)
    for link in links(limit):
        assert not half_open.is_full
        half_open.add(link, lambda: None, 0.0)
    assert half_open.is_full


def test_the_oldest_is_closed_first_and_keeps_its_place_when_it_is_noted_again() -> None:
    half_open = HalfOpen(3)
    closed: list[str] = []
    first, second, third = links(3)
    half_open.add(first, lambda: closed.append("first"), 1.0)
    half_open.add(second, lambda: closed.append("second"), 2.0)
    half_open.add(third, lambda: closed.append("third"), 3.0)
    half_open.add(first, lambda: closed.append("first, later"), 4.0)
    half_open.discard(second)
    half_open.discard(second)
    assert half_open.close_oldest(5.0)
    assert half_open.close_oldest(5.0)
    assert not half_open.close_oldest(5.0)
    assert closed == ["first", "third"]


def test_none_is_closed_that_was_opened_later() -> None:
    half_open = HalfOpen(3)
    closed: list[str] = []
    (only,) = links(1)
    half_open.add(only, lambda: closed.append("only"), 2.0)
    assert not half_open.close_oldest(1.9)
    assert half_open.close_oldest(2.0)
    assert closed == ["only"]
