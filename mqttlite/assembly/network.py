"""Builds the MQTT listeners with their certificates, quotas and authenticators."""

import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from mqttlite.assembly.logins import Logins
from mqttlite.assembly.runtime import Runtime
from mqttlite.config import ConfigError, ListenerOptions
from mqttlite.config.checks import is_refused, open_listeners
from mqttlite.config.quotas import BrokerQuotas
from mqttlite.core.question import Authenticate
from mqttlite.net.endpoints import TcpEndpoint, UnixEndpoint
from mqttlite.net.frame_queue import FrameQueue
from mqttlite.net.handshake_turns import HandshakeTurns
from mqttlite.net.link import LinkPort
from mqttlite.net.listeners import Listener
from mqttlite.net.proxy_protocol import Proxies
from mqttlite.operations.certificate_watch import CertificateFiles, CertificateWatch
from mqttlite.security.auth_chain import AuthChain
from mqttlite.security.identity import identity_of

_TRANSPORT_NAMES: Final = {
    "tcp": "TCP",
    "tls": "TLS",
    "ws": "WebSocket",
    "wss": "WebSocket and TLS",
    "unix": "a Unix socket",
}

_log = logging.getLogger("mqttlite")


class Network:
    """The listeners. Raises `ConfigError` for an unintentionally open listener, and for unusable TLS files."""

    def __init__(self, runtime: Runtime, logins: Logins, tls_keylog: str | None) -> None:
        self._runtime: Final = runtime
        self._logins: Final = logins
        self._tls_keylog: Final = tls_keylog
        self._handshake_turns: Final = HandshakeTurns()
        self._frame_queue: Final = FrameQueue(runtime.core.effects, runtime.loop_driver.wake)
        self.quotas: Final = BrokerQuotas(runtime.config.quotas, runtime.clock(), runtime.core.throttling.refused)
        self.quotas.adopt(runtime.core.sessions.values())
        self._auth_chains: Final[dict[Listener, AuthChain]] = {}
        self._certificate_files: Final[dict[Listener, CertificateFiles]] = {}
        self.listeners: Final = [
            self._listener(number, options) for number, options in enumerate(runtime.config.listeners)
        ]
        runtime.core.permissions.trusts_names = all(each.is_open for each in self._auth_chains.values())
        self.certificates: Final = CertificateWatch(runtime.core, self._certificate_files, runtime.loop_driver.run)

    def note_connect(self, link: LinkPort) -> None:
        """The CONNECT of a link has arrived."""
        for listener in self.listeners:
            listener.note_connect(link)

    def authenticate(self, question: Authenticate) -> None:
        """Pass a question to the authenticators of the link's listener."""
        link = self._runtime.loop_driver.links[question.number]
        self.note_connect(link)
        for listener, auth_chain in self._auth_chains.items():
            if listener.holds(link):  # otherwise the link is gone
                self._logins.questions.ask(link, question, auth_chain)

    def log_addresses(self) -> None:
        """Log the addresses of the listeners."""
        for listener in self.listeners:
            kind = _TRANSPORT_NAMES[listener.transport]
            for address in listener.addresses:
                _log.info("listening for MQTT over %s on %s (%s)", kind, address, listener.name)

    def _listener(self, number: int, options: ListenerOptions) -> Listener:
        runtime, config = self._runtime, self._runtime.config
        auth_chain = self._logins.chain(number, options)
        if auth_chain.is_open and is_refused(config, options):
            raise ConfigError(*(str(each) for each in open_listeners(config)))
        name = config.listener_names()[number]
        files = None if options.tls is None else CertificateFiles(number, name, options, self._tls_keylog)
        listener = Listener(
            name,
            TcpEndpoint(options.host, options.port, options.reuse_port)
            if options.path is None
            else UnixEndpoint(options.path, options.mode),
            transport=options.transport(),
            websocket=options.websocket_options(),
            context=None if files is None else files.context,
            proxies=None if options.proxy_protocol is None else Proxies(options.proxy_protocol),
            max_connections=options.max_connections,
            max_half_open=options.half_open_limit(),
            handshake_timeout_s=options.handshake_timeout_s,
            must_authenticate=not auth_chain.is_open,
            methods=auth_chain.methods,
            capabilities=options.capabilities,
            mount_point=options.mount_point.encode(),
            identity_of=partial(identity_of, source=options.identity_from),
            quotas=self.quotas.of_listener(options.quotas, options.place(number + 1)),
            connect_limits=(options.connects or config.connects).limits(runtime.clock()),
            certificate_id_of=_certificate_id_of(options),
            revoked=frozenset() if files is None else files.revoked,
            broker=runtime.core,
            loop_driver=runtime.loop_driver,
            frame_queue=self._frame_queue,
            turns=self._handshake_turns,
        )
        self._auth_chains[listener] = auth_chain
        if files is not None:
            self._certificate_files[listener] = files
        return listener


def _certificate_id_of(options: ListenerOptions) -> Callable[[bytes], Hashable] | None:
    """How the listener names client certificates; None if they cannot be revoked."""
    if options.tls is None or options.tls.crl_file is None:
        return None
    from mqttlite.security.revocation import certificate_id  # here, for cryptography takes a while

    return certificate_id
