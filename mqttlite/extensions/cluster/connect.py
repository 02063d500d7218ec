"""Connects to the engine as the options say. Importing it imports nothing of the engine's."""

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

from mqttlite.config import ConfigError

if TYPE_CHECKING:
    from mqttlite.extensions.cluster.engine.port import Engine
    from mqttlite.extensions.cluster.options import ClusterOptions


async def connect(options: "ClusterOptions") -> "Engine":
    """Raises `EngineUnavailable` while no server answers, `EngineUnfit` for servers that cannot be used, and
    `ConfigError` for files that cannot."""
    from mqttlite.extensions.cluster.engine.nats.engine import NatsEngine
    from mqttlite.extensions.cluster.engine.nats.servers import NatsLogin, NatsOptions

    credentials = None if options.credentials_file is None else Path(options.credentials_file)
    if credentials is not None and not credentials.is_file():
        raise ConfigError(f"cluster.credentials_file: {credentials}: there is no such file")
    return await NatsEngine.open(
        NatsOptions(
            servers=options.servers,
            cluster=options.name,
            login=NatsLogin(options.user, options.password, credentials=credentials),
            tls=_tls(options),
            system=NatsLogin(options.system_user, options.system_password) if options.system_user else None,
            monitoring=options.monitoring,
            is_sync_assured=options.sync_assured,
        )
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
