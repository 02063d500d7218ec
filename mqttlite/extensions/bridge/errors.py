"""Why a bridge is not added or removed, or ends a connection."""

from mqttlite.client.errors import ConnectionLost


class BridgeRefused(Exception):
    """There is one of that name or no room for another one, or the configuration alone can remove it. Its text is for
    the user."""


class ComesBack(ConnectionLost):
    """The bridge ended the connection itself, and connects again."""
