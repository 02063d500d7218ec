"""What users take of their rates, at all nodes together.

Each node charges what its clients take, and several times a second tells the others, which charge it, too. So the
buckets of a user are about the same at all nodes, and those who wait for a debt wait about as long. What is lost on the
way is not told again. A node that was away charges nothing of what it missed.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from mqttlite.core.load.rate_limits import BucketTable
from mqttlite.extensions.nodes.blobs import Note, Spent

KNOWS_SPENT: Final = 3
"""The `minor` from which on a node charges what it is told."""

MOST_USERS: Final = 1_000
"""The most users of a rate that are reported at once; the others follow a moment later."""

USERS_A_NOTE: Final = 200
"""The most users in one note, so that NATS carries it: 200 KiB."""

MAX_NAME: Final = 256
"""Users with longer names, in characters, count at each node alone."""


class Other(Protocol):
    """The part of a `Peer` that is used here."""

    @property
    def is_connected(self) -> bool: ...
    @property
    def minor(self) -> int: ...
    def note(self, note: Note) -> None: ...


class Spending:
    """`peers` are all other nodes by name. `clock` gives the time of the loop."""

    def __init__(self, peers: Mapping[str, Other], clock: Callable[[], float]) -> None:
        self._peers: Final = peers
        self._clock: Final = clock
        self._rates: Mapping[str, BucketTable] = {}

    def share(self, rates: Mapping[str, BucketTable]) -> None:
        """The rates of users, by names that are the same at all nodes. Call it before there are clients."""
        self._rates = rates
        for table in rates.values():
            table.share()

    def tick(self) -> None:
        """Called several times a second."""
        for name, table in self._rates.items():
            users = [each for each in table.taken(MOST_USERS) if len(each[0]) <= MAX_NAME]
            notes = [Spent(name, users[at : at + USERS_A_NOTE]) for at in range(0, len(users), USERS_A_NOTE)]
            for peer in self._peers.values():
                if peer.is_connected and peer.minor >= KNOWS_SPENT:
                    for note in notes:
                        peer.note(note)

    def on_spent(self, note: Spent) -> None:
        """Another node says what its clients took. It may have rates that are not known here."""
        table = self._rates.get(note.rate)
        if table is not None:
            now = self._clock()
            for user, messages, size in note.users:
                table.charge(user, messages, size, now)
