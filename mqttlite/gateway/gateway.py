"""The gateway of one run of a broker: its application, server and TLS files.

Invariant: it runs in the broker's event loop, and `stop_accepting` and `abort` end everything that it started.
"""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any, Final

from mqttlite.config import ConfigError
from mqttlite.core.load.overload import BEGINS_AT, SLOW_SENDERS
from mqttlite.files.file_version import version_of
from mqttlite.files.shared_document import SharedDocument
from mqttlite.gateway.app import HttpApp
from mqttlite.gateway.caller import Callers
from mqttlite.gateway.client_certificates import STATE, ClientCertificate
from mqttlite.gateway.context import GatewayContext
from mqttlite.gateway.features import build_app
from mqttlite.gateway.http_server import HttpServer
from mqttlite.gateway.strangers import Strangers
from mqttlite.net.endpoints import TcpEndpoint
from mqttlite.security.identity import identity_of
from mqttlite.security.tls import TlsConfigError, TlsOptions, revoked_certificates, server_context
from mqttlite.telemetry.report import HttpFigures

if TYPE_CHECKING:
    from mqttlite.security.revocation import CertificateId

_log = logging.getLogger("mqttlite.gateway")

Version = tuple[tuple[int, int, int], ...]

LOOK_S: Final = 0.5
"""How often the TLS files' versions are looked at while connections come."""


class Gateway:
    """Made by `assembly` where the config has a section `http`. Raises `ConfigError` for TLS files that do not fit."""

    def __init__(self, context: GatewayContext) -> None:
        self._jobs: list[asyncio.Task[None]] = []
        self.context: Final = context
        self.callers: Final = Callers(context)
        self.app: Final[HttpApp] = build_app(context, self.callers)
        tls = context.options.tls
        self._tls: Final = None if tls is None else _TlsFiles(tls, context)
        self.server: Final = HttpServer(
            *(self.app, context.options, context.counters),
            None if self._tls is None else self._tls.current,
            self._state_of,
            Strangers(
                context.options.requests_per_s,
                is_known=self.callers.is_known,
                is_loaded=lambda: context.core.overload.load >= BEGINS_AT[SLOW_SENDERS],
                clock=context.clock,
            ),
            endpoint=TcpEndpoint(context.options.host, context.options.port),
        )

    @property
    def port(self) -> int:
        """The real port, once it listens."""
        return self.server.port

    def _state_of(self, tls: ssl.SSLObject) -> dict[str, Any]:
        """The facts of a client's certificate for the requests of its connection."""
        from mqttlite.security.revocation import certificate_id  # here, for cryptography takes a while

        identity = identity_of(tls.getpeercert(), self.context.options.identity_from)
        der = tls.getpeercert(binary_form=True)
        if identity is None or der is None or self._tls is None:
            return {}
        return {STATE: ClientCertificate(identity, certificate_id(der), self._tls.revoked)}

    @property
    def documents(self) -> list[SharedDocument]:
        """What of it all nodes have."""
        keys, topics = self.context.api_keys, self.context.topics
        return [topics.document] if keys.path is None else [keys.document, topics.document]

    @property
    def urls(self) -> list[str]:
        """Where it is reached."""
        scheme = "http" if self.context.options.tls is None else "https"
        return [f"{scheme}://{address}" for address in self.server.addresses]

    def figures(self) -> HttpFigures:
        """Its counts."""
        counters = self.context.counters
        return HttpFigures(
            requests=dict(counters.requests),
            connections=self.server.open,
            turned_away=self.server.turned_away,
            received_bytes=counters.received_bytes,
            sent_bytes=counters.sent_bytes,
            slow_readers_cut=counters.slow_readers_cut,
        )

    async def start(self) -> None:
        """Listen. Raises `CannotListen`."""
        context = self.context
        if context.iam is not None and context.queueing is not None:
            context.iam.follow(context.queueing.queues)
        await self.server.start()
        loop = asyncio.get_running_loop()
        self._jobs = [loop.create_task(each()) for each in context.jobs]

    async def stop_accepting(self) -> None:
        """No new requests; subscribers end with the core's connections, and pages that are open here."""
        self.app.stopping.set()
        await self._stop_jobs()
        await self.server.stop_accepting()

    async def _stop_jobs(self) -> None:
        for each in self._jobs:
            each.cancel()
        await asyncio.gather(*self._jobs, return_exceptions=True)

    async def emptied(self) -> None:
        """Wait until the last answer is sent."""
        self.context.sessions.stop()
        await self.server.emptied()
        await self._policies_forgotten()

    async def abort(self) -> None:
        """Close what is still open."""
        await self._stop_jobs()
        self.context.sessions.stop()
        await self.server.abort()
        await self._policies_forgotten()

    async def _policies_forgotten(self) -> None:
        if self.context.iam is not None:
            await self.context.iam.forgotten()


class _TlsFiles:
    """The context for handshakes: made again when its files have changed and fit."""

    def __init__(self, options: TlsOptions, context: GatewayContext) -> None:
        self._options: Final = options
        self._clock: Final = context.clock
        self._seen = self._version()
        self._looked_at = self._clock()
        try:
            self._load()
        except TlsConfigError as error:
            raise ConfigError(f"http.tls.{error.option}: {error}") from None

    def current(self) -> ssl.SSLContext:
        """The context to use now."""
        self._notice_change()
        return self._context

    def revoked(self) -> "frozenset[CertificateId]":
        """The client certificates that are revoked now."""
        self._notice_change()
        return self._revoked

    def _load(self) -> None:
        """Raises `TlsConfigError`."""
        revoked = revoked_certificates(self._options)
        self._context = server_context(self._options, protocol="http/1.1")
        self._revoked = revoked

    def _notice_change(self) -> None:
        now = self._clock()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            seen = self._version()
            if seen != self._seen:
                self._seen = seen
                try:
                    self._load()
                    _log.info("http: the TLS files were read again")
                except TlsConfigError as error:
                    _log.error("http: the former certificates stay in use: %s", error)

    def _version(self) -> Version:
        return tuple(version_of(path) for path in self._options.files)
