"""A small storm: all clients that come get in, and the report has what clients at work saw of it."""

import shutil

import pytest

from bench import build, storm


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_a_small_storm_is_told_with_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    if not build.can_tls(build.loadgen()):
        pytest.skip("no OpenSSL headers")
    small = storm.Storm(clients=60, users=3, at_work=5, rate=200, compiled=False, quiet_s=0.5, rest_s=0.2)
    storm.run(small)  # what it says of the latency depends on the machine
    told = capsys.readouterr().out
    assert told.count("60 of 60") == 2
    assert "they come, passwords cold" in told
    assert "lost" not in told
