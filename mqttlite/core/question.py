"""The questions that the core asks: values with an id, which adapters answer.

Invariant: a question contains everything needed to answer it; the answering adapter reads nothing else from the core.
"""

from typing import Final, NamedTuple, Protocol, final

from mqttlite.core.message import Delivery


class Question(Protocol):
    """Any question. The core sets `id` when it asks."""

    id: int


@final
class Authenticate:
    """Asks whether to accept a client. The answer is a `Verdict`; until then the connection with this number waits.

    With a `method`, the question is how to answer `data`. `begins` marks the first question of an exchange: at CONNECT,
    or at a re-authentication, during which the client continues.
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
class Locate:
    """Asks whether the session of a client is here; until then the connection with this number waits. The answer is
    True. If another broker has the session, there is no answer: the adapter takes the connection from the core
    (`Broker.give_up`) and passes its bytes on."""

    __slots__ = ("client_id", "id", "must_authenticate", "number")

    def __init__(self, number: int, client_id: str, *, must_authenticate: bool) -> None:
        self.id: int = 0
        self.number: Final = number
        self.client_id: Final = client_id
        self.must_authenticate: Final = must_authenticate
        """Whether the client is authenticated after it."""


@final
class LoadPage:
    """Asks for the messages that wait for a session from sequence `first` on. The answer is a list of at most `count`
    consecutive deliveries, with None for each lost one. The adapter first commits all changes made so far, unless
    `is_committed` says that the messages are committed."""

    __slots__ = ("client_id", "count", "first", "id", "is_committed")

    def __init__(self, client_id: str, first: int, count: int, is_committed: bool = False) -> None:
        self.id: int = 0
        self.client_id: Final = client_id
        self.first: Final = first
        self.count: Final = count
        self.is_committed: Final = is_committed


@final
class LoadEntries:
    """Asks for up to `count` messages of a log with offsets from `first` to before `end`. The answer is `Entries`. The
    adapter first commits all changes made so far."""

    __slots__ = ("count", "end", "first", "id", "key")

    def __init__(self, key: str, first: int, end: int, count: int) -> None:
        self.id: int = 0
        self.key: Final = key
        self.first: Final = first
        self.end: Final = end
        self.count: Final = count


class Entries(NamedTuple):
    """Messages of a log with their offsets, in order."""

    found: list[tuple[int, Delivery]]
    following: int
    """The offset to go on from. There is no other message between the first offset that was asked for and this one."""
