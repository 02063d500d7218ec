"""Features in a folder each, and what a program adds to the broker: hooks, and sinks for messages.

The features of mqttlite's own are in `built_in`. An `Extension` of a program is an object with `start(host)`. A
configuration names it in `[[extensions]]`, a program gives it to `Broker(extensions=[…])`. `Host` is all that it gets
of the broker. Its names are imported on first use, so that a manifest does not import them.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mqttlite.extensions.client_hook import ConnectingClient as ConnectingClient
    from mqttlite.extensions.client_hook import DisconnectedClient as DisconnectedClient
    from mqttlite.extensions.client_hook import Subscribing as Subscribing
    from mqttlite.extensions.extension import Extension as Extension
    from mqttlite.extensions.hooks import Hooks as Hooks
    from mqttlite.extensions.host import Host as Host
    from mqttlite.extensions.incoming import Incoming as Incoming
    from mqttlite.extensions.publish_hook import Reject as Reject

_HOMES: Final = {
    "ConnectingClient": "client_hook",
    "DisconnectedClient": "client_hook",
    "Extension": "extension",
    "Hooks": "hooks",
    "Host": "host",
    "Incoming": "incoming",
    "Reject": "publish_hook",
    "Subscribing": "client_hook",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
