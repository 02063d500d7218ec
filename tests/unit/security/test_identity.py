"""A certificate names its holder, or nobody."""

from typing import Any

import pytest

from mqttlite.security.authenticator import Credentials
from mqttlite.security.identity import CertificateAuthenticator, IdentitySource, identity_of


def subject(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"subject": tuple((pair,) for pair in pairs)}


def test_the_common_name_is_the_identity() -> None:
    assert identity_of(subject(("organizationName", "Works"), ("commonName", "device-1"))) == "device-1"


@pytest.mark.parametrize(
    "peercert",
    [
        None,
        {},
        {"subject": ()},
        {"subject": "device"},
        subject(("organizationName", "Works")),
        subject(("commonName", "")),
        subject(("commonName", "  ")),
        subject(("commonName", "dev\0ice")),
        subject(("commonName", "device"), ("commonName", "admin")),
    ],
)
def test_an_unclear_certificate_names_no_user(peercert: dict[str, Any] | None) -> None:
    assert identity_of(peercert) is None


def alternative(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {**subject(("commonName", "cn")), "subjectAltName": pairs}


@pytest.mark.parametrize(
    ("source", "name"),
    [("cn", "cn"), ("san_dns", "device-1.example"), ("san_uri", "urn:device:1"), ("san_email", "one@example.com")],
)
def test_an_alternative_name_may_be_the_identity(source: IdentitySource, name: str) -> None:
    certificate = alternative(
        ("DNS", "device-1.example"), ("URI", "urn:device:1"), ("email", "one@example.com"), ("IP Address", "127.0.0.1")
    )
    assert identity_of(certificate, source) == name


@pytest.mark.parametrize(
    "peercert",
    [
        None,
        {},
        {"subjectAltName": "DNS"},
        subject(("commonName", "device")),
        alternative(),
        alternative(("URI", "device")),
        alternative(("DNS", "")),
        alternative(("DNS", "dev\0ice")),
        alternative(("DNS", "device"), ("DNS", "admin")),
    ],
)
def test_an_unclear_alternative_name_names_no_user(peercert: dict[str, Any] | None) -> None:
    assert identity_of(peercert, "san_dns") is None


async def test_a_certificate_lets_its_holder_in() -> None:
    device, nobody = (Credentials("c", "said", b"pw", identity, "peer", "mqtt") for identity in ("device", None))
    verdict = await CertificateAuthenticator().authenticate(device)
    assert verdict is not None
    assert (verdict.reason_code, verdict.username) == (0, "device")
    assert await CertificateAuthenticator().authenticate(nobody) is None
