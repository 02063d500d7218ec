"""A certificate names its holder, or nobody."""

from typing import Any

import pytest

from mqttlite.security.identity import identity_of


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
def test_an_unclear_certificate_names_nobody(peercert: dict[str, Any] | None) -> None:
    assert identity_of(peercert) is None
