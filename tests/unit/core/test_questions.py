"""Questions go out with an id and come back with an answer, whatever asks."""

import pytest

from mqttlite.core.effects import Effects
from mqttlite.core.question import Question
from mqttlite.core.questions import Questions
from mqttlite.wire.errors import ServerBusy
from tests.support.core_driver import World


class LoadPage:
    """A question of a kind that the broker does not know."""

    def __init__(self, page: int) -> None:
        self.id = 0
        self.page = page


class Reader:
    """Asks for pages."""

    def __init__(self) -> None:
        self.pages: dict[int, object] = {}

    def on_answer(self, question: Question, answer: object) -> None:
        assert isinstance(question, LoadPage)
        self.pages[question.page] = answer


def test_a_new_kind_of_question_passes_through_the_broker() -> None:
    broker = World().broker
    reader = Reader()
    for page in (7, 8):
        broker.questions.ask(LoadPage(page), reader)
    first, second = broker.effects.questions
    assert first.id != second.id
    broker.answer(second.id, b"eight", 1.0)
    broker.answer(first.id, b"seven", 1.0)
    assert reader.pages == {7: b"seven", 8: b"eight"}
    assert len(broker.questions) == 0


def test_an_answer_that_nobody_waits_for_is_harmless() -> None:
    questions, reader = Questions(Effects()), Reader()
    question, forgotten = LoadPage(1), LoadPage(2)
    questions.ask(question, reader)
    questions.ask(forgotten, reader)
    questions.forget(forgotten.id)
    questions.forget(forgotten.id)
    for _ in range(2):
        questions.answer(question.id, "once")
    questions.answer(forgotten.id, "never")
    questions.answer(99, "never")
    assert reader.pages == {1: "once"}


def test_no_more_questions_are_open_than_the_limit_allows() -> None:
    effects = Effects()
    questions, reader = Questions(effects, 2), Reader()
    questions.ask(LoadPage(1), reader)
    questions.ask(LoadPage(2), reader)
    with pytest.raises(ServerBusy):
        questions.ask(LoadPage(3), reader)
    assert len(effects.questions) == 2
    questions.forget(effects.questions[0].id)
    questions.ask(LoadPage(3), reader)
    assert len(questions) == 2


def test_a_connection_that_ends_forgets_its_question() -> None:
    world = World()
    client = world.open(must_authenticate=True)
    client.connect("c")
    assert len(world.broker.questions) == 1
    assert "waits for an answer" in repr(client.connection)
    client.lose()
    assert len(world.broker.questions) == 0
    world.answer(client, True)
    assert len(world.broker.sessions) == 0
