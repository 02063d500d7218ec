"""What nodes send to each other.

Two nodes are joined by a *connection*, which the one with the smaller name opens. On it each sends `Data` with the
numbers 1, 2, 3, …, and so `Notes`: a missing number says that something was lost, and ends the connection.

What is added at the end of a blob or note, and has a default, is read by older nodes without it. A new kind of note is
sent only to nodes whose `minor` says that they know it; one that comes all the same is left alone, and named in an
alarm. Invariant: nodes of one `VERSION` work together, whichever `MINOR` they have.
"""

from typing import Final, TypeAlias

import msgspec

VERSION: Final = 3
"""Of these blobs. Nodes of different versions do not talk to each other."""

MINOR: Final = 3
"""Counts what was added since the version began. 1: sessions are moved by a node that drains. 2: moves have numbers.
3: `Spent`."""

MAX_KIND: Final = 40
"""How many characters of an unknown kind are told."""


class Load(msgspec.Struct, frozen=True, array_like=True):
    """What a node has to do."""

    clients: int = 0
    """Clients that are connected to it, or passed on to it."""
    sessions: int = 0
    received_per_s: int = 0
    """Messages."""
    sent_per_s: int = 0
    is_full: bool = False
    """Whether it has no room for another session."""


NO_LOAD: Final = Load()


class Hello(msgspec.Struct, frozen=True, tag="hello", array_like=True):
    """To all nodes, once a second: the sender runs, or ends."""

    version: int
    node: str
    run: int
    """A number that the node has drawn at its start."""
    is_leaving: bool = False
    minor: int = 0
    release: str = ""
    """The version of mqttlite."""
    drain: str = ""
    """`draining` or `drained`; empty: it takes sessions."""
    address: str = ""
    """Where clients find it, if it says so."""
    load: Load = NO_LOAD


class Open(msgspec.Struct, frozen=True, tag="open", array_like=True):
    """A connection begins, or with `is_answer` is accepted."""

    version: int
    node: str
    run: int
    connection: int
    """A number drawn by the node that opens it."""
    is_answer: bool
    is_new: bool
    """Whether the sender has no session for the other one, so that its packet identifiers begin anew."""
    receive_maximum: int
    """The most messages of QoS 1 and 2 that the sender takes unacknowledged."""
    max_packet_bytes: int
    """The largest packet that the sender takes."""


class Close(msgspec.Struct, frozen=True, tag="close", array_like=True):
    """A connection has ended."""

    node: str
    connection: int
    why: str
    """A sentence about the sender."""


class Data(msgspec.Struct, frozen=True, tag="data", array_like=True):
    """A part of what one node tells the other."""

    node: str
    connection: int
    number: int
    taken: int
    """The highest number of the other one's up to which the sender has handled all, and has all news on its disk."""
    is_whole: bool
    """Whether the filters up to here, with those in this blob, are all that the sender has."""
    news: list[tuple[bytes, int]]
    """Topic filters, each with the highest QoS of its subscribers at the sender, and names of shared subscriptions,
    each with the summary of its members there (`core.share_interest`), and names of queues and streams that are there
    (`places`); below 0, there are none any more."""
    packets: bytes
    """A piece of a row of MQTT 5.0 packets, cut at any place."""
    notes: int = 0
    """The number of the latest `Notes` before it."""
    handled: int = 0
    """The highest number of the other one's up to which the sender has handled all. A node without it says `taken`."""


class Ask(msgspec.Struct, frozen=True, tag="ask", array_like=True):
    """A client connects at the sender: who has its session?"""

    number: int
    """Of the question, among all that the sender asks."""
    stamp: int
    """Its time by Lamport's clock: greater than that of each question which the sender has heard before."""
    client_id: str


class Told(msgspec.Struct, frozen=True, tag="told", array_like=True):
    """The answer."""

    number: int
    holds: bool
    """Whether the sender has the session, or a client is about to begin it there."""
    username: str | None
    connected_us: int
    """When its client has last connected there, in microseconds of Unix time; 0 if that was before the node started."""
    at: str = ""
    """The node that has it, if the sender has just moved it there. Empty: the sender."""


class Forget(msgspec.Struct, frozen=True, tag="forget", array_like=True):
    """The client of that question does not come to the node that has its session."""

    number: int
    client_id: str


class Held(msgspec.Struct, frozen=True, tag="held", array_like=True):
    """A node has the session of a client. Told when it may be newer than one of the receiver."""

    node: str
    client_id: str
    username: str | None
    connected_us: int


class Begin(msgspec.Struct, frozen=True, tag="begin", array_like=True):
    """The client of a question comes to the session that the receiver has: through this pipe, whose bytes follow."""

    pipe: int
    """Its number. Those of the node with the smaller name are even."""
    number: int
    """Of the question."""
    client_id: str
    listener: str
    """The listener where it has connected, by a key that both nodes know."""
    address: str
    verified_name: str | None
    """The name in its certificate."""
    tls_version: str | None
    tls_cipher: str | None


class Reach(msgspec.Struct, frozen=True, tag="reach", array_like=True):
    """A client of the sender consumes from queues or streams of the receiver: through this pipe, whose bytes follow."""

    pipe: int
    client_id: str
    username: str | None
    mount_point: bytes
    keep_s: int
    """How long the receiver keeps its session without the pipe, if it keeps anything so long."""
    receive_maximum: int


class Reached(msgspec.Struct, frozen=True, tag="reached", array_like=True):
    """The answer: the client has a session there."""

    pipe: int
    filters: list[bytes]
    """What the session has subscribed to before, or a part of that."""
    is_whole: bool = True
    """Whether these are the last."""
    refusal: str = ""
    """Why there is none, as a sentence; the pipe ends then."""


class Leave(msgspec.Struct, frozen=True, tag="leave", array_like=True):
    """That client consumes from nothing at the receiver any more."""

    client_id: str


class Still(msgspec.Struct, frozen=True, tag="still", array_like=True):
    """Clients of the receiver that have sessions at the sender, and are not connected. The answer is `Leave` for those
    that want nothing there any more."""

    client_ids: list[str]


class Bytes(msgspec.Struct, frozen=True, tag="bytes", array_like=True):
    """Bytes of a pipe."""

    pipe: int
    data: bytes


class Room(msgspec.Struct, frozen=True, tag="room", array_like=True):
    """So many bytes of a pipe were taken."""

    pipe: int
    size: int


class End(msgspec.Struct, frozen=True, tag="end", array_like=True):
    """A pipe ends, behind all its bytes."""

    pipe: int


class Moved(msgspec.Struct, frozen=True, tag="moved", array_like=True):
    """A message that waited at the sender for a client that has its session at the receiver."""

    number: int
    client_id: str
    packet: bytes
    """A PUBLISH of MQTT 5.0, with a topic below the client's mount point."""


class Settled(msgspec.Struct, frozen=True, tag="settled", array_like=True):
    """The answer: the sender has it on disk, or has no session of the client."""

    number: int
    client_id: str
    is_there: bool


class Adopt(msgspec.Struct, frozen=True, tag="adopt", array_like=True):
    """The session of a client begins to move from the sender to the receiver."""

    client_id: str
    username: str | None
    mount_point: bytes
    expiry_interval: int
    attempt: int = 0
    """The number of the move, greater than of all before it. 0: the sender does not number them."""


class Filter(msgspec.Struct, frozen=True, array_like=True):
    """A subscription of a session that moves, as its client has made it."""

    topic_filter: bytes
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int
    where: str
    """Its filter on the content; empty: there is none."""


class Filters(msgspec.Struct, frozen=True, tag="filters", array_like=True):
    """Subscriptions of a session that moves, or a part of them."""

    client_id: str
    filters: list[Filter]
    is_last: bool
    attempt: int = 0
    """The number of the move, as in `Adopt`."""


class Adopted(msgspec.Struct, frozen=True, tag="adopted", array_like=True):
    """The answer to `Adopt`: the session has begun at the sender; or to the last `Filters`: it subscribes, and all
    nodes know it. Both are on disk."""

    client_id: str
    subscribes: bool
    refusal: str = ""
    """Why not, as a sentence."""
    attempt: int = 0
    """The number of the move, as in `Adopt`."""


class Yours(msgspec.Struct, frozen=True, tag="yours", array_like=True):
    """The session has moved: the receiver has it, and the sender ends its own."""

    client_id: str
    connected_us: int
    """When its client has last connected to the sender."""
    attempt: int = 0
    """The number of the move, as in `Adopt`."""


class Fence(msgspec.Struct, frozen=True, tag="fence", array_like=True):
    """Say when all messages that are on the way to the sender now have come there."""

    number: int


class Fenced(msgspec.Struct, frozen=True, tag="fenced", array_like=True):
    """The answer."""

    number: int


class Part(msgspec.Struct, frozen=True, tag="part", array_like=True):
    """A piece of a request to the other node's HTTP application, or of the answer."""

    number: int
    """Of the request, among all of the node that asks."""
    is_answer: bool
    data: bytes
    is_last: bool
    within_ms: int = 0
    """In the first piece of a request: how long the sender waits for the answer. 0: it does not say."""


class More(msgspec.Struct, frozen=True, tag="more", array_like=True):
    """The piece before was taken: send the next one."""

    number: int
    is_answer: bool


class Spent(msgspec.Struct, frozen=True, tag="spent", array_like=True):
    """Users took this of a rate that they have at all nodes together. Only for nodes of `MINOR` 3 and later."""

    rate: str
    """The name of the rate."""
    users: list[tuple[str, int, int]]
    """User names with messages and bytes."""


Note: TypeAlias = (
    Ask
    | Told
    | Forget
    | Held
    | Begin
    | Reach
    | Reached
    | Leave
    | Still
    | Bytes
    | Room
    | End
    | Moved
    | Settled
    | Adopt
    | Filters
    | Adopted
    | Yours
    | Fence
    | Fenced
    | Part
    | More
    | Spent
)


class Notes(msgspec.Struct, frozen=True, tag="notes", array_like=True):
    """What one node tells the other about clients that connect, and asks it for operators. Numbered apart from `Data`,
    so that neither waits for the other."""

    node: str
    connection: int
    number: int
    notes: list[Note]


Blob: TypeAlias = Hello | Open | Close | Data | Notes


class _RawNotes(msgspec.Struct, frozen=True, tag="notes", array_like=True):
    """`Notes` of a newer node, with some that are not known here."""

    node: str
    connection: int
    number: int
    notes: list[msgspec.Raw]


class Unknown(msgspec.Struct, frozen=True):
    """A blob of a kind that this node does not know."""

    node: str
    kind: str


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Blob]] = msgspec.msgpack.Decoder(Blob)
_NOTE_DECODER: Final[msgspec.msgpack.Decoder[Note]] = msgspec.msgpack.Decoder(Note)
_RAW_DECODER: Final = msgspec.msgpack.Decoder(_RawNotes)
_KIND_DECODER: Final = msgspec.msgpack.Decoder(list[msgspec.Raw])
_TEXT_DECODER: Final = msgspec.msgpack.Decoder(str)


def encode(blob: Blob) -> bytes:
    """A blob as bytes."""
    return _ENCODER.encode(blob)


def decode(data: bytes) -> Blob | None:
    """None for what is no blob that this version knows."""
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError:  # also what has other fields
        return None


def decode_newer(data: bytes) -> tuple[Notes | Unknown | None, str]:
    """For what `decode` does not know: the notes in it that are known, and the kind of the first other one; or what it
    says of itself. None for what is no blob at all."""
    try:
        return _known_notes(_RAW_DECODER.decode(data))
    except msgspec.DecodeError:
        pass
    try:
        kind, node, *_more = _KIND_DECODER.decode(data)
        return Unknown(_TEXT_DECODER.decode(node), _TEXT_DECODER.decode(kind)[:MAX_KIND]), ""
    except (msgspec.DecodeError, ValueError):
        return None, ""


def _known_notes(raw: _RawNotes) -> tuple[Notes, str]:
    """Raises `DecodeError` for a note without a kind."""
    notes: list[Note] = []
    unknown = ""
    for each in raw.notes:
        try:
            notes.append(_NOTE_DECODER.decode(each))
        except msgspec.DecodeError:
            kind, *_more = _KIND_DECODER.decode(each) or [each]
            unknown = unknown or _TEXT_DECODER.decode(kind)[:MAX_KIND] or "?"
    return Notes(raw.node, raw.connection, raw.number, notes), unknown
