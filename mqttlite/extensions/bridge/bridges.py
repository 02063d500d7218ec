"""All bridges of a broker: started and stopped with it, and their state in `$SYS`.

Invariant: a session of a bridge that is no longer configured ends when the broker starts.
"""

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from mqttlite import atomic_file
from mqttlite.config import ConfigError
from mqttlite.core.broker import Broker
from mqttlite.core.source import THE_BROKER
from mqttlite.extensions.bridge.bridge import CLIENT_ID_PREFIX, Bridge, BridgeState
from mqttlite.extensions.bridge.last_address import LastAddress
from mqttlite.extensions.bridge.options import BridgeOptions
from mqttlite.net.link import LinkDriver
from mqttlite.net.local_link import LocalClient
from mqttlite.net.local_session import LocalSession
from mqttlite.security.tls import TlsConfigError, client_context
from mqttlite.telemetry.figures import MAX_REPORTED, Values

ID_FILE: Final = "bridge-id"
"""The file in the data directory with the id of this broker: part of client identifiers at other brokers, and of the
path of messages."""

ADDRESS_FILE: Final = "bridge-address-"
"""The file in the data directory with the latest address of a bridge that has several begins with it; the name
follows."""

MAX_SHOWN: Final = 10
"""The most bridges that the alarm names."""


class Bridges:
    """`data_dir` keeps the broker's id; without one it is another at each start. `on_alarm` is called with whether a
    bridge is away, and which. Raises `ConfigError`."""

    def __init__(
        self,
        options: Sequence[BridgeOptions],
        core: Broker,
        loop_driver: LinkDriver,
        data_dir: str | None,
        on_alarm: Callable[[bool, str], None],
    ) -> None:
        self._core: Final = core
        self._loop_driver: Final = loop_driver
        self._on_alarm: Final = on_alarm
        self._alarm = ""
        """What the alarm says now; empty while there is none."""
        self._published: Final[dict[str, bytes]] = {}
        """The state of each bridge that `$SYS` has."""
        broker_id = _broker_id(data_dir) if options else ""
        self._bridges: Final = {
            each.name: Bridge(
                *(each, core, loop_driver, broker_id, _tls_context(each), self._on_state, _last_address(each, data_dir))
            )
            for each in options
        }

    def start(self) -> None:
        """Open the sessions here, and begin to connect. Raises `ConfigError` if the broker has no room for them."""
        wanted = {each.client_id for each in self._bridges.values()}
        for session in self._core.sessions.values():
            if session.client_id.startswith(CLIENT_ID_PREFIX) and session.client_id not in wanted:
                self._end(session.client_id)
        for name, each in self._bridges.items():
            self._on_state(each)
            try:
                each.start()
            except ConnectionRefusedError as error:
                raise ConfigError(f"bridges: {name!r} has no session here: {error}") from None

    async def stop(self) -> None:
        """Disconnect all. Both sides keep the sessions."""
        if self._bridges:
            await asyncio.gather(*(each.stop() for each in self._bridges.values()))

    @property
    def names(self) -> list[str]:
        """The names of all bridges, in the order of the configuration."""
        return list(self._bridges)

    def get(self, name: str) -> Bridge:
        """Raises `KeyError`."""
        return self._bridges[name]

    def states(self) -> list[BridgeState]:
        """The state of each, by name."""
        return [self._bridges[name].view() for name in sorted(self._bridges)]

    def figures(self) -> Mapping[str, Values]:
        """The values of the figures of the first bridges, by the names in the manifest."""
        states = self.states()[:MAX_REPORTED]
        labels = [{"bridge": each.name} for each in states]
        return {
            "bridge_connected": [
                (label, each.state == "connected") for label, each in zip(labels, states, strict=True)
            ],
            "bridge_waiting": [(label, each.waiting) for label, each in zip(labels, states, strict=True)],
            "bridge_sent": [(label, each.sent) for label, each in zip(labels, states, strict=True)],
            "bridge_received": [(label, each.received) for label, each in zip(labels, states, strict=True)],
            "bridge_connects": [(label, each.connects) for label, each in zip(labels, states, strict=True)],
            "bridge_dropped": [
                ({"bridge": each.name, "reason": reason}, count)
                for each in states
                for reason, count in each.dropped.items()
            ],
        }

    def _end(self, client_id: str) -> None:
        session = LocalSession(self._core, self._loop_driver, lambda: None)
        session.connect(LocalClient(client_id=client_id, is_trusted=True), 1)
        session.leave()

    def _on_state(self, bridge: Bridge) -> None:
        self._tell_alarm()
        self._publish_state(bridge)

    def _tell_alarm(self) -> None:
        away = [each for each in self._bridges.values() if each.state == "away" and each.has_tried]
        said = "; ".join(f"{each.options.name}: {each.reason}" for each in away[:MAX_SHOWN])
        if said != self._alarm:
            self._alarm = said
            self._on_alarm(bool(said), said)

    def _publish_state(self, bridge: Bridge) -> None:
        """As Mosquitto does."""
        topic = f"$SYS/broker/connection/{bridge.options.name}/state".encode()
        payload = b"1" if bridge.state == "connected" else b"0"
        if self._published.get(bridge.options.name) == payload:
            return
        self._published[bridge.options.name] = payload
        self._core.publish(topic, payload, 1, True, asyncio.get_running_loop().time(), source=THE_BROKER)
        self._loop_driver.wake()


def _broker_id(data_dir: str | None) -> str:
    new = secrets.token_hex(8)
    if not data_dir:
        return new
    path = Path(data_dir, ID_FILE)
    try:
        if path.exists():
            return path.read_text(encoding="ascii").strip()
        atomic_file.save(path, f"{new}\n".encode())
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"data_dir: {path} cannot be used: {error}") from None
    return new


def _last_address(options: BridgeOptions, data_dir: str | None) -> LastAddress:
    path = None
    if data_dir and len(options.addresses) > 1:
        path = Path(data_dir, f"{ADDRESS_FILE}{options.name}")
    try:
        return LastAddress(options.endpoints, path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"data_dir: {path} cannot be used: {error}") from None


def _tls_context(options: BridgeOptions) -> ssl.SSLContext | None:
    tls = options.tls
    if isinstance(tls, bool):
        return client_context() if any(each.is_tls for each in options.endpoints) else None
    try:
        return client_context(tls.ca_file, tls.cert_file, tls.key_file, tls.insecure)
    except TlsConfigError as error:
        raise ConfigError(f"bridges: {options.name}.tls: {error}") from None
