"""Attackers beside neighbours, briefly: what is forbidden does not happen, and what is let happen is found."""

import pytest

from tests.fuzz.attackers import attack


@pytest.mark.slow
@pytest.mark.parametrize("leak", [False, True])
async def test_attackers_read_and_write_what_they_may_and_nothing_else(leak: bool) -> None:
    report = await attack(1.5, 19, quiet_s=0.2, leak=leak)
    assert all(report.connections.values())
    assert report.answers["weak"]
    assert report.permitted
    if leak:
        assert any("secret/now" in violation for violation in report.violations)
    else:
        assert report.violations == []
