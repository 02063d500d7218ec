"""How to connect to the engine with TLS. Importing it imports nothing of the engine's client."""

import ssl
from typing import Protocol


class TlsFiles(Protocol):
    """The options that say how to connect with TLS."""

    @property
    def servers(self) -> tuple[str, ...]: ...
    @property
    def ca_file(self) -> str | None: ...
    @property
    def cert_file(self) -> str | None: ...
    @property
    def key_file(self) -> str | None: ...


def tls_context(options: TlsFiles) -> ssl.SSLContext | None:
    """None where no server needs TLS. Raises `ValueError` with a sentence for files that cannot be used."""
    if not any(each.startswith("tls://") for each in options.servers):
        return None
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
        if options.cert_file is not None:
            context.load_cert_chain(options.cert_file, options.key_file)
    except (OSError, ValueError) as error:
        raise ValueError(f"its certificates cannot be used: {error}. Name files in PEM") from None
    return context
