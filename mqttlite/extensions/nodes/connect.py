"""Makes the carrier that the options name. Importing it imports nothing of NATS."""

from pathlib import Path
from typing import TYPE_CHECKING

from mqttlite.config import ConfigError
from mqttlite.extensions.cluster.connect import tls_context

if TYPE_CHECKING:
    from mqttlite.extensions.nodes.carrier import Carrier
    from mqttlite.extensions.nodes.options import NodesOptions


def carrier_of(options: "NodesOptions") -> "Carrier":
    """Raises `ConfigError` for files that cannot be used."""
    from mqttlite.extensions.cluster.engine.nats.servers import NatsLogin, NatsOptions
    from mqttlite.extensions.nodes.nats_carrier import NatsCarrier

    credentials = None if options.credentials_file is None else Path(options.credentials_file)
    if credentials is not None and not credentials.is_file():
        raise ConfigError(f"nodes.credentials_file: {credentials}: there is no such file")
    login = NatsLogin(options.user, options.password, credentials=credentials)
    return NatsCarrier(NatsOptions(options.servers, options.name, login, tls_context("nodes", options)))
