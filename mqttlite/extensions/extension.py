"""The port that an extension implements."""

from typing import Protocol

from mqttlite.extensions.host import Host


class Extension(Protocol):
    """One that also has `async def stop(self)` is stopped with the broker, after the clients were told to leave."""

    async def start(self, host: Host) -> None:
        """Begin. Called once, before clients may connect. An exception here stops the broker from starting."""
        ...
