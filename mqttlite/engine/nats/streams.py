"""The streams of a cluster: three copies on disk each, and no message is ever dropped to make room."""

from typing import Final

import msgspec

from mqttlite.engine.nats.connection import ApiError, NatsConnection
from mqttlite.engine.port import EngineUnavailable, EngineUnfit

COPIES: Final = 3
"""A majority of two survives the loss of one machine. JetStream has no use for more with three servers."""

NO_STREAM: Final = 10059

STREAM_EXISTS: Final = 10058
"""The stream is there with another configuration."""

NO_JETSTREAM: Final = frozenset({10039, 10076})
NO_CLUSTER: Final = frozenset({10074})
TOO_FEW_SERVERS: Final = frozenset({10005, 10023})
NO_ROOM: Final = frozenset({10028, 10047})


AWAY_NS: Final = 5_000_000_000
"""A server that a leader has not heard of for so long is away."""


class StreamGone(EngineUnavailable):
    """Somebody has removed a stream, or the folder of the servers."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"the engine is not available: it has no stream {stream} any more")


class _State(msgspec.Struct):
    bytes: int = 0
    first_seq: int = 0
    last_seq: int = 0
    messages: int = 0
    subjects: dict[str, int] = {}


class _Config(msgspec.Struct):
    max_bytes: int = -1
    num_replicas: int = 1


class _Replica(msgspec.Struct, frozen=True):
    """A server with a copy, as the leader sees it."""

    name: str
    offline: bool = False
    current: bool = True
    active: int = 0
    """How long ago it was heard of, in nanoseconds: a leader speaks to it each second. 0: never since it leads."""

    @property
    def is_away(self) -> bool:
        """A new leader has never heard of the one before it, which was lost, and does not call it offline."""
        return self.offline or self.active > AWAY_NS or (self.active == 0 and not self.current)


class _Cluster(msgspec.Struct, frozen=True):
    leader: str = ""
    replicas: tuple[_Replica, ...] | None = None
    """Without the leader."""


class StreamInfo(msgspec.Struct):
    """What a stream's leader says about it."""

    config: _Config
    state: _State
    cluster: _Cluster = _Cluster()

    def away(self) -> tuple[str, ...]:
        """The servers whose copies are missing now."""
        replicas = self.cluster.replicas or ()
        return tuple(sorted(each.name for each in replicas if each.is_away))


async def ensure_stream(connection: NatsConnection, name: str, subject: str, max_bytes: int, **more: object) -> None:
    """Create a stream, or give an existing one this configuration. Raises `EngineUnfit` if the servers cannot keep it.

    `discard: new` refuses messages at `max_bytes`, where the default forgets old ones.
    """
    config = {
        "name": name,
        "subjects": [subject],
        "storage": "file",
        "num_replicas": COPIES,
        "retention": "limits",
        "discard": "new",
        "max_bytes": max_bytes,
        **more,
    }
    try:
        try:
            await connection.ask_api(f"STREAM.CREATE.{name}", config, StreamInfo)
        except ApiError as error:
            if error.number != STREAM_EXISTS:
                raise
            await connection.ask_api(f"STREAM.UPDATE.{name}", config, StreamInfo)
    except ApiError as error:
        if error.number in TOO_FEW_SERVERS:  # it may be on its way
            raise connection.unavailable(f"fewer than three NATS servers can keep a copy ({error})") from error
        raise EngineUnfit(_advice(error, max_bytes)) from error


async def info_of(connection: NatsConnection, name: str, subjects: str = "") -> StreamInfo:
    """Ask the leader of a stream; with the number of messages of each subject that matches `subjects`."""
    request = {"subjects_filter": subjects} if subjects else {}
    return await connection.ask_api(f"STREAM.INFO.{name}", request, StreamInfo)


async def lead_elsewhere(connection: NatsConnection, name: str, server: str) -> None:
    """Let another server lead a stream that the one with this name leads, if all have a copy."""
    info = await info_of(connection, name)
    if info.cluster.leader == server and not info.away():
        await connection.ask_api(f"STREAM.LEADER.STEPDOWN.{name}", {}, msgspec.Raw)


async def purge(connection: NatsConnection, name: str, request: dict[str, object]) -> None:
    """Remove messages below a sequence (`seq`) or of a subject (`filter`)."""
    await connection.ask_api(f"STREAM.PURGE.{name}", request, msgspec.Raw)


def _advice(error: ApiError, max_bytes: int) -> str:
    if error.number in NO_JETSTREAM:
        return "JetStream is not on for our account: add a jetstream block to the configuration of each NATS server"
    if error.number in NO_CLUSTER:
        return "the NATS server is alone: join three servers to a cluster (a cluster block with routes in each)"
    if error.number in NO_ROOM:
        return f"the NATS servers have no room for {max_bytes} bytes more: raise max_file in their jetstream block"
    return f"JetStream refuses a stream ({error.number}): {error}"
