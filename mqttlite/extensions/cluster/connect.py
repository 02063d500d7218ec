"""Connects to the engine as the options say, and makes the server of this machine. Importing it imports nothing of the
engine's."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from mqttlite.config import ConfigError

if TYPE_CHECKING:
    from mqttlite.extensions.cluster.engine.port import Engine
    from mqttlite.extensions.cluster.engine_child import EngineChild
    from mqttlite.extensions.cluster.options import ClusterOptions


async def connect(options: "ClusterOptions") -> "Engine":
    """Raises `EngineUnavailable` while no server answers, `EngineUnfit` for servers that cannot be used, and
    `ConfigError` for files that cannot."""
    from mqttlite.extensions.cluster.engine.nats.engine import NatsEngine
    from mqttlite.extensions.cluster.engine.nats.servers import NatsLogin, NatsOptions
    from mqttlite.extensions.cluster.engine_child import login_of, system_login_of

    credentials = None if options.credentials_file is None else Path(options.credentials_file)
    if credentials is not None and not credentials.is_file():
        raise ConfigError(f"cluster.credentials_file: {credentials}: there is no such file")
    login = NatsLogin(options.user, options.password, credentials=credentials)
    system = NatsLogin(options.system_user, options.system_password) if options.system_user else None
    if options.engine is not None:
        login, system = login_of(options.engine.secret), system_login_of(options.engine.secret)
    return await NatsEngine.open(
        NatsOptions(
            servers=options.servers,
            cluster=options.name,
            login=login,
            tls=_tls(options),
            system=system,
            monitoring=options.monitoring,
            is_sync_assured=options.sync_assured,
        )
    )


def engine_child(options: "ClusterOptions", folder: Path) -> "EngineChild | None":
    """The server of the engine on this machine, which keeps its files in `folder`; None where there is none."""
    if options.engine is None:
        return None
    from mqttlite.extensions.cluster.engine_child import EngineChild, EngineChildOptions, EngineTls

    files = options.engine.tls
    tls = None
    if files is not None:
        tls = EngineTls(Path(str(files.cert_file)), Path(str(files.key_file)), Path(str(files.ca_file)))
    return EngineChild(
        EngineChildOptions(options.servers, options.engine.address, options.name, folder, options.engine.secret, tls)
    )


def _tls(options: "ClusterOptions") -> ssl.SSLContext | None:
    if options.tls is None:
        return None
    try:
        context = ssl.create_default_context(cafile=options.tls.ca_file)
        if options.tls.cert_file is not None:
            context.load_cert_chain(options.tls.cert_file, options.tls.key_file)
    except (OSError, ValueError) as error:
        raise ConfigError(f"cluster.tls: {error}: name files in PEM") from None
    return context
