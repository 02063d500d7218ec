"""The fixed limits of queues, with their reasons."""

from typing import Final

MAX_OUTSTANDING: Final = 20_000
"""Messages of one queue under way: held by consumers, waiting for their next attempt, or waiting for an earlier one
with their ordering key."""

MAX_OUTSTANDING_BYTES: Final = 64 * 1_048_576
"""The same in bytes of memory."""

MAX_LANE: Final = 1_000
"""Messages with the same ordering key under way: one is deliverable, the others wait for it. Later ones are deferred:
they wait only in the store, and other keys pass them. While half of `MAX_OUTSTANDING` is used, a key may have only
one."""

MAX_DEFERRED: Final = 200_000
"""Deferred messages of one queue; each sequence takes some 50 bytes. With more, the backlog waits. It also waits when
the messages that the store must keep because of deferred ones reach the queue's own limits."""

DEFERRED_PER_STEP: Final = 500
"""How many messages are deferred before other work gets its turn: a millisecond."""

PRIORITY_WINDOW: Final = 1_000
"""Messages at the front of a backlog that are ordered by priority. Later ones are in the store, and would have to be
read to be compared."""

MAX_DEAD_LETTERS: Final = 10_000
MAX_DEAD_LETTER_BYTES: Final = 64 * 1_048_576
"""Dead letters kept for one queue, also in memory. One more replaces the oldest, which is counted."""

MAX_FORWARDED: Final = 10_000
"""Dead letters that wait to be published to a `dead_letter_topic`: as many as one queue keeps."""

COMMIT_S: Final = 0.05
"""How much longer a lease is that ends after a restart: what is on disk is the time from before its commit."""

DUE_PER_STEP: Final = 500
"""Ended leases and due attempts handled in one step: some milliseconds."""

MAX_PULLED: Final = 1_000
"""The most messages of one pull."""

PULLERS_STAY_S: Final = 10.0
"""How long after a pull the next messages of a long queue stay in memory, because the client usually pulls again
soon."""

MAX_ACK_IDS: Final = 1_000
"""The most messages that one publish to `$ack`, `$nack` or `$extend` may name."""

MAX_NACK_DELAY_S: Final = 86_400.0
"""The longest delay that a consumer may request with `$nack`."""

ENTRY_BYTES: Final = 600
"""About how much memory a message under way takes in addition to the message."""

MAX_GONE: Final = 100_000
"""Ranges of messages that a seek cannot bring back, among the retained ones of a queue. With more, the oldest retained
messages are dropped. Each range takes about a hundred bytes."""

MAX_LATE: Final = 10_000
"""Ranges of messages of a queue that arrived after messages with higher numbers. A seek checks each of them. With more,
ranges are merged, and messages between them are checked too."""

RETENTION_STEPS: Final = 100
"""How many parts the retention time is divided into. Each part is released as a whole."""

WAY_PARTS: Final = 64
"""To make room, retained messages are released in steps of this fraction of the queue's limits."""

RELEASED_PER_STEP: Final = 500
"""Skipped or purged messages released in one step: about a millisecond."""

MAX_SNAPSHOTS: Final = 1_000
"""Snapshots of all queues. Each keeps messages on disk."""

SNAPSHOT_S: Final = 7 * 86_400.0
"""How long a snapshot is kept, minus the age of its oldest message, as in Google Pub/Sub."""

LEAST_SNAPSHOT_S: Final = 3_600.0
"""A snapshot that would be kept for less time is refused, as in Google Pub/Sub."""

MAX_DETAIL: Final = 500
"""The most characters of a dead letter's detail."""

MAX_INVALID: Final = 16
"""The most queues that keep a message with an invalid payload as a dead letter. Each costs about 50 µs."""
