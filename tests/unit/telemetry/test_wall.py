"""The wall's time of the broker's seconds, also where the wall's clock jumps."""

from datetime import UTC, datetime, timedelta

from mqttlite.telemetry.wall import JUMP_S, Wall

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Clocks:
    def __init__(self) -> None:
        self.steady = 5_000.0
        self.wall = NOON.timestamp()

    def advance(self, seconds: float, jump_s: float = 0.0) -> None:
        self.steady += seconds
        self.wall += seconds + jump_s


def made(clocks: Clocks) -> Wall:
    return Wall(100.0, wall_clock=lambda: clocks.wall, steady_clock=lambda: clocks.steady)


def test_the_brokers_seconds_are_told_as_the_walls_time() -> None:
    wall = made(Clocks())
    assert wall.at(100.0) == NOON
    assert wall.at(130.5) == NOON + timedelta(seconds=30.5)


def test_a_clock_that_is_corrected_a_little_did_not_jump() -> None:
    clocks = Clocks()
    wall = made(clocks)
    clocks.advance(1_000.0, JUMP_S)
    assert wall.check() == 0.0
    assert wall.at(1_100.0) == NOON + timedelta(seconds=1_000)


def test_a_jump_is_told_once_and_followed() -> None:
    clocks = Clocks()
    wall = made(clocks)
    for jump_s in (3_600.0, -7_200.5):
        before = wall.at(150.0)
        clocks.advance(10.0, jump_s)
        assert abs(wall.check() - jump_s) < 1e-3
        assert wall.check() == 0.0
        assert abs(wall.at(150.0) - before - timedelta(seconds=jump_s)) < timedelta(milliseconds=1)


def test_small_steps_become_a_jump() -> None:
    clocks = Clocks()
    wall = made(clocks)
    clocks.advance(1.0, 0.6)
    assert wall.check() == 0.0
    clocks.advance(1.0, 0.6)
    assert abs(wall.check() - 1.2) < 1e-3
