"""Names a TLS peer from its verified certificate.

Whether that name may connect is the authenticator's question. Invariant: an unclear certificate names nobody.
"""

from collections.abc import Mapping


def identity_of(peercert: Mapping[str, object] | None) -> str | None:
    """The subject's common name in what `SSLSocket.getpeercert()` returns; None when there is not exactly one."""
    subject = (peercert or {}).get("subject", ())
    if not isinstance(subject, tuple):
        return None
    names = [value for relative_name in subject for kind, value in relative_name if kind == "commonName"]
    if len(names) != 1:
        return None
    [name] = names
    return name if isinstance(name, str) and name.strip() and name.isprintable() else None
