"""The limits of queues that no option sets, with their reasons."""

from typing import Final

MAX_OUTSTANDING: Final = 20_000
"""Messages of one queue that are under way at a time: with consumers, waiting for their next attempt, or waiting for
another with their ordering key."""

MAX_OUTSTANDING_BYTES: Final = 64 * 1_048_576
"""The same in bytes of memory."""

MAX_LANE: Final = 1_000
"""Messages with one ordering key that are under way: one can be delivered, the others wait for it. What follows is
deferred: it waits in the store alone, and other keys pass it. While half of `MAX_OUTSTANDING` are under way, a key has
one."""

MAX_DEFERRED: Final = 200_000
"""Messages of one queue that are deferred: the sequence of each takes some 50 bytes. With more, the backlog waits. The
store keeps what came behind them, up to the queue's own limits, and then the backlog waits, too."""

DEFERRED_PER_STEP: Final = 500
"""How many messages are deferred before a queue gives way: a millisecond."""

PRIORITY_WINDOW: Final = 1_000
"""Messages at the front of a backlog among which those with the highest priority are first: the others are in the
store, and would have to be read to be compared."""

MAX_DEAD_LETTERS: Final = 10_000
MAX_DEAD_LETTER_BYTES: Final = 64 * 1_048_576
"""Dead letters that are kept of one queue, in memory too; for one more the oldest is dropped and counted."""

MAX_FORWARDED: Final = 10_000
"""Dead letters that are on their way to `dead_letter_topic`: as many as one queue keeps."""

ARRIVAL_S: Final = 0.01
"""How much longer a lease is than its deadline: what is written takes a moment until the consumer has read it, and for
the consumer its deadline begins then."""

COMMIT_S: Final = 0.05
"""The same for a lease that ends after a restart: what is on disk is the time from before its commit."""

DUE_PER_STEP: Final = 500
"""Leases that end, or attempts that are due, in one step: some milliseconds."""

MAX_PULLED: Final = 1_000
"""Messages that one pull gets."""

PULLERS_STAY_S: Final = 10.0
"""How long after a pull the next messages of a long queue stay in memory: a client pulls again when it has handled the
last ones, and the store would have to read the same messages once more."""

MAX_ACK_IDS: Final = 1_000
"""Messages that one publish to `$ack`, `$nack` or `$extend` names."""

MAX_NACK_DELAY_S: Final = 86_400.0
"""How long a consumer may put a message off."""

ENTRY_BYTES: Final = 600
"""What a message that is under way takes beside the message, about."""

MAX_GONE: Final = 100_000
"""Ranges of messages of one queue, among those that are retained, that never wait again. With more, the oldest retained
messages are dropped: each range takes about a hundred bytes."""

MAX_LATE: Final = 10_000
"""Ranges of messages of one queue that came after messages with higher numbers: a seek looks at each of them. With
more, those between them are looked at too."""

RETENTION_STEPS: Final = 100
"""Into how many parts the time is divided for which messages are retained: each is let go as a whole."""

WAY_PARTS: Final = 64
"""Retained messages give way to others by this part of what the queue holds at a time."""

RELEASED_PER_STEP: Final = 500
"""Messages that were passed over or purged, and are let go of in one step: about a millisecond."""

MAX_SNAPSHOTS: Final = 1_000
"""Snapshots of all queues: each keeps what it needs on disk."""

SNAPSHOT_S: Final = 7 * 86_400.0
"""How long a snapshot is kept, less the age of the oldest message that it has, as with Google Pub/Sub."""

LEAST_SNAPSHOT_S: Final = 3_600.0
"""A snapshot that would be kept for less is refused, as there."""

MAX_DETAIL: Final = 500
"""Characters of what a dead letter says beside its cause."""

MAX_INVALID: Final = 16
"""Queues that keep one message with a wrong payload as a dead letter, the first that are bound to its topic: each costs
about 50 µs."""
