"""Questions: what the core asks of the adapters when it cannot know or must wait: a client's password, say.

A question goes out in `Effects.questions`, and its answer comes back by `Broker.answer` under the question's id. To add
a kind of question, write its class and an `Asker` for it; the broker passes both on and looks at neither.
Invariant: a question is in the table until it is answered or forgotten; `MAX_OPEN_QUESTIONS` bounds the table.
"""

from typing import Final, Protocol, final

from mqttlite.core.effects import Effects
from mqttlite.core.limits import MAX_OPEN_QUESTIONS
from mqttlite.core.question import Question
from mqttlite.wire.errors import ServerBusy


class Asker(Protocol):
    """The part of the core that a question belongs to."""

    def on_answer(self, question: Question, answer: object) -> None:
        """Continue with the answer. It raises nothing: an error that a peer caused ends that peer's connection."""
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
        """Give a question its id and send it out. Raises `ServerBusy` when too many are open, unless it is `urgent`:
        such an asker has a limit of its own."""
        if len(self._open) >= self._most and not urgent:
            raise ServerBusy(f"{self._most} questions wait for their answers, which is the limit")
        self._last_id += 1
        question.id = self._last_id
        self._open[question.id] = (question, asker)
        self._effects.questions.append(question)

    def answer(self, question_id: int, answer: object) -> None:
        """Hand an answer to the asker; harmless for a question that was answered or forgotten."""
        entry = self._open.pop(question_id, None)
        if entry is not None:
            entry[1].on_answer(entry[0], answer)

    def forget(self, question_id: int) -> None:
        """Nobody waits for the answer any more; harmless for a question that is not open."""
        self._open.pop(question_id, None)
