"""All bridges of a broker: started and stopped with it, and their state in `$SYS`.

Invariant: a session of a bridge that is neither configured nor added ends when the broker starts.
"""

import asyncio
import logging
import secrets
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from mqttlite.config import ConfigError
from mqttlite.core.broker import Broker
from mqttlite.core.source import THE_BROKER
from mqttlite.extensions.bridge.added import FILE_NAME, AddedBridges
from mqttlite.extensions.bridge.bridge import CLIENT_ID_PREFIX, Bridge, BridgeState, Origin, end_session
from mqttlite.extensions.bridge.errors import BridgeRefused
from mqttlite.extensions.bridge.figures import INTERVAL_S
from mqttlite.extensions.bridge.last_address import LastAddress
from mqttlite.extensions.bridge.options import MAX_BRIDGES, BridgeOptions
from mqttlite.files import atomic_file
from mqttlite.net.link import LinkDriver
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

_log = logging.getLogger("mqttlite.bridge")


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
        self._data_dir: Final = data_dir
        self._file: Final = AddedBridges(data_dir)
        self._broker_id = ""
        """As in `ID_FILE`; empty until there is a bridge."""
        self._change: Final = asyncio.Lock()
        """Held by `add` and `remove`, so that the file has what is there."""
        self._measuring: asyncio.TimerHandle | None = None
        self._bridges: Final[dict[str, Bridge]] = {each.name: self._make(each, "config") for each in options}
        for each in self._file.load():
            if each.name in self._bridges:
                _log.warning("%s: bridge %s is in the configuration now, which holds", FILE_NAME, each.name)
            else:
                self._bridges[each.name] = self._make(each, "admin", is_old=True)

    def _make(self, options: BridgeOptions, origin: Origin, *, is_old: bool = False) -> Bridge:
        """Raises `ConfigError`. One that was added before this start is away without its TLS files, and can be
        removed."""
        tls, unusable = None, ""
        try:
            tls = _tls_context(options)
        except TlsConfigError as error:
            if not is_old:
                raise ConfigError(f"bridges: {options.name}.tls: {error}") from None
            unusable = f"tls: {error} Then start the broker again, or remove the bridge."
        self._broker_id = self._broker_id or _broker_id(self._data_dir)
        return Bridge(
            *(options, self._core, self._loop_driver, self._broker_id, tls, self._on_state),
            last=_last_address(options, self._data_dir),
            origin=origin,
            unusable=unusable,
        )

    def start(self) -> None:
        """Open the sessions here, and begin to connect. Raises `ConfigError` if the broker has no room for them."""
        wanted = {each.client_id for each in self._bridges.values()}
        for session in self._core.sessions.values():
            if session.client_id.startswith(CLIENT_ID_PREFIX) and session.client_id not in wanted:
                end_session(self._core, self._loop_driver, session.client_id)
        self._remove_addresses()
        for name, each in self._bridges.items():
            self._on_state(each)
            try:
                each.start()
            except ConnectionRefusedError as error:
                raise ConfigError(f"bridges: {name!r} has no session here: {error}") from None
        self._measure()

    async def stop(self) -> None:
        """Disconnect all. Both sides keep the sessions."""
        if self._measuring is not None:
            self._measuring.cancel()
        if self._bridges:
            await asyncio.gather(*(each.stop() for each in self._bridges.values()))

    async def add(self, options: BridgeOptions) -> Bridge:
        """Begin to connect a new one, which is there after a restart, too. Raises `BridgeRefused`, `ConfigError` if
        its TLS files cannot be used, and `OSError` if the file of added bridges cannot be written."""
        async with self._change:
            if options.name in self._bridges:
                raise BridgeRefused(f"there is a bridge {options.name!r} already")
            if len(self._bridges) >= MAX_BRIDGES:
                raise BridgeRefused(f"there are {MAX_BRIDGES} bridges, which is the limit")
            bridge = self._make(options, "admin")
            self._file.save([*self._added(), options])
            try:
                bridge.start()
            except ConnectionRefusedError as error:
                self._file.save(self._added())
                raise BridgeRefused(f"it has no session here: {error}") from None
            self._bridges[options.name] = bridge
            self._on_state(bridge)
            return bridge

    async def remove(self, name: str) -> None:
        """Disconnect one, and end its sessions. Raises `KeyError`, `BridgeRefused` and `OSError`."""
        async with self._change:
            bridge = self._bridges[name]
            if bridge.origin == "config":
                raise BridgeRefused(
                    f"the bridge {name!r} is in the configuration: take it out there, and start the broker again"
                )
            self._file.save([each for each in self._added() if each.name != name])
            await bridge.remove()
            del self._bridges[name]
            self._remove_addresses()
            self._tell_alarm()
            self._published.pop(name, None)
            self._publish(_state_topic(name), b"")

    def _added(self) -> list[BridgeOptions]:
        return [each.options for each in self._bridges.values() if each.origin == "admin"]

    def _remove_addresses(self) -> None:
        """Of bridges that are not there any more."""
        if not self._data_dir:
            return
        for path in Path(self._data_dir).glob(f"{ADDRESS_FILE}*"):
            if path.name.removeprefix(ADDRESS_FILE) not in self._bridges:
                path.unlink(missing_ok=True)

    def _measure(self) -> None:
        loop = asyncio.get_running_loop()
        for each in self._bridges.values():
            each.figures.look(loop.time())
        self._measuring = loop.call_later(INTERVAL_S, self._measure)

    def get(self, name: str) -> Bridge:
        """Raises `KeyError`."""
        return self._bridges[name]

    def states(self) -> list[BridgeState]:
        """The state of each, by name."""
        return [self._bridges[name].view() for name in sorted(self._bridges)]

    def figures(self) -> Mapping[str, Values]:
        """The values of the figures of the first bridges, by the names in the manifest."""
        states = self.states()[:MAX_REPORTED]

        def values(value: Callable[[BridgeState], float]) -> Values:
            return [({"bridge": each.name}, value(each)) for each in states]

        return {
            "bridge_connected": values(lambda each: each.state == "connected"),
            "bridge_waiting": values(lambda each: each.waiting),
            "bridge_sent": values(lambda each: each.sent),
            "bridge_received": values(lambda each: each.received),
            "bridge_filtered": values(lambda each: each.filtered),
            "bridge_connects": values(lambda each: each.connects),
            "bridge_dropped": [
                ({"bridge": each.name, "reason": reason}, count)
                for each in states
                for reason, count in each.dropped.items()
            ],
        }

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
        payload = b"1" if bridge.state == "connected" else b"0"
        if self._published.get(bridge.options.name) == payload:
            return
        self._published[bridge.options.name] = payload
        self._publish(_state_topic(bridge.options.name), payload)

    def _publish(self, topic: bytes, payload: bytes) -> None:
        self._core.publish(topic, payload, 1, True, asyncio.get_running_loop().time(), source=THE_BROKER)
        self._loop_driver.wake()


def _state_topic(name: str) -> bytes:
    return f"$SYS/broker/connection/{name}/state".encode()


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
    """Raises `TlsConfigError`."""
    tls = options.tls
    if isinstance(tls, bool):
        return client_context() if any(each.is_tls for each in options.endpoints) else None
    return client_context(tls.ca_file, tls.cert_file, tls.key_file, tls.insecure)
