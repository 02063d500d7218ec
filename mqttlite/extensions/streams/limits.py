"""The limits of streams."""

from typing import Final

MAX_STREAMS: Final = 1_000
"""The most streams of a broker. Each takes some kilobytes for each partition."""

MAX_ALL_PARTITIONS: Final = 10_000
"""The most partitions of all streams of a broker together."""

MAX_READERS: Final = 10_000
"""The most subscriptions to one stream: each message wakes those that wait for it."""

MAX_READERS_OF_CLIENT: Final = 100
"""The most subscriptions of one client to one stream, so that none takes the places of others."""

MAX_GROUPS: Final = 1_000
"""The most groups of one stream: each has a position in each partition."""

GROUP_EXPIRY_S: Final = 7 * 86_400.0
"""How long the positions of a group without subscriptions are kept: as long as Kafka keeps those of a group, so that a
consumer that is off for a holiday goes on where it was."""

DRAIN_S: Final = 5.0
"""How long the reader of a partition that moves has for the messages that it was sent."""

MAX_UNDER_WAY: Final = 4_000
MAX_UNDER_WAY_BYTES: Final = 64 * 1_048_576
"""The most messages, and bytes of memory, that members of a shared group hold or that wait for their next attempt. If
each second one is acknowledged, the record of their partitions has 40 kB."""

MAX_DEAD_PLACES: Final = 1_000
"""The most dead letters of a shared group: the list is one record of at most some 100 kB, and each new one writes it.
One more replaces the oldest, whose message stays in the stream."""

MAX_DEAD_DETAIL: Final = 100
"""The most characters of the detail of a dead letter."""

DUE_PER_STEP: Final = 500
"""Ended leases and due attempts of a shared group that are handled in one step: some milliseconds."""

SEGMENTS: Final = 256
"""Into how many segments the messages of a partition are divided by size, and by time. Retention removes whole
segments."""

USUAL_SEGMENT_BYTES: Final = 65_536
FEWEST_SEGMENTS: Final = 8
"""A segment is not smaller than that, because its beginning is recorded; but a small partition has as many segments, so
that it keeps at least 7/8 of what it may."""

RESERVES: Final = FEWEST_SEGMENTS
"""A full last-value stream takes messages that remove keys in a reserve of `keep_bytes` divided by this: as much as the
largest segment, so that the open one ends, and its removals are compacted."""

MAX_ACKS: Final = 100
MAX_ACKS_CHARACTERS: Final = 32_768
"""How many user properties `acks` come with a message, and how long they are together: the offsets of 1,000 partitions
take 25,000 characters at most."""

MAX_COMMAND_BYTES: Final = 32_768
"""The payload of a command: the offsets of 1,000 partitions take 25,000 bytes at most."""

TAIL_MESSAGES: Final = 4_096
TAIL_BYTES: Final = 1_048_576
"""How much of the newest messages of a stream with readers stays in memory, in all partitions together: who reads them
asks the store for nothing."""

READ_AHEAD: Final = 1_000
SHORT_READ_AHEAD: Final = READ_AHEAD // 4
"""The most messages that a reader gets from the store at a time, alone, and while others wait for their turns: the
commits of new messages wait until a page is read."""

SEARCHED: Final = 4
"""The most messages among which a reader that begins at a time looks for the first one by looking at each. Among more
it searches, with one question to the store at a time, which takes as long for one message as for some."""

BURST: Final = 64
"""How many messages a reader gets from one partition before it is the turn of the next one."""

MAX_CACHED_KEYS: Final = 10_000
"""For how many keys a stream remembers the partition."""

MAX_SOUGHT: Final = 100_000
"""The most messages of a partition that the search for a time looks at one by one, because some of them are late: a
hundred reads of the store."""

SEARCHED_AT_ONCE: Final = 32
"""In how many partitions a time is searched at the same time: each search waits for the store some eight times."""

MAX_MEASURED: Final = 50_000
MEASURED_AT_ONCE: Final = 1_000
"""After how many places, one for each reader or group and partition, a report of figures ends that measures how far
they are behind, which is after some tens of milliseconds of the loop, and how many are one step of it."""

MAX_ANSWERED: Final = 1_000
MAX_ANSWERED_BYTES: Final = 4_194_304
"""The most messages, and about the most bytes, that one HTTP answer has."""

MAX_CHARTED: Final = 20_000
MAX_POINTS: Final = 400
"""The most messages of a partition that are looked at for the chart of a topic, some tenths of a second, and the most
points of it: a screen shows no more."""

MAX_APPENDED: Final = 1_000
"""The most messages of an archive that a request appends: some ten milliseconds of the loop, and one commit."""

MAX_KEYS_OF_PASS: Final = 200_000
KEY_MEMORY_BYTES: Final = 160
"""How many keys a compaction learns at a time, and the memory of each: its digest, an offset, and a place in a dict.
One partition of the broker is compacted at a time."""

COMPACTED_AT_ONCE: Final = 500
"""The most messages that a step of a compaction looks at: some milliseconds of the loop and of the store."""

LONGEST_WAIT_S: Final = 60.0
"""Retention by age looks at a stream this often at least."""
