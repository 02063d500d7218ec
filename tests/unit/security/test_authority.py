"""What an authority has issued: it is known, renewed for the same keys, and revoked."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from mqttlite.security import authority
from mqttlite.security.authority import issued, renew, revoke
from mqttlite.security.certificate_files import CertificateError
from mqttlite.security.certificates import init, issue

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(days=800)


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def crl_of(directory: Path) -> x509.CertificateRevocationList:
    return x509.load_pem_x509_crl((directory / "crl.pem").read_bytes())


def serials_of(directory: Path) -> set[int]:
    return {each.serial_number for each in crl_of(directory)}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    init(tmp_path, clients=["pump", "valve"], hosts=["broker.example"], now=NOW)
    return tmp_path


def test_an_issued_client_certificate_is_signed_and_named(made: Path) -> None:
    (entry,) = issue(made, ["gauge"], now=NOW)
    assert entry.made
    load(made / "gauge.crt").verify_directly_issued_by(load(made / "ca.crt"))
    assert "gauge" in {each.name for each in issued(made)}


@pytest.mark.parametrize("left", ["pump.crt", "pump.key"])
def test_issuing_never_overwrites(made: Path, left: str) -> None:
    (made / ({"pump.crt", "pump.key"} - {left}).pop()).unlink()
    content = (made / left).read_bytes()
    with pytest.raises(CertificateError, match=r"exists, and nothing is overwritten"):
        issue(made, ["gauge", "pump"], now=NOW)
    assert (made / left).read_bytes() == content
    assert not (made / "gauge.crt").exists()


def test_issuing_without_an_authority_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(CertificateError, match="certs init"):
        issue(tmp_path, ["gauge"], now=NOW)


def test_the_list_has_names_purposes_hosts_and_ends(made: Path) -> None:
    found = {each.name: each for each in issued(made)}
    assert {name: each.purpose for name, each in found.items()} == {
        "ca": "authority",
        "pump": "client",
        "server": "server",
        "valve": "client",
    }
    assert "broker.example" in found["server"].hosts
    assert found["pump"].expires_at == load(made / "pump.crt").not_valid_after_utc
    assert int(found["pump"].serial, 16) == load(made / "pump.crt").serial_number
    assert found["pump"].path == made / "pump.crt"


def test_a_certificate_that_moved_to_its_device_is_still_known_and_can_be_revoked(made: Path) -> None:
    serial = load(made / "pump.crt").serial_number
    (made / "pump.crt").unlink()
    (made / "pump.key").unlink()
    (pump,) = [each for each in issued(made) if each.name == "pump"]
    assert pump.path is None
    revoke(made, "pump", now=NOW)
    assert serials_of(made) == {serial}


def test_files_of_others_are_not_listed(made: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    init(other, clients=["stranger"])
    (made / "stranger.crt").write_bytes((other / "stranger.crt").read_bytes())
    (made / "notes.crt").write_text("no certificate")
    assert {each.name for each in issued(made)} == {"ca", "pump", "server", "valve"}


def test_a_renewed_certificate_keeps_its_key_and_names_and_ends_later(made: Path) -> None:
    former, key = load(made / "server.crt"), (made / "server.key").read_bytes()
    (entry,) = renew(made, ["server"], now=LATER)
    newer = load(made / "server.crt")
    assert newer.public_key() == former.public_key()
    assert (made / "server.key").read_bytes() == key
    assert newer.serial_number != former.serial_number
    assert newer.not_valid_after_utc == entry.expires_at == former.not_valid_after_utc + timedelta(days=800)
    for kind in (x509.SubjectAlternativeName, x509.ExtendedKeyUsage):
        assert newer.extensions.get_extension_for_class(kind) == former.extensions.get_extension_for_class(kind)
    newer.verify_directly_issued_by(load(made / "ca.crt"))


def test_without_names_certificates_that_end_soon_are_renewed(made: Path) -> None:
    issue(made, ["gauge"], now=LATER)
    assert renew(made, now=NOW) == []
    assert {each.name for each in renew(made, now=LATER)} == {"pump", "server", "valve"}
    assert renew(made, now=LATER) == []


@pytest.mark.parametrize(("days_left", "renewed"), [(29, True), (30, True), (31, False)])
def test_soon_is_within_the_days_asked_for(made: Path, days_left: int, renewed: bool) -> None:
    now = load(made / "server.crt").not_valid_after_utc - timedelta(days=days_left)
    assert bool(renew(made, within_days=30, now=now)) is renewed


def test_an_expired_certificate_can_still_be_renewed_and_its_copy_goes(made: Path) -> None:
    now = NOW + timedelta(days=900)
    renew(made, ["pump"], now=now)
    assert load(made / "pump.crt").not_valid_after_utc > now
    assert len(list((made / "issued").iterdir())) == 1  # the others had ended, too


def test_a_revoked_certificate_is_not_renewed(made: Path) -> None:
    revoke(made, "pump", now=NOW)
    with pytest.raises(CertificateError, match="is revoked"):
        renew(made, ["pump"], now=LATER)
    assert {each.name for each in renew(made, now=LATER)} == {"server", "valve"}


def test_a_disk_that_fails_leaves_the_former_certificate(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former = (made / "pump.crt").read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CertificateError, match="No space left"):
        renew(made, ["pump"], now=LATER)
    with pytest.raises(CertificateError, match="No space left"):
        revoke(made, "pump", now=LATER)
    assert (made / "pump.crt").read_bytes() == former
    assert serials_of(made) == set()
    assert not [path for path in made.iterdir() if path.name.startswith(".")]


def test_revoking_takes_every_valid_certificate_of_the_name(made: Path) -> None:
    former = load(made / "pump.crt").serial_number
    renew(made, ["pump"], now=NOW + timedelta(days=1))
    revoked = revoke(made, "pump", now=NOW + timedelta(days=2))
    assert serials_of(made) == {former, load(made / "pump.crt").serial_number}
    assert {each.serial for each in revoked} == {f"{each:x}" for each in serials_of(made)}
    assert crl_of(made).is_signature_valid(load(made / "ca.crt").public_key())  # type: ignore[arg-type]
    assert {each.name for each in issued(made) if each.revoked_at is not None} == {"pump"}


def test_each_list_of_revoked_certificates_has_a_higher_number_and_all_former_entries(made: Path) -> None:
    numbers = []
    for name in ("pump", "valve"):
        revoke(made, name, now=NOW)
        numbers.append(crl_of(made).extensions.get_extension_for_class(x509.CRLNumber).value.crl_number)
    assert numbers == [2, 3]
    assert len(serials_of(made)) == 2


def test_the_list_forgets_certificates_that_have_ended(made: Path) -> None:
    revoke(made, "pump", now=NOW)
    now = NOW + timedelta(days=900)
    issue(made, ["gauge"], now=now)
    revoke(made, "gauge", now=now)
    assert serials_of(made) == {load(made / "gauge.crt").serial_number}


def test_the_list_is_made_where_there_was_none(made: Path) -> None:
    (made / "crl.pem").unlink()
    revoke(made, "pump", now=NOW)
    assert len(serials_of(made)) == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("nobody", "No certificate was issued"),
        ("ca", "authority itself"),
        ("../pump", "is no name"),
        ("", "is no name"),
    ],
)
def test_a_token_that_was_not_issued_cannot_be_revoked(made: Path, name: str, sentence: str) -> None:
    with pytest.raises(CertificateError, match=sentence):
        revoke(made, name, now=NOW)


def test_revoking_twice_says_so(made: Path) -> None:
    revoke(made, "pump", now=NOW)
    with pytest.raises(CertificateError, match="is revoked or has ended"):
        revoke(made, "pump", now=NOW)


def test_a_list_of_another_authority_is_not_overwritten(made: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    init(other)
    (made / "crl.pem").write_bytes((other / "crl.pem").read_bytes())
    with pytest.raises(CertificateError, match="another authority"):
        revoke(made, "pump", now=NOW)
    (made / "crl.pem").write_text("damaged")
    with pytest.raises(CertificateError, match="not a list"):
        revoke(made, "pump", now=NOW)


def test_two_that_revoke_at_once_both_succeed(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the lock of the first, and reads the list after it."""
    pytest.importorskip("fcntl")
    import threading

    waiting = threading.Thread(target=revoke, args=(made, "valve"), kwargs={"now": NOW})
    real = authority.sign_crl

    def sign_slowly(*arguments: object) -> bytes:
        if waiting.ident is None:
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(authority, "sign_crl", sign_slowly)
    revoke(made, "pump", now=NOW)
    waiting.join(10)
    assert len(serials_of(made)) == 2
