"""Commands about several things, of which some are not there."""

import pytest

from mqttlite.cli.ask_admin import NotFound, ask_each


def test_each_name_is_asked_about_once_and_one_that_is_missing_keeps_no_other_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[str] = []

    def ask(name: str) -> None:
        asked.append(name)
        if name == "b":
            raise NotFound("there is no b")

    assert ask_each(["a", "b", "a", "c"], ask) == (["a", "c"], ["b"])
    assert asked == ["a", "b", "c"]
    assert capsys.readouterr().err == "Error: there is no b\n"
