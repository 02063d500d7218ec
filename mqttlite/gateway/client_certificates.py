"""Client certificates of callers: the user that they name, and whether they have been revoked.

Invariant: a certificate that is here was verified by the handshake, against the authorities of that moment.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, final

from starlette.requests import HTTPConnection

if TYPE_CHECKING:
    from mqttlite.security.revocation import CertificateId

STATE: Final = "certificate"
"""Where a request's state has the certificate of its connection."""


@final
class ClientCertificate:
    """One. `revoked` gives the certificates that are revoked now."""

    __slots__ = ("_id", "_revoked", "identity")

    def __init__(
        self, identity: str, certificate_id: "CertificateId", revoked: "Callable[[], frozenset[CertificateId]]"
    ) -> None:
        self.identity: Final = identity
        """The user that it names."""
        self._id: Final = certificate_id
        self._revoked: Final = revoked

    @property
    def is_revoked(self) -> bool:
        return self._id in self._revoked()


def certificate_of(request: HTTPConnection) -> ClientCertificate | None:
    """The certificate of a request's connection, but for requests of pages of other sites: a browser shows it without
    asking, as it sends cookies."""
    state: Mapping[str, object] = request.scope.get("state", {})
    found = state.get(STATE)
    if not isinstance(found, ClientCertificate):
        return None
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
        return None
    return found
