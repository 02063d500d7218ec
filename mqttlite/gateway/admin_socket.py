"""The admin socket: a listener of the HTTP application on a Unix socket in the data directory, for the commands.

Invariant: the mode of the socket decides who may connect.
"""

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from mqttlite.gateway.late_server import LateServer
from mqttlite.net.endpoints import AlreadyListening, CannotListen, UnixEndpoint

if TYPE_CHECKING:
    from mqttlite.gateway.context import OperatorContext
    from mqttlite.gateway.http_server import HttpServer

SOCKET_NAME: Final = "admin.sock"

SOCKET_MODE: Final = 0o600
"""Only the user that runs the broker, and root."""

_log = logging.getLogger("mqttlite.admin")


class AdminSocket(LateServer):
    """`directory` is the existing data directory. `context` makes what the routes need, at the first connection."""

    def __init__(self, directory: str, context: "Callable[[], OperatorContext]", clock: Callable[[], float]) -> None:
        endpoint = UnixEndpoint(os.path.join(directory, SOCKET_NAME), SOCKET_MODE)

        def build() -> "HttpServer":
            from mqttlite.gateway.operator_servers import build_socket_server  # imported at the first connection

            return build_socket_server(context(), endpoint, clock)

        super().__init__(endpoint, build)

    async def open(self) -> None:
        """Listen, or log a warning if that is not possible. Raises `AlreadyListening` if another broker uses the
        directory."""
        try:
            await self.start("admin")
        except AlreadyListening as error:
            raise AlreadyListening(f"another broker has this data directory, choose another: {error}") from None
        except CannotListen as error:
            _log.warning(
                "the broker runs without admin socket, and 'mqttlite sessions', 'queue', 'dlq', 'retained', 'delayed' "
                "and 'schema' cannot reach it: %s; a data directory with a short path on a local disk can have one",
                error,
            )
