"""TLS contexts: what they allow, what they resume, and what they say when a file is wrong."""

import os
import shutil
import ssl
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from mqttlite.security.authority import issued, revoke
from mqttlite.security.certificates import init, issue
from mqttlite.security.identity import identity_of
from mqttlite.security.revocation import certificate_id
from mqttlite.security.tls import TlsConfigError, TlsOptions, client_context, revoked_certificates, server_context


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certs")
    init(directory, clients=["device"])
    return directory


@pytest.fixture
def certs(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def options(certs: Path, **changes: object) -> TlsOptions:
    values: dict[str, object] = {"cert_file": str(certs / "server.crt"), "key_file": str(certs / "server.key")}
    return TlsOptions(**(values | changes))  # type: ignore[arg-type]


def client(certs: Path, name: str | None = None) -> ssl.SSLContext:
    cert, key = (str(certs / f"{name}.crt"), str(certs / f"{name}.key")) if name else (None, None)
    return client_context(str(certs / "ca.crt"), cert, key)


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost", session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Shake hands in memory and pass one message, which also carries TLS 1.3's tickets; return client and server."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    here = client.wrap_bio(to_client, to_server, server_hostname=host, session=session)
    there = server.wrap_bio(to_server, to_client, server_side=True)
    shake: list[Callable[[], object]] = [here.do_handshake, there.do_handshake]
    speak: list[Callable[[], object]] = [lambda: there.write(b"hi"), lambda: here.read(2)]
    for step in shake * 3 + speak:
        try:
            step()
        except ssl.SSLWantReadError:
            pass
    return here, there


def test_a_client_that_trusts_the_authority_connects(certs: Path) -> None:
    here, there = handshake(server_context(options(certs)), client(certs))
    assert here.version() == "TLSv1.3"
    assert there.getpeercert() is None


def test_a_client_that_trusts_another_authority_refuses(certs: Path) -> None:
    init(certs / "others")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(options(certs)), client(certs / "others"))


def test_a_wrong_host_name_is_refused_unless_insecure(certs: Path) -> None:
    server = server_context(options(certs))
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        handshake(server, client(certs), host="elsewhere.example")
    handshake(server, client_context(str(certs / "ca.crt"), insecure=True), host="elsewhere.example")


def test_insecure_with_a_ca_file_still_verifies_the_authority(certs: Path) -> None:
    init(certs / "others")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(options(certs)), client_context(str(certs / "others" / "ca.crt"), insecure=True))


def test_insecure_without_a_ca_file_verifies_nothing(certs: Path) -> None:
    here, _ = handshake(server_context(options(certs)), client_context(insecure=True), host="elsewhere.example")
    assert here.version() == "TLSv1.3"


def test_a_client_without_a_ca_file_trusts_the_system() -> None:
    context = client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize("required", [False, True])
def test_a_client_certificate_names_the_client(certs: Path, required: bool) -> None:
    server = server_context(options(certs, ca_file=str(certs / "ca.crt"), require_client_cert=required))
    _, there = handshake(server, client(certs, "device"))
    assert identity_of(there.getpeercert()) == "device"


def test_a_ca_file_alone_lets_clients_come_without_a_certificate(certs: Path) -> None:
    server = server_context(options(certs, ca_file=str(certs / "ca.crt")))
    _, there = handshake(server, client(certs))
    assert identity_of(there.getpeercert()) is None


def test_a_required_certificate_is_required(certs: Path) -> None:
    server = server_context(options(certs, ca_file=str(certs / "ca.crt"), require_client_cert=True))
    with pytest.raises(ssl.SSLError, match="PEER_DID_NOT_RETURN_A_CERTIFICATE"):
        handshake(server, client(certs))


def test_a_server_certificate_is_no_client_certificate(certs: Path) -> None:
    server = server_context(options(certs, ca_file=str(certs / "ca.crt"), require_client_cert=True))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server, client(certs, "server"))


def test_tls_1_3_can_be_demanded(certs: Path) -> None:
    old = client(certs)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    here, _ = handshake(server_context(options(certs)), old)
    assert here.version() == "TLSv1.2"
    with pytest.raises(ssl.SSLError):
        handshake(server_context(options(certs, min_version="1.3")), old)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_comes_back_resumes_its_session_and_keeps_its_identity(
    certs: Path, newest: ssl.TLSVersion
) -> None:
    server = server_context(options(certs, ca_file=str(certs / "ca.crt"), require_client_cert=True))
    returning = client(certs, "device")
    returning.maximum_version = newest
    first, _ = handshake(server, returning)
    again, there = handshake(server, returning, session=first.session)
    assert again.session_reused
    assert identity_of(there.getpeercert()) == "device"


def damaged(path: Path) -> None:
    head, *rest = path.read_text().splitlines(keepends=True)
    path.write_text(head + "AAAA" + "".join(rest))


def encrypted(path: Path) -> None:
    key = serialization.load_pem_private_key(path.read_bytes(), None)
    secret = serialization.BestAvailableEncryption(b"secret")
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def filled(text: str) -> Callable[[Path], None]:
    def fill(path: Path) -> None:
        path.write_text(text)

    return fill


def test_a_path_with_a_nul_is_no_path() -> None:
    with pytest.raises(TlsConfigError, match="is no path of a file"):
        client_context("ca\0.crt")


def copied(name: str) -> Callable[[Path], None]:
    def copy(path: Path) -> None:
        path.write_bytes((path.parent / name).read_bytes())

    return copy


REFUSED: list[tuple[str, Callable[[Path], None], str, str]] = [
    ("server.crt", Path.unlink, "cert_file", r"server\.crt: no such file"),
    ("server.key", Path.unlink, "key_file", r"server\.key: no such file"),
    ("ca.crt", Path.unlink, "ca_file", r"ca\.crt: no such file"),
    ("server.crt", a_directory, "cert_file", r"server\.crt cannot be read: Is a directory"),
    ("server.crt", filled(""), "cert_file", r"server\.crt holds no PEM certificate"),
    ("server.crt", copied("server.key"), "cert_file", r"It holds a private key: are the two swapped\?"),
    ("server.crt", damaged, "cert_file", "one of them is damaged"),
    ("server.key", damaged, "cert_file", "one of them is damaged"),
    ("server.key", filled("key"), "key_file", r"server\.key holds no PEM private key"),
    ("server.key", encrypted, "key_file", r"server\.key is encrypted"),
    ("server.key", copied("device.key"), "key_file", r"server\.key is not the key of .*server\.crt"),
    ("ca.crt", filled("hello"), "ca_file", r"ca\.crt is not PEM text"),
    ("ca.crt", copied("ca.key"), "ca_file", r"ca\.crt holds no certificate"),
    ("ca.crt", damaged, "ca_file", r"ca\.crt is damaged"),
]


@pytest.mark.parametrize(("name", "spoil", "option", "sentence"), REFUSED)
def test_a_file_that_cannot_serve_is_named_with_its_error(
    certs: Path, name: str, spoil: Callable[[Path], None], option: str, sentence: str
) -> None:
    spoil(certs / name)
    with pytest.raises(TlsConfigError, match=sentence) as caught:
        server_context(options(certs, ca_file=str(certs / "ca.crt")))
    assert caught.value.option == option


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root reads everything")
def test_an_unreadable_key_is_named(certs: Path) -> None:
    (certs / "server.key").chmod(0)
    with pytest.raises(TlsConfigError, match=r"server\.key cannot be read: Permission denied"):
        server_context(options(certs))


def test_requiring_certificates_needs_a_ca_file(certs: Path) -> None:
    with pytest.raises(TlsConfigError, match="Set ca_file") as caught:
        server_context(options(certs, require_client_cert=True))
    assert caught.value.option == "ca_file"


def test_a_client_key_without_its_certificate_is_refused(certs: Path) -> None:
    with pytest.raises(TlsConfigError, match="without its certificate"):
        client_context(key=str(certs / "device.key"))


@pytest.mark.long
def test_a_client_certificate_may_hold_its_key(certs: Path) -> None:
    both = certs / "both.pem"
    both.write_bytes((certs / "device.crt").read_bytes() + (certs / "device.key").read_bytes())
    server = server_context(options(certs, ca_file=str(certs / "ca.crt"), require_client_cert=True))
    _, there = handshake(server, client_context(str(certs / "ca.crt"), str(both)))
    assert identity_of(there.getpeercert()) == "device"
    with pytest.raises(TlsConfigError, match="holds no PEM private key"):
        client_context(cert=str(certs / "device.crt"))


# ── client certificates, lists of revoked ones, ciphers, ALPN ────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("ca", "required", "asked", "mode"),
    [
        (False, False, None, "none"),
        (True, False, None, "optional"),
        (True, True, None, "required"),
        (True, True, "required", "required"),
        (True, False, "required", "required"),
        (True, False, "optional", "optional"),
        (True, False, "none", "none"),
    ],
)
def test_whether_clients_need_certificates(certs: Path, ca: bool, required: bool, asked: str | None, mode: str) -> None:
    chosen = options(
        certs,
        ca_file=str(certs / "ca.crt") if ca else None,
        require_client_cert=required,
        client_certificates=asked,
    )
    assert chosen.client_certificate_mode == mode
    names = {ssl.CERT_NONE: "none", ssl.CERT_OPTIONAL: "optional", ssl.CERT_REQUIRED: "required"}
    assert names[server_context(chosen).verify_mode] == mode


@pytest.mark.parametrize("asked", ["optional", "none"])
def test_the_two_options_for_client_certificates_must_agree(certs: Path, asked: str) -> None:
    with pytest.raises(ValueError, match="require_client_cert is true and client_certificates"):
        options(certs, require_client_cert=True, client_certificates=asked)


@pytest.mark.parametrize("mode", ["optional", "required"])
def test_asking_for_certificates_needs_a_ca_file(certs: Path, mode: str) -> None:
    with pytest.raises(TlsConfigError, match="Set ca_file"):
        server_context(options(certs, client_certificates=mode))


def test_a_certificate_that_is_not_asked_for_names_no_user(certs: Path) -> None:
    server = server_context(options(certs, ca_file=str(certs / "ca.crt"), client_certificates="none"))
    _, there = handshake(server, client(certs, "device"))
    assert identity_of(there.getpeercert()) is None


def with_list(certs: Path, **changes: object) -> TlsOptions:
    return options(certs, ca_file=str(certs / "ca.crt"), crl_file=str(certs / "crl.pem"), **changes)


@pytest.mark.parametrize("mode", ["optional", "required"])
@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_revoked_certificate_is_refused_and_others_are_not(certs: Path, mode: str, newest: ssl.TLSVersion) -> None:
    issue(certs, ["spy"])
    revoke(certs, "spy")
    server = server_context(with_list(certs, client_certificates=mode))
    spy = client(certs, "spy")
    spy.maximum_version = newest
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate revoked"):
        handshake(server, spy)
    _, there = handshake(server, client(certs, "device"))
    assert identity_of(there.getpeercert()) == "device"
    assert {serial for _, serial in revoked_certificates(with_list(certs))} == {
        int(each.serial, 16) for each in issued(certs) if each.name == "spy"
    }


def test_a_certificate_is_identified_in_der_as_on_the_list(certs: Path) -> None:
    revoke(certs, "device")
    _, there = handshake(server_context(options(certs, ca_file=str(certs / "ca.crt"))), client(certs, "device"))
    der = there.getpeercert(True)
    assert der is not None
    assert revoked_certificates(with_list(certs)) == {certificate_id(der)}


def test_a_list_without_authorities_is_refused(certs: Path) -> None:
    with pytest.raises(TlsConfigError, match="ca_file, which is not set") as caught:
        server_context(options(certs, crl_file=str(certs / "crl.pem")))
    assert caught.value.option == "crl_file"
    assert revoked_certificates(options(certs)) == set()


def foreign(path: Path) -> None:
    init(path.parent / "others")
    path.write_bytes((path.parent / "others" / "crl.pem").read_bytes())


def outdated(path: Path) -> None:
    made = path.parent / "old"
    init(made, ca_days=1, now=datetime.now(UTC) - timedelta(days=3))
    for name in ("crl.pem", "ca.crt", "server.crt", "server.key"):
        (path.parent / name).write_bytes((made / name).read_bytes())


WRONG_LISTS: list[tuple[Callable[[Path], None], str]] = [
    (Path.unlink, "no such file"),
    (a_directory, "cannot be read: Is a directory"),
    (filled("hello"), "holds no list of revoked certificates in PEM"),
    (copied("server.crt"), "holds a certificate, which would be trusted"),
    (filled("-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"), "is damaged"),
    (foreign, "was not signed by an authority of"),
    (outdated, "is out of date since"),
]


@pytest.mark.parametrize(("spoil", "sentence"), WRONG_LISTS)
def test_a_list_that_cannot_be_used_is_named_with_its_error(
    certs: Path, spoil: Callable[[Path], None], sentence: str
) -> None:
    spoil(certs / "crl.pem")
    with pytest.raises(TlsConfigError, match=sentence) as caught:
        server_context(with_list(certs))
    assert caught.value.option == "crl_file"


def test_tls_1_2_has_only_authenticated_encryption_with_forward_secrecy(certs: Path) -> None:
    names = [each["name"] for each in server_context(options(certs)).get_ciphers()]
    assert names
    assert all("GCM" in name or "CHACHA20" in name for name in names)
    assert all(name.startswith(("ECDHE-", "TLS_")) for name in names)
    old = client(certs)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    old.set_ciphers("ECDHE-ECDSA-AES128-SHA256:AES128-SHA")
    with pytest.raises(ssl.SSLError, match="NO_SHARED_CIPHER"):
        handshake(server_context(options(certs)), old)


@pytest.mark.parametrize(
    ("offered", "spoken", "chosen"),
    [
        (["mqtt"], "mqtt", "mqtt"),
        (["x", "mqtt"], "mqtt", "mqtt"),
        (["h2", "http/1.1"], "http/1.1", "http/1.1"),
        (["other"], "mqtt", None),
        ([], "mqtt", None),
    ],
)
def test_the_protocol_is_named_where_the_client_asks(
    certs: Path, offered: list[str], spoken: str, chosen: str | None
) -> None:
    asking = client(certs)
    if offered:
        asking.set_alpn_protocols(offered)
    here, _ = handshake(server_context(options(certs), protocol=spoken), asking)
    assert here.selected_alpn_protocol() == chosen
