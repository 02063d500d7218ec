"""The names of aiomqtt for parameters of `Client` that have other names here, so that its programs run unchanged.

Invariant: a parameter that is given under both names is refused.
"""

import ssl
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, TypeVar

from mqttlite.client.options import VERSIONS, Version
from mqttlite.wire.constants import V5, V31, V311

T = TypeVar("T")


class ProtocolVersion(IntEnum):
    """The versions of MQTT, as aiomqtt and paho number them."""

    V31 = V31
    V311 = V311
    V5 = V5


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSParameters:
    """The files of a TLS connection; without any, the system's authorities are trusted."""

    ca_certs: str | None = None
    """The authorities that may have signed the server's certificate."""
    certfile: str | None = None
    """The client's certificate."""
    keyfile: str | None = None
    """Its key, if that is in another file."""
    cert_reqs: ssl.VerifyMode | None = None
    """How the server's certificate is verified; absent: it must be valid."""
    tls_version: ssl.TLSVersion | None = None
    """The oldest version to speak; absent: what Python takes."""
    ciphers: str | None = None
    keyfile_password: str | None = None

    def context(self) -> ssl.SSLContext:
        """Raises `OSError` for files that cannot be read, and `ssl.SSLError` for those that cannot be used."""
        context = ssl.create_default_context(cafile=self.ca_certs)
        if self.cert_reqs is not None:
            context.check_hostname = self.cert_reqs == ssl.CERT_REQUIRED
            context.verify_mode = self.cert_reqs
        if self.tls_version is not None:
            context.minimum_version = self.tls_version
        if self.ciphers is not None:
            context.set_ciphers(self.ciphers)
        if self.certfile is not None:
            context.load_cert_chain(self.certfile, self.keyfile, self.keyfile_password)
        return context


_VERSION_OF: Final[dict[int, str]] = {number: name for name, number in VERSIONS.items()}


def either(name: str, value: T, default: T, other_name: str, other: T | None) -> T:
    """The value of a parameter with two names. Raises `ValueError` when both were given."""
    if other is None:
        return value
    if value != default:
        raise ValueError(f"{name} and {other_name} are two names of one parameter: leave one of them out")
    return other


def version_of(protocol: int | Version | None) -> Version | None:
    """The version of a protocol number, such as `ProtocolVersion.V5`, or of its name. Raises `ValueError`."""
    name = _VERSION_OF.get(protocol) if isinstance(protocol, int) else protocol
    if protocol is not None and name not in VERSIONS:
        raise ValueError(f"protocol is {protocol!r}: it may be a ProtocolVersion, or {', '.join(VERSIONS)}")
    return name  # type: ignore[return-value]
