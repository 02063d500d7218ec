"""The tables of the database, and what its version numbers mean.

Each commit writes its messages as *chunks*: records one behind the other in one blob. A row of `queue` gives a session
a run of them: `count` messages from the sequence `first` on, `size` bytes of a chunk from `offset` on, with the QoS and
RETAIN of their delivery in `shape`, and in `extra` its subscription identifiers and, behind a space, the shared
subscription that it came by, in hex. So a message for many sessions is stored once, and costs each a part of a row.
`bytes` is what the run counts in the limits of the queue, `total` the same summed up from the session's begin: so what
waits is known from the first and the last row. `state` has what was sent and is not acknowledged. `queues` has the
queues that consumers subscribe to: in `state`, `queue` and `ended` a queue is as a session, and no session has its
number. `commits` has the number of the latest commit, and the highest number of a message.
"""

from typing import Final

APPLICATION_ID: Final = 0x6D71_746C
"""`mqtl`: marks the file as ours (`PRAGMA application_id`)."""

SCHEMA_VERSION: Final = 2
"""`PRAGMA user_version`. A database of a newer version is refused, one of an older version gets the tables that it
lacks."""

TABLES: Final = {
    "commits": "CREATE TABLE commits (id INTEGER PRIMARY KEY CHECK (id = 1), number INTEGER NOT NULL, "
    "message INTEGER NOT NULL)",
    "sessions": "CREATE TABLE sessions (id INTEGER PRIMARY KEY, client_id TEXT NOT NULL UNIQUE, data BLOB NOT NULL)",
    "queues": "CREATE TABLE queues (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, data BLOB NOT NULL)",
    "ended": "CREATE TABLE ended (session INTEGER PRIMARY KEY)",
    "subscriptions": (
        "CREATE TABLE subscriptions (session INTEGER NOT NULL, topic_filter BLOB NOT NULL, data BLOB NOT NULL, "
        "PRIMARY KEY (session, topic_filter)) WITHOUT ROWID"
    ),
    "wills": "CREATE TABLE wills (session INTEGER PRIMARY KEY, due_at REAL NOT NULL, data BLOB NOT NULL)",
    "state": "CREATE TABLE state (session INTEGER PRIMARY KEY, head INTEGER NOT NULL, data TEXT NOT NULL, crc INTEGER)",
    "chunks": "CREATE TABLE chunks (id INTEGER PRIMARY KEY, data BLOB NOT NULL)",
    "queue": (
        "CREATE TABLE queue (session INTEGER NOT NULL, first INTEGER NOT NULL, count INTEGER NOT NULL, "
        "chunk INTEGER NOT NULL, offset INTEGER NOT NULL, size INTEGER NOT NULL, shape INTEGER NOT NULL, "
        "extra TEXT NOT NULL, bytes INTEGER NOT NULL, total INTEGER NOT NULL, crc INTEGER NOT NULL, "
        "PRIMARY KEY (session, first)) WITHOUT ROWID"
    ),
    "retained": "CREATE TABLE retained (topic BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",
    "delayed": "CREATE TABLE delayed (number INTEGER PRIMARY KEY, due_at REAL NOT NULL, data BLOB NOT NULL)",
}

ADDED: Final = {"queues": 2}
"""The tables that came later, by the version that has them."""

INDEXES: Final = ("CREATE INDEX queue_by_chunk ON queue (chunk)",)
