"""The tables of the database, and its version numbers.

Each commit writes its messages as *chunks*: consecutive records in one blob. A row of `queue` assigns a run of them to
a session: `count` messages from sequence `first` on, in `size` bytes of a chunk from `offset` on. `shape` holds the QoS
and RETAIN of their delivery, `extra` the subscription identifiers and, after a space, the shared subscription in hex.
So a message for many sessions is stored once, and costs each session a part of a row. `bytes` is the size of the run in
the limits of the queue, `total` its running sum, so that the size of the waiting messages follows from the first and
the last row. `state` has the sent, unacknowledged messages. `queues` has the records of features, named by their keys
without `LOG_MARK`; in `state`, `queue` and `ended` a record is like a session, with a number of its own. `commits` has
the number of the latest commit, and the highest message number.
"""

from typing import Final

APPLICATION_ID: Final = 0x6D71_746C
"""`mqtl`: marks the file as ours (`PRAGMA application_id`)."""

SCHEMA_VERSION: Final = 2
"""`PRAGMA user_version`. A database of a newer version is refused; one of an older version gets the missing tables."""

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
"""The tables added later, by version."""

INDEXES: Final = ("CREATE INDEX queue_by_chunk ON queue (chunk)",)

IS_ALIVE: Final = "session IN (SELECT id FROM sessions) OR session IN (SELECT id FROM queues)"
"""Whether the session of a row is there. It never is for a row of `ended`, unless its page is damaged."""
