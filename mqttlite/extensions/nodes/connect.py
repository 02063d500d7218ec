"""Makes the carrier and the engine that the options name. Importing it imports nothing of NATS."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mqttlite.config import ConfigError
from mqttlite.engine.tls import tls_context
from mqttlite.extensions.nodes.bucket import MAX_FILES_BYTES

if TYPE_CHECKING:
    from mqttlite.engine.nats.servers import NatsOptions
    from mqttlite.engine.port import Engine
    from mqttlite.extensions.nodes.carrier import Carrier
    from mqttlite.extensions.nodes.options import NodesOptions


SAFE_SERVERS: Final = 3
"""From so many servers on, three of them have what all nodes have; else one has it."""


def carrier_of(options: "NodesOptions") -> "Carrier":
    """Raises `ConfigError` for files that cannot be used."""
    from mqttlite.extensions.nodes.nats_carrier import NatsCarrier

    return NatsCarrier(nats_options(options, options.name))


def engine_of(options: "NodesOptions") -> "Callable[[], Awaitable[Engine]]":
    """Connects to what keeps the documents that all nodes have. Raises `ConfigError` as `carrier_of` does."""
    nats = nats_options(options, f"{options.name}-nodes")
    copies = SAFE_SERVERS if len(options.servers) >= SAFE_SERVERS else 1

    async def connect() -> "Engine":
        from mqttlite.engine.nats.engine import NatsEngine

        return await NatsEngine.open_bucket(nats, copies)

    return connect


def nats_options(options: "NodesOptions", name: str) -> "NatsOptions":
    """Where NATS is, and who this node is there. `name` begins all names. Raises `ConfigError` as `carrier_of` does."""
    from mqttlite.engine.nats.servers import NatsLogin, NatsOptions

    credentials = None if options.credentials_file is None else Path(options.credentials_file)
    if credentials is not None and not credentials.is_file():
        raise ConfigError(f"nodes.credentials_file: {credentials}: there is no such file")
    login = NatsLogin(options.user, options.password, credentials=credentials)
    try:
        tls = tls_context(options)
    except ValueError as error:
        raise ConfigError(f"nodes: {error}") from None
    return NatsOptions(options.servers, name, login, tls, max_file_bytes=MAX_FILES_BYTES)
