"""The document says what the tables say, and the sources name no statement that there is not."""

import pytest

from mqttlite.wire.constants import V5, V311
from tests.conformance import authenticating
from tests.conformance.__main__ import Recorder
from tests.conformance.document import PATH, document, essence, misspelt, without_code

AGAIN = "run tools/conformance, and commit docs/reference/conformance.md"


@pytest.mark.long
def test_it_is_up_to_date() -> None:
    """But for code and results, which are those of the run that made it."""
    assert essence(PATH.read_text(encoding="utf-8")) == essence(document(None)), AGAIN


def test_it_was_made_when_all_was_well() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert text.count("Uncovered statements that bind a server: **none**.") == 2, AGAIN
    assert "| failed |\n" not in text, AGAIN
    assert "| not run |\n" not in text, AGAIN


@pytest.mark.parametrize("case", [(V5, "where", "before", "first"), ("user_property",), ("subject", "CONNECT")])
def test_a_row_of_a_table_that_is_one_test_is_nothing_by_itself(case: tuple[object, ...]) -> None:
    recorder = Recorder()
    recorder.on_row(case, True)
    assert recorder.run.of_rows == {}


def test_a_row_of_ours_or_of_what_is_malformed_is_noted_for_its_version() -> None:
    recorder = Recorder()
    row = authenticating.ROWS[0]
    recorder.on_row((row, V5), True)
    recorder.on_row((V311, row), False)
    recorder.on_row((V5, ("MQTT-1.5.4-1", "a sentence", "text")), True)
    assert recorder.run.of_rows == {
        (V5, "authenticating.py", row.sentence): {"passed": 1},
        (V311, "authenticating.py", row.sentence): {"failed": 1},
        (V5, "test_malformed.py", "a sentence"): {"passed": 1},
    }


@pytest.mark.long
def test_an_id_in_the_sources_is_one_of_the_standard() -> None:
    assert misspelt() == []


@pytest.mark.long
def test_each_statement_that_binds_a_server_is_named_where_the_code_keeps_it() -> None:
    assert {version: without_code(version) for version in (V5, V311)} == {V5: [], V311: []}
