"""Names a TLS peer from its verified certificate, and lets it log in with that alone where a listener says so.

Invariant: an unclear certificate names nobody.
"""

from collections.abc import Mapping
from typing import Final, Literal

from mqttlite.core.authentication import Verdict
from mqttlite.security.authenticator import Credentials
from mqttlite.wire.reason_codes import ReasonCode

IdentitySource = Literal["cn", "san_dns", "san_uri", "san_email"]

_ALTERNATIVE_NAMES: Final = {"san_dns": "DNS", "san_uri": "URI", "san_email": "email"}
"""How `getpeercert` calls the kinds of Subject Alternative Names."""


def identity_of(peercert: Mapping[str, object] | None, source: IdentitySource = "cn") -> str | None:
    """The subject's common name, or the alternative name of a kind, in what `SSLSocket.getpeercert()` returns.

    None when there is not exactly one, or when it is blank or has characters that cannot be printed.
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
    """An `Authenticator` that lets in clients with a verified certificate that has a name. That name is the user."""

    async def authenticate(self, credentials: Credentials) -> Verdict | None:
        """The verdict on a client with a certificate; None for one without."""
        if credentials.identity is None:
            return None
        return Verdict(ReasonCode.SUCCESS, None, credentials.identity)
