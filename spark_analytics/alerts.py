"""Findings as MQTT messages, through the ordinary client of mqttlite; nothing else here needs it.

Invariant: a broker that cannot be reached, or refuses, costs a sentence and no finding: those are in the files.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote, urlsplit

from spark_analytics.errors import EnvironmentMissing

if TYPE_CHECKING:
    from mqttlite.client import Client

TOPIC: Final = "$SYS/analytics/alerts"
CLIENT_ID: Final = "spark-analytics"
"""What the broker's `[sys] publishers` must name."""

TIMEOUT_S: Final = 10.0
"""For connecting and for each acknowledgement: the next findings are not to wait for a broker that is gone."""

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True)
class Target:
    """Where alerts go."""

    host: str
    port: int
    tls: bool
    username: str | None
    password: str | None

    @classmethod
    def parse(cls, url: str) -> Target:
        """Of `mqtt://[user:password@]host[:port]`, or `mqtts://…`. Raises ValueError with a sentence."""
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname or parts.path.strip("/") or parts.query:
            raise ValueError(f"{url!r} names no broker: mqtt://host:port, or mqtts:// with TLS")
        try:
            port = parts.port or _PORTS[parts.scheme]
        except ValueError as error:
            raise ValueError(f"{url!r} names no broker: {error}") from None
        username, password = (unquote(part) if part else None for part in (parts.username, parts.password))
        return cls(parts.hostname, port, parts.scheme == "mqtts", username, password)


def topic_of(finding: Mapping[str, Any]) -> str:
    """Below `TOPIC`: the kind, the queue, the client and the ordering key, as far as it is about one. What may not be
    in a level of a topic name is in percent."""
    named = [finding[name] for name in ("queue", "client_id", "ordering_key") if finding[name]]
    return "/".join((TOPIC, finding["kind"], *(quote(each, safe="") for each in named)))


class Alerts:
    """Publishes findings at QoS 1. Raises EnvironmentMissing where mqttlite is not installed."""

    def __init__(self, target: Target) -> None:
        try:
            from mqttlite.client import Client, MqttError
        except ModuleNotFoundError:
            raise EnvironmentMissing("--broker needs mqttlite beside spark_analytics: pip install mqttlite") from None
        self._client: Final = Client
        self._error: Final = MqttError
        self._target: Final = target

    def publish(self, findings: Iterable[dict[str, Any]]) -> None:
        """All of them over one connection; complains on stderr about what did not arrive."""
        try:
            asyncio.run(self._publish(list(findings)))
        except (self._error, OSError) as error:
            print(f"warning: alerts did not reach {self._target.host}:{self._target.port}: {error}", file=sys.stderr)

    async def _publish(self, findings: list[dict[str, Any]]) -> None:
        async with self._connected() as client:
            for finding in findings:
                topic = topic_of(finding)
                payload = json.dumps(finding, ensure_ascii=False).encode()
                await client.publish(topic, payload, qos=1)

    def _connected(self) -> Client:
        target = self._target
        return self._client(
            target.host,
            target.port,
            client_id=CLIENT_ID,
            username=target.username,
            password=target.password,
            tls=ssl.create_default_context() if target.tls else None,
            timeout=TIMEOUT_S,
            reconnect=False,
        )
