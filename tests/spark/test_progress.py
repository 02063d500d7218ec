"""What somebody at a terminal sees of a run, and what a log does."""

import io

import pytest

from spark_analytics.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_has_a_line_for_each_step_when_it_is_done() -> None:
    log = io.StringIO()
    progress = Progress(log, 3)
    with progress.step("sessions"), progress.step("traffic"):
        assert log.getvalue() == ""
    with pytest.raises(OSError, match="full"), progress.step("page"):
        raise OSError("full")
    assert [line.rsplit(" ", 2)[0] for line in log.getvalue().splitlines()] == ["[1/3] traffic", "[2/3] sessions"]


def test_a_terminal_has_one_line_with_what_is_under_way_longest() -> None:
    terminal = Terminal()
    progress = Progress(terminal, 2)
    with progress.step("sessions"):
        with progress.step("traffic"):
            assert terminal.getvalue().endswith("0/2 sessions and 1 more …")
        assert terminal.getvalue().endswith("1/2 sessions …")
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "\n" not in terminal.getvalue()


@pytest.mark.parametrize(("stream", "told"), [(io.StringIO(), "! slow\n"), (Terminal(), "\r\x1b[K! slow\n")])
def test_findings_stay_on_the_terminal(stream: io.StringIO, told: str) -> None:
    progress = Progress(stream, 2)
    with progress.step("sessions"):
        before = len(stream.getvalue())
        progress.tell("! slow")
        said = stream.getvalue()[before:]
        assert said.startswith(told)
        assert said.removeprefix(told).endswith("0/2 sessions …" if stream.isatty() else "")
