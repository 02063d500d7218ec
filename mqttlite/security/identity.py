"""Gets the name of a TLS peer from its verified certificate, and authenticates peers by certificate alone if a listener
allows it.

Invariant: an ambiguous certificate gives no name.
"""

from collections.abc import Mapping
from typing import Final, Literal

from mqttlite.core.authentication import Verdict
from mqttlite.security.authenticator import Credentials
from mqttlite.wire.reason_codes import ReasonCode

IdentitySource = Literal["cn", "san_dns", "san_uri", "san_email"]

_ALTERNATIVE_NAMES: Final = {"san_dns": "DNS", "san_uri": "URI", "san_email": "email"}
"""The kinds of Subject Alternative Names, as named by `getpeercert`."""


def identity_of(peercert: Mapping[str, object] | None, source: IdentitySource = "cn") -> str | None:
    """The subject's common name, or its alternative name of a kind, from the result of `SSLSocket.getpeercert()`.

    None if there is not exactly one, or if it is blank or not printable.
    """
    if source == "cn":
        subject = (peercert or {}).get("subject", ())
        pairs = [pair for relative_name in subject for pair in relative_name] if isinstance(subject, tuple) else []
        names = [value for kind, value in pairs if kind == "commonName"]
    else:
        alternative = (peercert or {}).get("subjectAltName", ())
        pairs = [*alternative] if isinstance(alternative, tuple) else []
        names = [value for kind, value in pairs if kind == _ALTERNATIVE_NAMES[source]]
    if len(names) != 1:
        return None
    [name] = names
    return name if isinstance(name, str) and name.strip() and name.isprintable() else None


class CertificateAuthenticator:
    """An `Authenticator` that accepts clients with a name in a verified certificate. The name is the user."""

    async def authenticate(self, credentials: Credentials) -> Verdict | None:
        """The verdict on a client with a certificate; None for one without."""
        if credentials.identity is None:
            return None
        return Verdict(ReasonCode.SUCCESS, None, credentials.identity)
