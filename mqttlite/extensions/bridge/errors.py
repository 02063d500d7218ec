"""Why a bridge is not added or removed, or ends a connection."""

from mqttlite.client.errors import ConnectionLost


class BridgeRefused(Exception):
    """Its text is for the user."""


class BridgeExists(BridgeRefused):
    """There is one of that name."""


class BridgeIsConfigured(BridgeRefused):
    """It is in the configuration, which alone can remove it."""


class TooManyBridges(BridgeRefused):
    """There is no room for another one."""


class ComesBack(ConnectionLost):
    """The bridge ended the connection itself, and connects again."""
