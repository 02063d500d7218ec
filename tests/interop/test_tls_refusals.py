"""What OpenSSL in mosquitto_pub says when a certificate is refused, on either side, and after certificates changed."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.security.authority import renew, revoke
from mqttlite.security.certificate_files import load_certificate
from mqttlite.security.certificates import init, issue
from mqttlite.security.tls import TlsOptions
from mqttlite.server import Broker
from tests.interop.support import eventually, tool

VERSIONS = pytest.mark.parametrize("version", ["tlsv1.2", "tlsv1.3"])


@contextmanager
def served(at: Path) -> Iterator[int]:
    files = (str(at / "server.crt"), str(at / "server.key"), str(at / "ca.crt"))
    tls = TlsOptions(*files, client_certificates="required", crl_file=str(at / "crl.pem"))
    with Broker(Config(listeners=(ListenerOptions(port=0, tls=tls),))) as broker:
        yield broker.port


def publish(port: int, at: Path, name: str, version: str, host: str = "localhost") -> subprocess.CompletedProcess[str]:
    """The client trusts the authority at `at`, and shows the certificate of that name."""
    return subprocess.run(
        [
            *(tool("mosquitto_pub", package="mosquitto-clients"), "-h", host, "-p", str(port), "-t", "a", "-m", "x"),
            *("--cafile", str(at / "ca.crt"), "--cert", str(at / f"{name}.crt"), "--key", str(at / f"{name}.key")),
            *("--tls-version", version, "-q", "1", "-d"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def trusted(at: Path) -> None:
    """Nothing is wrong."""


def expired(at: Path) -> None:
    _remake(at, days=1, now=datetime.now(UTC) - timedelta(days=3))


def elsewhere(at: Path) -> None:
    _remake(at)


def self_signed(at: Path) -> None:
    # The broker goes on with a certificate of nobody's authority but its own.
    init(at / "others")
    for kind in ("crt", "key"):
        shutil.copy(at / "others" / f"ca.{kind}", at / f"server.{kind}")


def of_another_authority(at: Path) -> None:
    init(at / "others")
    for kind in ("crt", "key"):
        shutil.copy(at / "others" / f"server.{kind}", at / f"server.{kind}")


def _remake(at: Path, **options: object) -> None:
    shutil.rmtree(at)
    init(at, clients=["device"], **options)  # type: ignore[arg-type]


@VERSIONS
@pytest.mark.parametrize(
    ("spoil", "host", "said"),
    [
        (trusted, "localhost", ""),
        (expired, "localhost", "certificate verify failed"),
        (elsewhere, "127.0.0.2", "host name verification failed"),
        (self_signed, "localhost", "certificate verify failed"),
        (of_another_authority, "localhost", "certificate verify failed"),
    ],
)
def test_a_client_refuses_a_broker_and_says_why(
    tmp_path: Path, spoil: Callable[[Path], None], host: str, said: str, version: str
) -> None:
    at = tmp_path / "certs"
    init(at, clients=["device"])
    spoil(at)
    files = (str(at / "server.crt"), str(at / "server.key"))
    tls = TlsOptions(*files)
    with Broker(Config(listeners=(ListenerOptions(host=host, port=0, tls=tls),))) as broker:
        done = publish(broker.port, at, "device", version, host)
    assert bool(done.returncode) is bool(said)
    assert said in (done.stdout + done.stderr)


@VERSIONS
@pytest.mark.parametrize(
    ("whose", "alert"),
    [
        ("valid", ""),
        ("revoked", "alert certificate revoked"),
        ("expired", "alert certificate expired"),
        ("another authority's", "alert unknown ca"),
        ("self-signed", "alert unknown ca"),
    ],
)
def test_the_alert_tells_a_client_why_it_is_refused(tmp_path: Path, whose: str, alert: str, version: str) -> None:
    at, others = tmp_path / "certs", tmp_path / "others"
    init(at, clients=["old"], days=1, now=datetime.now(UTC) - timedelta(days=3))
    renew(at, ["server"])
    issue(at, ["device", "spy"])
    init(others, clients=["stranger"])
    revoke(at, "spy")
    name = {"valid": "device", "revoked": "spy", "expired": "old"}.get(whose, "stranger")
    for kind in ("crt", "key"):
        shutil.copy(others / f"{'ca' if whose == 'self-signed' else 'stranger'}.{kind}", at / f"stranger.{kind}")
    with served(at) as port:
        done = publish(port, at, name, version)
    assert bool(done.returncode) is bool(alert)
    assert alert in done.stdout + done.stderr


def test_a_renewed_certificate_is_what_the_next_client_sees(tmp_path: Path) -> None:
    init(tmp_path, clients=["device"], now=datetime.now(UTC) - timedelta(days=390))
    with served(tmp_path) as port:
        assert publish(port, tmp_path, "device", "tlsv1.3").returncode == 0
        renew(tmp_path)
        newest = f"{load_certificate(tmp_path / 'server.crt').serial_number:X}"

        def is_shown() -> bool:
            shown = subprocess.run(
                ["openssl", "s_client", "-connect", f"localhost:{port}", "-CAfile", str(tmp_path / "ca.crt")],
                input="",
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            ).stdout
            serial = subprocess.run(
                ["openssl", "x509", "-noout", "-serial"],
                input=shown,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            ).stdout
            return serial.strip().removeprefix("serial=").lstrip("0") == newest

        eventually(is_shown)
        assert publish(port, tmp_path, "device", "tlsv1.3").returncode == 0
