"""Builds the TLS contexts of listeners and clients, and explains why files are unusable.

`certificates` creates certificates. Invariant: a context is returned only if its files were loaded and fit together.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NoReturn

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secrecy and authenticated encryption (AEAD), as all ciphers of 1.3 have."""

_HOW_TO_MAKE_ONE = "'mqttlite certs init' makes a set for development."


class TlsConfigError(ValueError):
    """TLS cannot be set up. `option` names the wrong setting; the message says which file, what is wrong, what to
    do."""

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """The TLS options of a listener."""

    cert_file: str
    """The server's certificate with its chain, in PEM."""
    key_file: str
    """The unencrypted private key, in PEM."""
    ca_file: str | None = None
    """The CA certificates that verify client certificates, in PEM."""
    require_client_cert: bool = False
    """The same as `client_certificates = "required"`."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """The oldest TLS version to accept."""
    crl_file: str | None = None
    """Certificate revocation lists, signed by the CAs of `ca_file`."""
    client_certificates: Literal["required", "optional", "none"] | None = None
    """Whether client certificates are required, optional or not requested. Absent: `optional` with a `ca_file`, else
    `none`."""

    def __post_init__(self) -> None:
        if self.require_client_cert and self.client_certificates in ("optional", "none"):
            raise ValueError(
                f'require_client_cert is true and client_certificates is "{self.client_certificates}": set only the '
                "second"
            )

    @property
    def client_certificate_mode(self) -> Literal["required", "optional", "none"]:
        """The mode for client certificates in force."""
        if self.require_client_cert:
            return "required"
        return self.client_certificates or ("none" if self.ca_file is None else "optional")

    @property
    def files(self) -> tuple[str, ...]:
        """All files in the options."""
        return tuple(filter(None, (self.cert_file, self.key_file, self.ca_file, self.crl_file)))


_VERIFY_MODES: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


def server_context(
    options: TlsOptions, kind: type[ssl.SSLContext] = ssl.SSLContext, *, protocol: str = "mqtt"
) -> ssl.SSLContext:
    """The context of a listener, of class `kind`. `protocol` is its protocol for ALPN. Clients that name only other
    protocols are accepted all the same.

    Session tickets stay enabled: a device that reconnects skips half of the handshake. The ticket keys belong to the
    context, so a new context after a new revocation list verifies every certificate again.
    """
    mode = options.client_certificate_mode
    if mode != "none" and options.ca_file is None:
        raise TlsConfigError(
            "ca_file", f"Client certificates are {mode}, but no CA file says which ones to trust. Set ca_file."
        )
    context = kind(ssl.PROTOCOL_TLS_SERVER)
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols([protocol])
    context.minimum_version = ssl.TLSVersion.TLSv1_3 if options.min_version == "1.3" else ssl.TLSVersion.TLSv1_2
    context.num_tickets = 1  # a device needs only one, and each costs a twentieth of a handshake
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could force expensive renegotiations
    _load_chain(context, ("cert_file", options.cert_file), ("key_file", options.key_file))
    if options.ca_file is not None:
        _load_authorities(context, "ca_file", options.ca_file)
        context.verify_mode = _VERIFY_MODES[mode]
    if options.crl_file is not None:
        revoked_certificates(options)
        context.load_verify_locations(cafile=options.crl_file)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    return context


def revoked_certificates(options: TlsOptions) -> frozenset[tuple[str, int]]:
    """The ids (`certificate_id`) of certificates revoked by `crl_file`. Raises `TlsConfigError`."""
    from mqttlite.security.revocation import RevocationError, load_revoked  # clients do not need it

    if options.crl_file is None:
        return frozenset()
    if options.ca_file is None:
        raise TlsConfigError("crl_file", "It revokes certificates of the authorities in ca_file, which is not set.")
    try:
        return load_revoked(options.crl_file, options.ca_file)
    except RevocationError as error:
        raise TlsConfigError("crl_file", str(error)) from None


def client_context(
    cafile: str | None = None, cert: str | None = None, key: str | None = None, insecure: bool = False
) -> ssl.SSLContext:
    """The context of a client; without `cafile` the system's authorities are trusted.

    `insecure` is the option of mosquitto_pub: the host name is not checked. Without `cafile`, nothing is verified at
    all.
    """
    # Not create_default_context: since Python 3.13 it is strict about details that many private CAs lack.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        context.check_hostname = False
    if cafile is not None:
        _load_authorities(context, "cafile", cafile)
    elif insecure:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if cert is not None:
        _load_chain(context, ("cert", cert), ("key", cert if key is None else key))
    elif key is not None:
        raise TlsConfigError("cert", f"The key {key} was given without its certificate.")
    return context


def _load_authorities(context: ssl.SSLContext, option: str, path: str) -> None:
    content = _read(option, path)
    if b"-----BEGIN " not in content:
        raise TlsConfigError(option, f"{path} is not PEM text; a CA file begins with '-----BEGIN CERTIFICATE-----'.")
    try:
        context.load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        if _holds_certificate(content):
            raise TlsConfigError(
                option, f"{path} is damaged and cannot be used as a CA file ({error.reason})."
            ) from None
    if not context.cert_store_stats()["x509"]:
        raise TlsConfigError(option, f"{path} holds no certificate; name the file of the authority, such as ca.crt.")


def _load_chain(context: ssl.SSLContext, cert: tuple[str, str], key: tuple[str, str]) -> None:
    """Load a certificate chain and its key. Each is given as the name of an option and a path."""
    cert_option, cert_path = cert
    key_option, key_path = key
    cert_content, key_content = _read(cert_option, cert_path), _read(key_option, key_path)
    if not _holds_certificate(cert_content):
        hint = " It holds a private key: are the two swapped?" if _holds_key(cert_content) else ""
        raise TlsConfigError(cert_option, f"{cert_path} holds no PEM certificate.{hint} {_HOW_TO_MAKE_ONE}")
    if not _holds_key(key_content):
        hint = " Beside the certificate, name the file that its key is in." if key_path == cert_path else ""
        raise TlsConfigError(
            key_option, f"{key_path} holds no PEM private key, which begins with '-----BEGIN PRIVATE KEY-----'.{hint}"
        )

    def refuse_to_ask() -> NoReturn:  # OpenSSL would otherwise stop and ask on the terminal
        raise TlsConfigError(
            key_option,
            f"{key_path} is encrypted. Store it decrypted, readable by the broker alone: "
            f"'openssl pkey -in {key_path} -out plain.key'.",
        )

    try:
        context.load_cert_chain(cert_path, key_path, password=refuse_to_ask)
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise TlsConfigError(
                key_option, f"{key_path} is not the key of {cert_path}. Name the two files that were made together."
            ) from None
        raise TlsConfigError(
            cert_option, f"{cert_path} and {key_path} cannot be used, one of them is damaged ({error.reason})."
        ) from None


def _read(option: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise TlsConfigError(option, f"{path}: no such file. {_HOW_TO_MAKE_ONE}") from None
    except OSError as error:
        raise TlsConfigError(option, f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:  # a path with a NUL
        raise TlsConfigError(option, f"{path!r} is no path of a file: {error}.") from None


def _holds_certificate(content: bytes) -> bool:
    return b"CERTIFICATE-----" in content


def _holds_key(content: bytes) -> bool:
    return b"PRIVATE KEY-----" in content
