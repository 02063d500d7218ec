"""The limits of queues that no option sets, with their reasons."""

from typing import Final

MAX_OUTSTANDING: Final = 20_000
"""Messages of one queue that are under way at a time: with consumers, waiting for their next attempt, or waiting for
another with their ordering key. Those with a busy key let others pass up to this number; then the backlog waits."""

MAX_OUTSTANDING_BYTES: Final = 64 * 1_048_576
"""The same in bytes of memory."""

PRIORITY_WINDOW: Final = 1_000
"""Messages at the front of a backlog among which those with the highest priority are first: the others are in the
store, and would have to be read to be compared."""

MAX_DEAD_LETTERS: Final = 10_000
MAX_DEAD_LETTER_BYTES: Final = 64 * 1_048_576
"""Dead letters that are kept of one queue, in memory too; for one more the oldest is dropped and counted."""

MAX_FORWARDED: Final = 10_000
"""Dead letters that are on their way to `dead_letter_topic`: as many as one queue keeps."""

DUE_PER_STEP: Final = 500
"""Leases that end, or attempts that are due, in one step: some milliseconds."""

MAX_PULLED: Final = 1_000
"""Messages that one pull gets."""

MAX_ACK_IDS: Final = 1_000
"""Messages that one publish to `$ack`, `$nack` or `$extend` names."""

MAX_NACK_DELAY_S: Final = 86_400.0
"""How long a consumer may put a message off."""

ENTRY_BYTES: Final = 600
"""What a message that is under way takes beside the message, about."""
