"""Connects to a broker like a client, and explains why clients fail.

Each check uses its own connection: TLS or not, its versions, the certificate, and the answer to CONNECT. Invariant: no
connection stays open, and nothing is published.
"""

import secrets
import socket
import ssl
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from mqttlite.security.certificate_files import CertificateError, load_certificate
from mqttlite.security.findings import Finding, Level, dates, fits, has_name, listed, note, ok, problem, serves, warning
from mqttlite.security.issuing import common_name, names_of
from mqttlite.wire.constants import V5
from mqttlite.wire.encode import encode
from mqttlite.wire.packets import Connect

_CONNACK: Final = 0x20

_SENT_BY: Final = {
    "CERTIFICATE_REQUIRED": "The listener requires a client certificate, and none was shown: give --cert and --key.",
    "CERTIFICATE_REVOKED": "The broker refuses the client certificate: it is revoked.",
    "CERTIFICATE_EXPIRED": "The broker refuses the client certificate: it has expired, as the broker's clock says.",
    "UNKNOWN_CA": "The broker refuses the client certificate: its authority is not in the ca_file.",
    "UNSUPPORTED_CERTIFICATE": "The broker refuses the client certificate: it is not meant for clients.",
    "BAD_CERTIFICATE": "The broker refuses the client certificate.",
    "CERTIFICATE_UNKNOWN": "The broker refuses the client certificate.",
    "PROTOCOL_VERSION": "The broker refuses this version of TLS.",
    "INSUFFICIENT_SECURITY": "The broker refuses the ciphers that were offered.",
}
"""Explanations of TLS alerts from a broker, by the end of OpenSSL's name."""

_OUT_OF_DATE_CODES: Final = (9, 10)
"""OpenSSL's codes for a certificate that is not valid yet or has expired."""

_VERSIONS: Final = {
    "TLS 1.0": ssl.TLSVersion.TLSv1,
    "TLS 1.1": ssl.TLSVersion.TLSv1_1,
    "TLS 1.2": ssl.TLSVersion.TLSv1_2,
    "TLS 1.3": ssl.TLSVersion.TLSv1_3,
}
_OUT_OF_DATE: Final = frozenset({"TLS 1.0", "TLS 1.1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Where to connect, with which files, and the time to assume."""

    host: str
    port: int
    cafile: str | None = None
    cert: str | None = None
    key: str | None = None
    now: datetime
    warn_days: int
    timeout_s: float = 5.0

    @property
    def where(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def examine_broker(visit: Visit) -> Iterator[Finding]:
    """Run all checks for a host, in the order in which a client would meet the problems."""
    own = list(_own_certificate(visit))
    yield from own
    if any(each.level == Level.PROBLEM for each in own):
        return
    try:
        with socket.create_connection((visit.host, visit.port), visit.timeout_s):
            pass
    except OSError as error:
        yield problem(_unreachable(visit, error))
        return
    try:
        shown = _certificate(visit)
    except OSError as error:
        yield _no_tls(visit, error)
        return
    yield ok(f"{visit.where} speaks TLS. A client without TLS gets no answer on this port.")
    yield from _versions(visit)
    yield dates("The broker's certificate", shown, visit.now, visit.warn_days)
    yield _name(visit, shown)
    yield from _trust(visit, shown)
    yield from _mqtt(visit)


# ── each question ────────────────────────────────────────────────────────────────────────────────────────────────────


def _own_certificate(visit: Visit) -> Iterator[Finding]:
    if visit.cert is None:
        return
    yield from fits(Path(visit.cert), Path(visit.key or visit.cert))
    try:
        certificate = load_certificate(Path(visit.cert))
    except CertificateError:  # reported before
        return
    found = dates(f"The client certificate {visit.cert}", certificate, visit.now, visit.warn_days)
    if found.level == Level.PROBLEM:  # the broker decides by its own clock
        yield warning(found.text)
    else:
        yield found
    if not serves(certificate, ExtendedKeyUsageOID.CLIENT_AUTH):
        yield warning(f"{visit.cert} is not meant for clients (extended key usage): brokers refuse it.")


def _certificate(visit: Visit) -> x509.Certificate:
    """The broker's certificate, trusted or not."""
    with _handshake(visit, _lenient(visit)) as secured:
        der = secured.getpeercert(True)
    if der is None:
        raise ssl.SSLError("no certificate was shown")
    return x509.load_der_x509_certificate(der)


def _no_tls(visit: Visit, error: OSError) -> Finding:
    """Why the handshake failed although nothing was verified."""
    if said := _alert(error):
        return problem(said)
    if isinstance(error, ssl.SSLError) and "HANDSHAKE_FAILURE" in (error.reason or ""):
        return problem(
            f"{visit.where} ended the TLS handshake: it requires a client certificate (give --cert and --key), or the "
            "two have no version or cipher in common."
        )
    if _speaks_plainly(visit):
        return problem(
            f"{visit.where} speaks MQTT without TLS: a client that sends TLS bytes to this listener is closed. Use the "
            "TLS port, often 8883, or turn TLS off in the client."
        )
    return problem(f"{visit.where} speaks neither TLS nor MQTT ({_in_words(error)}). Is it the right port?")


def _speaks_plainly(visit: Visit) -> bool:
    try:
        with socket.create_connection((visit.host, visit.port), visit.timeout_s) as plain:
            plain.sendall(_connect())
            return plain.recv(1) == bytes([_CONNACK])
    except OSError:
        return False


def _versions(visit: Visit) -> Iterator[Finding]:
    spoken = []
    for name, version in _VERSIONS.items():
        context = _lenient(visit)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # old versions are used on purpose
            context.minimum_version = context.maximum_version = version
        try:
            with _handshake(visit, context):
                spoken.append(name)
        except OSError as error:
            if name not in _OUT_OF_DATE and _is_refused_for_another_reason(error):
                spoken.append(name)
    old = [name for name in spoken if name in _OUT_OF_DATE]
    new = [name for name in spoken if name not in _OUT_OF_DATE]
    if old:
        yield warning(f"The broker still speaks {' and '.join(old)}, which are out of date.")
    if not new:
        yield problem("The broker speaks neither TLS 1.2 nor TLS 1.3, and clients of today want one of them.")
    elif len(new) == 1:
        yield note(f"Of today's versions the broker speaks {new[0]} only: a client that cannot is refused.")
    else:
        yield ok("The broker speaks TLS 1.2 and TLS 1.3.")


def _name(visit: Visit, shown: x509.Certificate) -> Finding:
    names = listed(names_of(shown))
    if has_name(shown, visit.host):
        return ok(f"The broker's certificate is valid for {visit.host} ({names}).")
    return problem(
        f"The broker's certificate is not valid for {visit.host}: it has {names}. Dial one of these, or make a "
        f"certificate with this name ('mqttlite certs init --host {visit.host}')."
    )


def _trust(visit: Visit, shown: x509.Certificate) -> Iterator[Finding]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # the name is checked separately
    trusted = "the system's authorities"
    if visit.cafile is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        trusted = visit.cafile
        try:
            context.load_verify_locations(cafile=visit.cafile)
        except (ssl.SSLError, OSError) as error:
            yield problem(f"{visit.cafile} cannot be used as a file of authorities ({_in_words(error)}).")
            return
    _show(context, visit)
    try:
        with _handshake(visit, context):
            pass
    except ssl.SSLCertVerificationError as error:
        issuer = shown.issuer.rfc4514_string()
        if shown.issuer == shown.subject:
            yield problem(
                f"The broker's certificate is signed by itself and not in {trusted}: give the client this certificate "
                "as its CA file, or use one of an authority."
            )
        elif error.verify_code in _OUT_OF_DATE_CODES:
            if shown.not_valid_before_utc <= visit.now < shown.not_valid_after_utc:  # else it was said already
                yield problem(
                    f"The broker's certificate is in date, and one of an authority above it is not "
                    f"({error.verify_message}): its issuer is {issuer}. Make a new set, and give its CA file to every "
                    "client; or set the clock."
                )
        else:
            yield problem(
                f"No client that trusts {trusted} accepts the broker's certificate ({error.verify_message}): its "
                f"issuer is {issuer}, and {_held(visit, shown)}. Either that is the CA file of another "
                "authority, or the chain is incomplete: the broker's cert_file needs the intermediate certificates "
                "behind its own."
            )
        return
    except OSError:  # about the client certificate, which is checked next
        pass
    yield ok(f"The broker's certificate is of an authority in {trusted}.")


def _held(visit: Visit, shown: x509.Certificate) -> str:
    if visit.cafile is None:
        return "none of the system's authorities has issued it"
    try:
        found = x509.load_pem_x509_certificates(Path(visit.cafile).read_bytes())
    except (ValueError, OSError):
        return f"{visit.cafile} holds others"
    names = ", ".join(common_name(each) for each in found[:5]) + (" and others" if len(found) > 5 else "")
    is_namesake = any(each.subject == shown.issuer for each in found)
    return f"{visit.cafile} holds {names}{' of another key' * is_namesake}"


def _mqtt(visit: Visit) -> Iterator[Finding]:
    """Check the answer to CONNECT. In TLS 1.3, only now the client learns whether its certificate is accepted."""
    try:
        with _handshake(visit, _lenient(visit)) as secured:
            secured.sendall(_connect())
            answer = secured.recv(4)
    except OSError as error:
        text = _alert(error) or f"The broker ended the connection before it answered CONNECT ({_in_words(error)})."
        yield problem(text)
        return
    if len(answer) < 4 or answer[0] != _CONNACK:
        yield note("TLS is right, but CONNECT was not answered: is it a listener for WebSocket, or no broker?")
    elif answer[3]:
        yield note(
            f"TLS is right. The broker refuses this client for another reason (CONNACK 0x{answer[3]:02x}): it may want "
            "a user name and a password."
        )
    else:
        yield ok("The broker accepts a client over this connection.")


# ── the connection ───────────────────────────────────────────────────────────────────────────────────────────────────


def _lenient(visit: Visit) -> ssl.SSLContext:
    """A context that trusts every certificate, and supports every version."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
    _show(context, visit)
    return context


def _show(context: ssl.SSLContext, visit: Visit) -> None:
    if visit.cert is not None:
        context.load_cert_chain(visit.cert, visit.key or visit.cert)


def _handshake(visit: Visit, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection((visit.host, visit.port), visit.timeout_s)
    try:
        return context.wrap_socket(plain, server_hostname=visit.host)
    except BaseException:
        plain.close()
        raise


def _connect() -> bytes:
    return encode(Connect(f"mqttlite-doctor-{secrets.token_hex(4)}"), V5)


def _alert(error: OSError) -> str:
    """The explanation of an alert from the broker; empty for other errors."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    if "ALERT_" not in reason:
        return ""
    return next((text for end, text in _SENT_BY.items() if reason.endswith(end)), "")


def _is_refused_for_another_reason(error: OSError) -> bool:
    """Whether the broker ended a handshake in a version that it supports: it may require a certificate."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    return "ALERT_" in reason and not reason.endswith("PROTOCOL_VERSION")


def _in_words(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return error.reason or str(error)
    return error.strerror or str(error) or type(error).__name__


def _unreachable(visit: Visit, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"The host {visit.host!r} was not found ({error.strerror}). Is the name right?"
    if isinstance(error, ConnectionRefusedError):
        return f"Nobody listens on {visit.where} (connection refused). Does the broker run, and on this port?"
    if isinstance(error, TimeoutError):
        return f"{visit.where} did not answer within {visit.timeout_s:g} s. Is there a firewall between?"
    return f"{visit.where} cannot be reached: {_in_words(error)}."
