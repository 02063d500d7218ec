"""A small flood: what was acknowledged arrives, and what the polite saw of it is told."""

import shutil

import pytest

from bench import flood


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_small_flood_loses_nothing_and_is_told_with_its_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "QoS 1, MQTT 5.0"
    monkeypatch.setattr(flood, "FLOODS", {name: flood.FLOODS[name]})
    small = flood.Flood(publishers=10, seconds=0.4, compiled=False, quiet_s=0.3, rest_s=0.2)
    assert flood.run(small) == 0
    _, _, row, *_, verdict = capsys.readouterr().out.splitlines()
    cells = [cell.strip() for cell in row.split("|")]
    acknowledged, lost = cells[-4].split(", ")
    assert cells[1] == name
    assert int(acknowledged) > 0
    assert lost == "0"
    assert verdict == "no acknowledged message was lost"
