"""mqttlite: an MQTT 3.1.1 and 5.0 broker, and an asyncio client, for Python.

It has the public names. Each is imported on first use, so that `mqttlite pub` does not import the broker.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mqttlite.client import Client as Client
    from mqttlite.client import Message as Message
    from mqttlite.client import MqttError as MqttError
    from mqttlite.client import Will as Will
    from mqttlite.config import Config as Config
    from mqttlite.config import ConfigError as ConfigError
    from mqttlite.config import ListenerOptions as ListenerOptions
    from mqttlite.config import load_config as load_config
    from mqttlite.core.limits import Limits as Limits
    from mqttlite.extensions import ConnectingClient as ConnectingClient
    from mqttlite.extensions import DisconnectedClient as DisconnectedClient
    from mqttlite.extensions import Extension as Extension
    from mqttlite.extensions import Hooks as Hooks
    from mqttlite.extensions import Host as Host
    from mqttlite.extensions import Incoming as Incoming
    from mqttlite.extensions import Reject as Reject
    from mqttlite.extensions import Subscribing as Subscribing
    from mqttlite.extensions.published import Published as Published
    from mqttlite.extensions.queues.options import QueueOptions as QueueOptions
    from mqttlite.extensions.queues.options import RetryOptions as RetryOptions
    from mqttlite.extensions.schemas.registry import Schema as Schema
    from mqttlite.security.tls import TlsOptions as TlsOptions
    from mqttlite.server import Broker as Broker
    from mqttlite.wire.properties import Properties as Properties

_HOMES: Final = {
    "Broker": "mqttlite.server",
    "Client": "mqttlite.client",
    "Config": "mqttlite.config",
    "ConfigError": "mqttlite.config",
    "Extension": "mqttlite.extensions",
    "Hooks": "mqttlite.extensions",
    "Host": "mqttlite.extensions",
    "Incoming": "mqttlite.extensions",
    "Limits": "mqttlite.core.limits",
    "ListenerOptions": "mqttlite.config",
    "Message": "mqttlite.client",
    "MqttError": "mqttlite.client",
    "Properties": "mqttlite.wire.properties",
    "Published": "mqttlite.extensions.published",
    "QueueOptions": "mqttlite.extensions.queues.options",
    "Reject": "mqttlite.extensions",
    "ConnectingClient": "mqttlite.extensions",
    "DisconnectedClient": "mqttlite.extensions",
    "Subscribing": "mqttlite.extensions",
    "RetryOptions": "mqttlite.extensions.queues.options",
    "Schema": "mqttlite.extensions.schemas.registry",
    "TlsOptions": "mqttlite.security.tls",
    "Will": "mqttlite.client",
    "load_config": "mqttlite.config",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mqttlite' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
