"""The set of certificates: what they say, what is kept, and that nothing is ever half made."""

import errno
import os
import socket
import ssl
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mqttlite.security import issuing
from mqttlite.security.authority import renew
from mqttlite.security.certificate_files import CertificateError
from mqttlite.security.certificates import init, issue

NOW = datetime(2030, 5, 1, 12, tzinfo=UTC)
SET = ["ca.crt", "ca.key", "crl.pem", "server.crt", "server.key"]


def snapshot(directory: Path) -> dict[str, bytes]:
    """The files, without the copies in a folder of their own."""
    return {path.name: path.read_bytes() for path in directory.glob("*") if path.is_file()}


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def usage_of(certificate: x509.Certificate) -> list[x509.ObjectIdentifier]:
    return list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_a_new_set_is_an_authority_and_a_server_certificate(tmp_path: Path) -> None:
    entries = init(tmp_path)
    assert sorted(snapshot(tmp_path)) == SET
    assert [entry.path.name for entry in entries] == ["ca.crt", "server.crt"]
    assert all(entry.made for entry in entries)


def test_the_directory_is_made_with_its_parents(tmp_path: Path) -> None:
    init(tmp_path / "a" / "b")
    assert sorted(snapshot(tmp_path / "a" / "b")) == SET


def test_the_server_certificate_names_this_machine_and_the_hosts_asked_for(tmp_path: Path) -> None:
    init(tmp_path, hosts=["Broker.Example.", "10.0.0.7", "*.example.org", "broker.example", "fe80::1"])
    server = load(tmp_path / "server.crt")
    names = issuing.names_of(server)
    assert names[:3] == ["localhost", "127.0.0.1", "::1"]
    assert socket.gethostname().lower() in names
    assert names[-4:] == ["broker.example", "10.0.0.7", "*.example.org", "fe80::1"]
    assert len(names) == len(set(names))
    assert usage_of(server) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_a_client_certificate_names_its_client(tmp_path: Path) -> None:
    init(tmp_path, clients=["device-1"])
    client = load(tmp_path / "device-1.crt")
    assert client.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "device-1"
    assert usage_of(client) == [ExtendedKeyUsageOID.CLIENT_AUTH]


def test_every_certificate_is_signed_by_the_authority_and_says_whether_it_may_sign(tmp_path: Path) -> None:
    init(tmp_path, clients=["device"])
    authority = load(tmp_path / "ca.crt")
    for name in ("ca", "server", "device"):
        certificate = load(tmp_path / f"{name}.crt")
        certificate.verify_directly_issued_by(authority)
        constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
        usage = certificate.extensions.get_extension_for_class(x509.KeyUsage)
        assert constraints.critical
        assert usage.critical
        assert constraints.value.ca is usage.value.key_cert_sign is (name == "ca")
        assert isinstance(certificate.public_key(), ec.EllipticCurvePublicKey)


def test_the_authority_lasts_ten_years_servers_397_days_and_clients_825(tmp_path: Path) -> None:
    init(tmp_path, clients=["device"], now=NOW)
    spans = {
        name: load(tmp_path / f"{name}.crt").not_valid_after_utc - load(tmp_path / f"{name}.crt").not_valid_before_utc
        for name in ("ca", "server", "device")
    }
    assert spans == {"ca": timedelta(3650), "server": timedelta(397), "device": timedelta(825)}


def test_the_days_can_be_chosen_but_nothing_outlives_its_authority(tmp_path: Path) -> None:
    init(tmp_path, days=90, ca_days=30, now=NOW)
    assert load(tmp_path / "server.crt").not_valid_after_utc == load(tmp_path / "ca.crt").not_valid_after_utc
    init(tmp_path, clients=["device"], days=7, now=NOW)
    assert load(tmp_path / "device.crt").not_valid_after_utc == NOW - issuing.CLOCK_SKEW + timedelta(7)


def crl_urls(path: Path) -> list[str]:
    try:
        points = load(path).extensions.get_extension_for_class(x509.CRLDistributionPoints).value
    except x509.ExtensionNotFound:
        return []
    return [name.value for point in points for name in point.full_name or ()]


def test_certificates_name_the_address_of_the_list_where_it_is_given_and_newer_ones_do_too(tmp_path: Path) -> None:
    url, other = "http://crl.example/ca.crl", "http://crl.example/other.crl"
    init(tmp_path, clients=["plain"], now=NOW)
    assert crl_urls(tmp_path / "server.crt") == crl_urls(tmp_path / "plain.crt") == []
    issue(tmp_path, ["device"], crl_url=url, now=NOW)
    assert crl_urls(tmp_path / "device.crt") == [url]
    for given, named in ((None, url), (other, other)):
        renew(tmp_path, ["device"], crl_url=given, now=NOW)
        assert crl_urls(tmp_path / "device.crt") == [named]
    renew(tmp_path, ["server"], crl_url=url, now=NOW)
    assert crl_urls(tmp_path / "server.crt") == [url]


@pytest.mark.parametrize("url", ["", "crl.example/ca.crl", "ldap://a/ca", "http:///ca", "http://[x/", "http://a b/"])
def test_an_invalid_address_of_a_list_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(CertificateError, match="is no address of a list"):
        init(tmp_path, crl_url=url)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="Windows has no permission bits")
def test_keys_are_readable_by_their_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        init(tmp_path, clients=["device"])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert {mode for name, mode in modes.items() if name.endswith(".key")} == {0o600}
    assert {mode for name, mode in modes.items() if name.endswith(".crt")} == {0o644}


def test_a_second_run_keeps_every_file(tmp_path: Path) -> None:
    init(tmp_path, clients=["device"], hosts=["broker.example"])
    before = snapshot(tmp_path)
    entries = init(tmp_path, clients=["device"], hosts=["broker.example"])
    assert snapshot(tmp_path) == before
    assert not any(entry.made for entry in entries)


def test_another_client_is_added_and_the_rest_is_kept(tmp_path: Path) -> None:
    init(tmp_path, clients=["device"])
    before = snapshot(tmp_path)
    entries = init(tmp_path, clients=["device", "gauge"])
    after = snapshot(tmp_path)
    assert {name: content for name, content in after.items() if name in before} == before
    assert sorted(after.keys() - before.keys()) == ["gauge.crt", "gauge.key"]
    assert [entry.path.name for entry in entries if entry.made] == ["gauge.crt"]
    load(tmp_path / "gauge.crt").verify_directly_issued_by(load(tmp_path / "ca.crt"))


def test_a_missing_server_certificate_is_made_from_the_authority_that_is_there(tmp_path: Path) -> None:
    init(tmp_path)
    (tmp_path / "server.crt").unlink()
    (tmp_path / "server.key").unlink()
    init(tmp_path, hosts=["broker.example"])
    load(tmp_path / "server.crt").verify_directly_issued_by(load(tmp_path / "ca.crt"))


def test_a_complete_set_needs_no_authority_key(tmp_path: Path) -> None:
    init(tmp_path, clients=["device"])
    (tmp_path / "ca.key").unlink()
    assert not any(entry.made for entry in init(tmp_path, clients=["device"]))
    with pytest.raises(CertificateError, match=r"ca\.crt exists without ca\.key"):
        init(tmp_path, clients=["gauge"])


def test_a_host_that_the_kept_certificate_lacks_is_refused(tmp_path: Path) -> None:
    init(tmp_path)
    with pytest.raises(CertificateError, match=r"not valid for broker\.example"):
        init(tmp_path, hosts=["broker.example"])


@pytest.mark.parametrize("alone", ["ca.key", "server.crt", "server.key", "device.key", "device.crt"])
def test_one_file_of_a_pair_alone_is_refused_and_nothing_is_made(tmp_path: Path, alone: str) -> None:
    (tmp_path / alone).write_text("precious")
    with pytest.raises(CertificateError, match=alone.replace(".", r"\.") + r" exists without|authority"):
        init(tmp_path, clients=["device"])
    assert snapshot(tmp_path) == {alone: b"precious"}


def test_certificates_without_their_authority_are_refused(tmp_path: Path) -> None:
    init(tmp_path)
    (tmp_path / "ca.crt").unlink()
    (tmp_path / "ca.key").unlink()
    with pytest.raises(CertificateError, match=r"its authority ca\.crt does not"):
        init(tmp_path)
    assert sorted(snapshot(tmp_path)) == ["crl.pem", "server.crt", "server.key"]


def test_a_dangling_link_counts_as_a_file_that_exists(tmp_path: Path) -> None:
    (tmp_path / "certs").mkdir()
    (tmp_path / "certs" / "ca.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CertificateError, match="exists without"):
        init(tmp_path / "certs")
    assert not (tmp_path / "elsewhere").exists()


def test_a_key_of_another_authority_is_refused(tmp_path: Path) -> None:
    init(tmp_path / "one")
    init(tmp_path / "two")
    (tmp_path / "one" / "ca.key").write_bytes((tmp_path / "two" / "ca.key").read_bytes())
    with pytest.raises(CertificateError, match="different authorities"):
        init(tmp_path / "one", clients=["device"])
    assert sorted(snapshot(tmp_path / "one")) == SET


def test_a_certificate_that_is_no_authority_issues_nothing(tmp_path: Path) -> None:
    init(tmp_path)
    for kind in ("crt", "key"):
        (tmp_path / f"ca.{kind}").write_bytes((tmp_path / f"server.{kind}").read_bytes())
    with pytest.raises(CertificateError, match="no certificate authority"):
        init(tmp_path, clients=["device"])


def test_an_expired_authority_issues_nothing(tmp_path: Path) -> None:
    init(tmp_path, now=NOW)
    with pytest.raises(CertificateError, match="expired on 2040-04-28"):
        init(tmp_path, clients=["device"], now=NOW + timedelta(3650))


@pytest.mark.parametrize("name", ["ca.crt", "ca.key"])
def test_an_authority_that_is_no_pem_is_refused(tmp_path: Path, name: str) -> None:
    init(tmp_path)
    (tmp_path / name).write_text("not PEM")
    with pytest.raises(CertificateError, match="is not a PEM"):
        init(tmp_path, clients=["device"])


def test_an_encrypted_authority_key_is_refused_with_the_way_to_decrypt_it(tmp_path: Path) -> None:
    init(tmp_path)
    key = serialization.load_pem_private_key((tmp_path / "ca.key").read_bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"secret")
    (tmp_path / "ca.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    )
    with pytest.raises(CertificateError, match="is encrypted"):
        init(tmp_path, clients=["device"])


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rsa", "ed25519"])
def test_an_authority_made_elsewhere_issues_too(tmp_path: Path, kind: str) -> None:
    key: rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey = (
        rsa.generate_private_key(65537, 2048) if kind == "rsa" else ed25519.Ed25519PrivateKey.generate()
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Another CA")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256() if isinstance(key, rsa.RSAPrivateKey) else None)
    )
    (tmp_path / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "ca.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    init(tmp_path, now=NOW)
    server = load(tmp_path / "server.crt")
    server.verify_directly_issued_by(certificate)
    assert server.not_valid_before_utc == NOW


BAD_NAMES = ["", ".", "..", "../x", "a/b", "a\\b", "-x", ".x", "a b", "a+", "#", "a\0b", "ü", "x" * 65]


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_client_name_that_is_no_plain_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CertificateError, match="is no client name"):
        init(tmp_path, clients=["good", name])
    assert snapshot(tmp_path) == {}


def test_a_client_name_of_64_characters_is_fine(tmp_path: Path) -> None:
    init(tmp_path, clients=["x" * 64])
    assert (tmp_path / f"{'x' * 64}.crt").exists()


@pytest.mark.parametrize("names", [["ca"], ["server"], ["Server"], ["CA"], ["device", "Device"]])
def test_client_names_that_would_share_a_file_are_refused(tmp_path: Path, names: list[str]) -> None:
    with pytest.raises(CertificateError, match="another certificate's file"):
        init(tmp_path, clients=names)
    assert snapshot(tmp_path) == {}


@pytest.mark.parametrize("host", ["", "a b", "a..b", "a:8883", "münchen.de", "x/y", "-a", "*", "a*.b", "1" * 300])
def test_a_host_that_no_certificate_can_name_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(CertificateError, match="no host name or IP address"):
        init(tmp_path, hosts=[host])
    assert snapshot(tmp_path) == {}


def test_a_machine_with_an_impossible_name_still_gets_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "my machine")
    init(tmp_path)
    assert issuing.names_of(load(tmp_path / "server.crt")) == ["localhost", "127.0.0.1", "::1"]


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "certs").write_text("")
    with pytest.raises(CertificateError, match="is a file, not a directory"):
        init(tmp_path / "certs")


@pytest.mark.parametrize("nth", range(9))
def test_a_disk_that_fails_at_any_file_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    calls = 0

    def failing_fsync(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls == nth + 1:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", failing_fsync)
    with pytest.raises(CertificateError, match="No space left"):
        init(tmp_path / "certs", clients=["device"])
    assert not (tmp_path / "certs").exists()
    monkeypatch.undo()
    assert all(entry.made for entry in init(tmp_path / "certs", clients=["device"]))


def test_an_interrupt_leaves_the_former_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    init(tmp_path)
    before = snapshot(tmp_path)

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        init(tmp_path, clients=["device"])
    assert snapshot(tmp_path) == before


def test_a_file_that_appears_meanwhile_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def racing_open(path: Path, flags: int, mode: int = 0o777) -> int:
        if Path(path).name == "server.crt":
            path.write_text("somebody else's")
        return real_open(path, flags, mode)

    monkeypatch.setattr(os, "open", racing_open)
    with pytest.raises(CertificateError, match="appeared meanwhile"):
        init(tmp_path)
    assert snapshot(tmp_path) == {"server.crt": b"somebody else's"}


@pytest.mark.parametrize("shown", ["device", None])
def test_the_strictest_verification_accepts_the_set_both_ways(tmp_path: Path, shown: str | None) -> None:
    init(tmp_path, clients=["device"])
    authority = str(tmp_path / "ca.crt")
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    client = ssl.create_default_context(cafile=authority)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    if shown:
        server.load_verify_locations(authority)
        server.verify_mode = ssl.CERT_REQUIRED
        server.verify_flags |= ssl.VERIFY_X509_STRICT
        client.load_cert_chain(tmp_path / f"{shown}.crt", tmp_path / f"{shown}.key")
    for host in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        one = client.wrap_bio(to_client, to_server, server_hostname=host)
        other = server.wrap_bio(to_server, to_client, server_side=True)
        for side in (one, other, one, other):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                pass
        assert one.version() == other.version() == "TLSv1.3"
