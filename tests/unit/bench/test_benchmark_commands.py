"""The command line from end to end: quick refusals, and one short run of the real load generator."""

import shutil
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.results import load


def test_an_unknown_case_is_answered_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pingpong", "--cases", "no-such"]) == 2
    assert "there are fleet-800-1k, " in capsys.readouterr().err


def test_show_prints_what_a_missing_file_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "absent.jsonl"]) == 2
    assert capsys.readouterr().err == "bench: absent.jsonl: No such file or directory\n"


@pytest.mark.parametrize("argv", [[], ["no-such-group"], ["pingpong", "--rounds", "0"], ["show"]])
def test_a_wrong_command_line_is_refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(argv)
    assert "error: " in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(("group", "case"), [("pingpong", "pingpong"), ("stream", "stream-q0-16B-x1")])
def test_tcp_without_a_broker_is_measured(
    group: str, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kept.jsonl"
    alone = ["--raw", "--without", "mqttlite", "--without", "mosquitto", "--without", "amqtt"]
    assert (
        main([group, "--cases", case, *alone, "--quick", "--extra=--secs 0.1", "--wait", "0", "--out", str(out)]) == 0
    )
    kept = load(out)
    (machine,), (result,) = kept.machines, kept.results
    assert (result.broker, result.case, result.drained, result.error) == ("raw", case, "all", None)
    assert result.figures["received"] > 100
    assert result.figures["lost"] == 0
    assert f"### {case}" in capsys.readouterr().out
    assert machine.brokers == {}
    assert main(["show", str(out)]) == 0
    assert f"### {case}" in capsys.readouterr().out
