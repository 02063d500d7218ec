"""The table of open questions: what the core asks adapters when the answer needs I/O, for example a password check.

A question leaves in `Effects.questions`, and its answer returns through `Broker.answer` with the question's id. To add
a kind of question, write its class and an `Asker`; the broker only passes both on. Invariant: a question is in the
table until it is answered or forgotten; `MAX_OPEN_QUESTIONS` bounds the table.
"""

from typing import Final, Protocol, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import MAX_OPEN_QUESTIONS
from mqttlite.core.question import Question
from mqttlite.wire.errors import ServerBusy


class Asker(Protocol):
    """The part of the core that a question belongs to."""

    def on_answer(self, question: Question, answer: object) -> None:
        """Continue with the answer. Must not raise: an error caused by a peer ends that peer's connection."""
        ...


@final
class Questions:
    """The open questions, by id."""

    __slots__ = ("_effects", "_last_id", "_most", "_open")

    def __init__(self, effects: Effects, most: int = MAX_OPEN_QUESTIONS) -> None:
        self._effects: Final = effects
        self._most: Final = most
        self._open: Final[dict[int, tuple[Question, Asker]]] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, question: Question, asker: Asker, urgent: bool = False) -> None:
        """Give a question its id and send it out. Raises `ServerBusy` when too many are open, unless it is `urgent`; an
        asker of urgent questions has its own limit."""
        if len(self._open) >= self._most and not urgent:
            raise ServerBusy(f"{self._most} questions wait for their answers, which is the limit")
        self._last_id += 1
        question.id = self._last_id
        self._open[question.id] = (question, asker)
        self._effects.questions.append(question)

    def answer(self, question_id: int, answer: object) -> None:
        """Pass an answer to the asker. Harmless for a question that was answered or forgotten."""
        entry = self._open.pop(question_id, None)
        if entry is not None:
            entry[1].on_answer(entry[0], answer)

    def forget(self, question_id: int) -> None:
        """Drop a question. Harmless if it is not open."""
        self._open.pop(question_id, None)
