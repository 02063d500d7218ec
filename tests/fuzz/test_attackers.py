"""Attackers beside neighbours, briefly: what is forbidden does not happen, and what is let happen is found."""

import pytest

from tests.fuzz.attackers import attack


@pytest.mark.slow
@pytest.mark.parametrize("leak", [False, True])
async def test_attackers_read_and_write_what_they_may_and_nothing_else(leak: bool) -> None:
    for seconds in (1.5, 6, 24):  # a loaded machine needs longer for the first thing that is permitted
        report = await attack(seconds, 19, quiet_s=0.2, leak=leak)
        if report.permitted or (report.violations and not leak):
            break
    assert all(report.connections.values())
    assert report.answers["weak"]
    assert report.permitted
    if leak:
        assert any("secret/now" in violation for violation in report.violations)
    else:
        assert report.violations == []
