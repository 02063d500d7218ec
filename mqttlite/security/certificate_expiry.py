"""When the certificate files of a listener expire, and warnings about it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from mqttlite.security.tls import TlsOptions

WARN_WITHIN: Final = timedelta(days=30)
"""How long before the expiry warnings begin: enough time to renew by hand."""

_AFTERWARDS: Final = {
    "cert_file": "clients refuse a broker whose certificate is out of date",
    "ca_file": "every client with a certificate of that authority is refused",
    "crl_file": "every client with a certificate is refused",
}


@dataclass(frozen=True, slots=True)
class End:
    """A file, and when its content expires."""

    path: str
    at: datetime


def ends_of(options: TlsOptions) -> dict[str, End]:
    """The expiry of each readable file of a listener, by option.

    A chain expires with its first certificate; a file of CAs with the first of the valid ones.
    """
    from mqttlite.security.certificate_files import ends_at  # here, for cryptography takes a while
    from mqttlite.security.revocation import crl_ends_at

    readers: tuple[tuple[str, str | None, Callable[[str], datetime]], ...] = (
        ("cert_file", options.cert_file, ends_at),
        ("ca_file", options.ca_file, _authorities_end_at),
        ("crl_file", options.crl_file, crl_ends_at),
    )
    found = {}
    for option, path, read in readers:
        if path is not None:
            with suppress(ValueError, OSError):  # the TLS library accepts some malformed files
                found[option] = End(path, read(path))
    return found


def expiry_warnings(listener: str, ends: Mapping[str, End], now: datetime | None = None) -> Iterator[str]:
    """A sentence for each file that has expired, or will within `WARN_WITHIN`."""
    now = now or datetime.now(UTC)
    for option, end in ends.items():
        if end.at <= now:
            yield f"listener {listener}: {end.path} is out of date since {end.at:%Y-%m-%d}: {_AFTERWARDS[option]}"
        elif end.at - now <= WARN_WITHIN:
            days = (end.at - now).days
            when = f"in {days} days" if days > 1 else "within two days"
            yield (
                f"listener {listener}: {end.path} is out of date {when}, on {end.at:%Y-%m-%d %H:%M} UTC; "
                f"renew it: from then on {_AFTERWARDS[option]}"
            )


def _authorities_end_at(path: str) -> datetime:
    from cryptography import x509  # here, for it takes a while

    ends = [each.not_valid_after_utc for each in x509.load_pem_x509_certificates(Path(path).read_bytes())]
    now = datetime.now(UTC)
    return min((each for each in ends if each > now), default=max(ends))
