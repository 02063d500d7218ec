"""The document says what the tables say, and the sources name no statement that there is not."""

from mqttlite.wire.constants import V5, V311
from tests.conformance.document import PATH, document, essence, misspelt, without_code

AGAIN = "run tools/conformance, and commit docs/reference/conformance.md"


def test_it_is_up_to_date() -> None:
    """But for code and results, which are those of the run that made it."""
    assert essence(PATH.read_text(encoding="utf-8")) == essence(document(None)), AGAIN


def test_it_was_made_when_all_was_well() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert text.count("Uncovered statements that bind a server: **none**.") == 2, AGAIN
    assert "| failed |\n" not in text, AGAIN
    assert "| not run |\n" not in text, AGAIN


def test_an_id_in_the_sources_is_one_of_the_standard() -> None:
    assert misspelt() == []


def test_what_binds_a_server_is_named_where_the_code_keeps_it() -> None:
    assert {version: without_code(version) for version in (V5, V311)} == {V5: [], V311: []}
