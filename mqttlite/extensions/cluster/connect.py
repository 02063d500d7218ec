"""Connects to the engine as the options say, and makes the server of this machine. Importing it imports nothing of the
engine's."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from mqttlite.config import ConfigError
from mqttlite.engine.tls import tls_context

if TYPE_CHECKING:
    from mqttlite.engine.nats.servers import NatsOptions
    from mqttlite.engine.port import Engine
    from mqttlite.extensions.cluster.engine_child import EngineChild
    from mqttlite.extensions.cluster.options import ClusterOptions


async def connect(options: "ClusterOptions", *, creates: bool = True) -> "Engine":
    """Create what the cluster needs in the engine, unless one only looks at a cluster.

    Raises `EngineUnavailable` while no server answers, `EngineUnfit` for servers that cannot be used, and
    `ConfigError` for files that cannot."""
    from mqttlite.engine.nats.engine import NatsEngine

    return await NatsEngine.open(nats_options(options), creates=creates)


def nats_options(options: "ClusterOptions") -> "NatsOptions":
    """Where the engine is, and who this broker is there. Raises `ConfigError` as `connect` does."""
    from mqttlite.engine.nats.servers import NatsLogin, NatsOptions
    from mqttlite.extensions.cluster.engine_child import login_of, system_login_of

    credentials = None if options.credentials_file is None else Path(options.credentials_file)
    if credentials is not None and not credentials.is_file():
        raise ConfigError(f"cluster.credentials_file: {credentials}: there is no such file")
    login = NatsLogin(options.user, options.password, credentials=credentials)
    system = NatsLogin(options.system_user, options.system_password) if options.system_user else None
    if options.engine is not None:
        login, system = login_of(options.engine.secret), system_login_of(options.engine.secret)
    return NatsOptions(
        servers=options.servers,
        cluster=options.name,
        login=login,
        tls=_tls_context(options),
        max_file_bytes=options.snapshot_bytes,
        system=system,
        monitoring=options.monitoring,
        is_sync_assured=options.sync_assured,
    )


def engine_child(options: "ClusterOptions", folder: Path) -> "EngineChild | None":
    """The server of the engine on this machine, which keeps its files in `folder`; None where there is none."""
    if options.engine is None:
        return None
    from mqttlite.extensions.cluster.engine_child import EngineChild, EngineChildOptions, EngineTls

    engine = options.engine
    tls = None
    if engine.ca_file is not None:
        tls = EngineTls(Path(str(engine.cert_file)), Path(str(engine.key_file)), Path(engine.ca_file))
    return EngineChild(EngineChildOptions(options.servers, engine.address, options.name, folder, engine.secret, tls))


def _tls_context(options: "ClusterOptions") -> ssl.SSLContext | None:
    try:
        return tls_context(options)
    except ValueError as error:
        raise ConfigError(f"cluster: {error}") from None
