"""Questions: values with an id, which the adapters answer.

Invariant: a question holds all that is needed to answer it; the adapter that answers reads nothing else of the core.
"""

from typing import Final, Protocol, final


class Question(Protocol):
    """Any question. The core gives it its `id` when it asks."""

    id: int


@final
class Authenticate:
    """May this client in? The answer is a `Verdict`; until then the connection of that number waits.

    With a `method` (else it is empty) the question is what to say to `data`; one that `begins` is the first of its
    exchange, at CONNECT, or when a connected client authenticates itself again and continues meanwhile.
    """

    __slots__ = ("begins", "client_id", "data", "id", "method", "number", "password", "username")

    def __init__(self, number: int, client_id: str, username: str | None, password: bytes | None) -> None:
        self.id: int = 0
        self.number: Final = number
        self.client_id: Final = client_id
        self.username: Final = username
        self.password: Final = password
        self.method: str = ""
        self.data: bytes | None = None
        self.begins: bool = True


@final
class LoadPage:
    """Which messages wait for a session from the sequence `first` on? The answer is a list of at most `count`
    deliveries that follow one another, with None for each that is lost. All changes up to now are committed first,
    unless the messages are known to be: `is_committed`."""

    __slots__ = ("client_id", "count", "first", "id", "is_committed")

    def __init__(self, client_id: str, first: int, count: int, is_committed: bool = False) -> None:
        self.id: int = 0
        self.client_id: Final = client_id
        self.first: Final = first
        self.count: Final = count
        self.is_committed: Final = is_committed
