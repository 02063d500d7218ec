"""Keeps the certificates of listeners up to date: reloads changed files, and warns before they expire.

`security` builds the TLS contexts. Invariant: a listener uses files that were loaded together and fit, or the former
ones; open connections stay, except those with revoked client certificates.
"""

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from mqttlite.config import ConfigError, ListenerOptions
from mqttlite.core.broker import Broker as Core
from mqttlite.files.file_version import version_of
from mqttlite.net.link import Link
from mqttlite.net.listeners import Listener
from mqttlite.net.tls import ServerContext
from mqttlite.security.certificate_expiry import End, ends_of, expiry_warnings
from mqttlite.security.tls import TlsConfigError, TlsOptions, revoked_certificates, server_context

if TYPE_CHECKING:
    from mqttlite.security.revocation import CertificateId

POLL_S: Final = 0.5
"""The interval between checks for changes: new files are used, and revoked clients disconnected, within a second."""

WARN_EVERY_S: Final = 86_400.0
"""The interval between warnings about files that expire soon."""

REVOKED_PER_ITERATION: Final = 100
"""Clients to disconnect in one loop iteration when many certificates are revoked at once."""

_log = logging.getLogger("mqttlite")

Version = tuple[tuple[int, int, int], ...]


class CertificateFiles:
    """The files of one listener that speaks TLS. Loads them when made; raises `ConfigError`. With a `keylog_file` the
    keys of its connections are written there."""

    def __init__(self, number: int, name: str, options: ListenerOptions, keylog_file: str | None = None) -> None:
        assert options.tls is not None, "a listener that speaks TLS"
        self.options: Final[TlsOptions] = options.tls
        self.name: Final = name
        self._number: Final = number
        self._protocol: Final = "mqtt" if options.websocket_options() is None else "http/1.1"
        self._keylog_file: Final = keylog_file
        if keylog_file is not None:
            _log.warning(
                "%s: THE KEYS OF ALL TLS CONNECTIONS ARE WRITTEN TO %s: anybody who reads it can read all traffic, "
                "passwords included. This is for debugging only; delete the file afterwards.",
                *(name, keylog_file),
            )
        self.in_force: Version = self.version()
        self.tried: Version = self.in_force
        self.complained = False
        """Whether the log has said what is wrong with the version that was tried last."""
        self.context: ssl.SSLContext
        self.revoked: frozenset[CertificateId]
        self.ends: Mapping[str, End] = {}
        """When each file expires, by option."""
        self.load()

    def version(self) -> Version:
        """A value that changes with the files, as far as the file system shows."""
        return tuple(version_of(path) for path in self.options.files)

    def load(self) -> None:
        """Load and use the files. Raises `ConfigError`, which leaves the former ones in use."""
        try:
            context = server_context(self.options, ServerContext, protocol=self._protocol)
            revoked = revoked_certificates(self.options)
            if self._keylog_file is not None:
                os.close(os.open(self._keylog_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
                context.keylog_filename = self._keylog_file
        except TlsConfigError as error:
            raise ConfigError(f"listeners[{self._number}].tls.{error.option}: {error}") from None
        except OSError as error:  # a file that was there a moment before, or the file for keys
            raise ConfigError(f"listeners[{self._number}].tls: {error}") from None
        self.context, self.revoked, self.ends = context, revoked, ends_of(self.options)


class CertificateWatch:
    """Watches and reloads the `files` of listeners. `flush` carries out the core's effects."""

    def __init__(self, core: Core, files: Mapping[Listener, CertificateFiles], flush: Callable[[], None]) -> None:
        self._core: Final = core
        self._files: Final = files
        self._flush: Final = flush
        self._loop: Final = asyncio.get_running_loop()
        self._loading: Final = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Warn about files that expire soon, and start to watch."""
        if self._files:
            self._task = self._loop.create_task(self._run())

    async def stop(self) -> None:
        """Stop to watch. Harmless if it was not started."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def ends_at(self) -> dict[str, dict[str, float]]:
        """When files are out of date, in seconds since 1970, by listener and option."""
        return {
            files.name: {option: end.at.timestamp() for option, end in files.ends.items()}
            for files in self._files.values()
        }

    async def reload(self) -> None:
        """Read all files now, changed or not, and log the result for each listener."""
        for listener, files in self._files.items():
            files.tried = files.version()
            files.complained = False
            await self._read(listener, files, may_complain=True)

    async def _run(self) -> None:
        warn_at = self._loop.time()
        while True:
            if self._loop.time() >= warn_at:
                warn_at = self._loop.time() + WARN_EVERY_S
                for files in self._files.values():
                    _warn(files)
            await asyncio.sleep(POLL_S)
            for listener, files in self._files.items():
                try:
                    await self._check(listener, files)
                except Exception:  # the broker goes on, and so does the watch
                    _log.exception("%s: its files could not be watched", files.name)

    async def _check(self, listener: Listener, files: CertificateFiles) -> None:
        """Reload the files if they have changed.

        A certificate and its key are two files that do not fit while only one is replaced. So unusable files are only
        logged if they are still the same at the next check, and tried again when they change.
        """
        version = files.version()
        is_settled = version == files.tried
        if version == files.in_force or (is_settled and files.complained):
            return
        if not is_settled:
            files.complained = False
        files.tried = version
        await self._read(listener, files, may_complain=is_settled)

    async def _read(self, listener: Listener, files: CertificateFiles, *, may_complain: bool) -> None:
        async with self._loading:
            version = files.tried
            try:
                await asyncio.to_thread(files.load)
            except ConfigError as error:
                if may_complain:
                    _log.error("%s: the former certificates stay in use: %s", files.name, error)
                    files.complained = True
                return
            files.in_force = version
            files.complained = False
            listener.use_context(files.context, files.revoked)
        _log.info("%s: reloaded for new connections: %s", files.name, ", ".join(files.options.files))
        _warn(files)
        await self._end_revoked(files, listener.revoked_links())

    async def _end_revoked(self, files: CertificateFiles, links: list[Link]) -> None:
        """Disconnect clients whose certificates are revoked."""
        for at, link in enumerate(links, 1):
            if link.is_passed_on:  # another node serves it
                link.abort()
            self._core.end_unauthorized(link.connection, "the client's certificate is revoked", self._loop.time())
            if at % REVOKED_PER_ITERATION == 0:
                self._flush()
                await asyncio.sleep(0)
        self._flush()
        if links:
            _log.warning("%s: certificates are revoked; clients disconnected: %d", files.name, len(links))


def _warn(files: CertificateFiles) -> None:
    for sentence in expiry_warnings(files.name, files.ends):
        _log.warning("%s", sentence)
