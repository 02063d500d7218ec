"""Tokens as passwords: which are good, what their claims mean, and attacks that must not work."""

import base64
import json
import logging
import os
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from hypothesis import example, given
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, HMACAlgorithm, OKPAlgorithm, RSAAlgorithm

from mqttlite.core.authentication import Verdict
from mqttlite.security.authenticator import Credentials
from mqttlite.security.token_keys import MAX_FILE_BYTES, MAX_KEYS, load_keys
from mqttlite.security.token_options import TokenConfigError, TokenOptions
from mqttlite.security.tokens import LAST_TIME, MAX_TOKEN_BYTES, TokenAuthenticator, TokenRefused, looks_like_token

NOW = 1_800_000_000.0
LOOP_NOW = 50.0
SECRET = b"0123456789abcdef0123456789abcdef"
RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEYS = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "ES384": ec.generate_private_key(ec.SECP384R1()),
    "ES512": ec.generate_private_key(ec.SECP521R1()),
}
ED_KEY = ed25519.Ed25519PrivateKey.generate()
GOOD = {"sub": "ann", "exp": NOW + 60}


def pem(key: Any) -> bytes:
    """The public half of a key."""
    encoded: bytes = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return encoded


def private_pem(key: Any) -> bytes:
    encoded: bytes = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return encoded


def part(value: object) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=")


def forged(header: object, claims: object, signature: bytes = b"AAAA") -> bytes:
    return b".".join([part(header), part(claims), signature])


def signed(claims: object, key: Any = SECRET, algorithm: str = "HS256", **header: object) -> bytes:
    """A token; `claims` may be the text of a JSON value that no library would write."""
    text = claims if isinstance(claims, str) else json.dumps(claims)
    return jwt.PyJWS().encode(text.encode(), key, algorithm, headers=header).encode()


class Desk:
    """Makes authenticators with a file of keys."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def file(self, content: bytes, name: str = "keys") -> str:
        path = self.folder / name
        path.write_bytes(content)
        return str(path)

    def options(self, **options: Any) -> TokenOptions:
        if not any(name.endswith("_file") for name in options):
            options["secret_file"] = self.file(SECRET + b"\n")
        return TokenOptions(**{"algorithms": ("HS256",), **options})

    def authenticator(self, **options: Any) -> TokenAuthenticator:
        return TokenAuthenticator(self.options(**options), clock=lambda: NOW, loop_time=lambda: LOOP_NOW)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def says(password: bytes | None, username: str | None = "someone") -> Credentials:
    return Credentials("c", username, password, None, "127.0.0.1:4000", "tcp-1883")


# ── good tokens ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"])
def test_a_token_signed_with_rsa_is_good(desk: Desk, algorithm: str) -> None:
    tokens = desk.authenticator(algorithms=(algorithm,), public_key_file=desk.file(pem(RSA_KEY)))
    assert tokens.verify(signed(GOOD, RSA_KEY, algorithm)).username == "ann"


@pytest.mark.parametrize("algorithm", EC_KEYS)
def test_a_token_signed_with_an_elliptic_curve_is_good(desk: Desk, algorithm: str) -> None:
    tokens = desk.authenticator(algorithms=(algorithm,), public_key_file=desk.file(pem(EC_KEYS[algorithm])))
    assert tokens.verify(signed(GOOD, EC_KEYS[algorithm], algorithm)).username == "ann"


def test_a_token_signed_with_ed25519_is_good(desk: Desk) -> None:
    tokens = desk.authenticator(algorithms=("EdDSA",), public_key_file=desk.file(pem(ED_KEY)))
    assert tokens.verify(signed(GOOD, ED_KEY, "EdDSA")).username == "ann"


async def test_a_good_token_gives_the_client_its_name_and_its_permissions(desk: Desk) -> None:
    tokens = desk.authenticator(groups_claim="realm.roles", publish_claim="pub", subscribe_claim="sub-to", leeway_s=5)
    claims = {**GOOD, "realm": {"roles": ["staff", "night"]}, "pub": ["a/+", "b/#", "a/+"], "sub-to": "c"}
    verdict = await tokens.authenticate(says(signed(claims)))
    assert verdict is not None
    assert (verdict.reason_code, verdict.username) == (0, "ann")
    assert verdict.grants.groups == {"staff", "night"}
    assert (verdict.grants.publish, verdict.grants.subscribe) == ((b"a/+", b"b/#"), (b"c",))
    assert verdict.grants.expires_at == LOOP_NOW + 65


def test_a_token_may_last_until_the_year_10000(desk: Desk) -> None:
    grants = desk.authenticator(leeway_s=0).verify(signed({"sub": "ann", "exp": LAST_TIME})).grants
    assert grants.expires_at == pytest.approx(LOOP_NOW + LAST_TIME - NOW)


def test_without_claims_for_topics_the_token_does_not_limit_them(desk: Desk) -> None:
    grants = desk.authenticator().verify(signed({**GOOD, "pub": ["a"]})).grants
    assert (grants.groups, grants.publish, grants.subscribe) == (frozenset(), None, None)


def test_a_token_without_the_claim_for_topics_allows_none(desk: Desk) -> None:
    tokens = desk.authenticator(publish_claim="pub", subscribe_claim="sub-to")
    grants = tokens.verify(signed(GOOD)).grants
    assert (grants.publish, grants.subscribe) == ((), ())


def test_a_claim_whose_name_has_dots_comes_first(desk: Desk) -> None:
    tokens = desk.authenticator(user_claim="https://example.com/user")
    assert tokens.verify(signed({**GOOD, "https://example.com/user": "bob"})).username == "bob"


@pytest.mark.parametrize(
    "password", [None, b"", b"secret", b"a.b.c", b"eyJ", b"eyJ.x", b"eyJh.eyJh.x.y", b"eyJh.\xff.x", b"eye.for.eye"]
)
async def test_a_password_that_is_no_token_is_left_to_other_sources(desk: Desk, password: bytes | None) -> None:
    assert await desk.authenticator().authenticate(says(password)) is None


@pytest.mark.parametrize(("username", "is_good"), [("ann", True), ("bob", False), (None, False)])
def test_the_user_name_may_have_to_match(desk: Desk, username: str | None, is_good: bool) -> None:
    tokens = desk.authenticator(user_name_must_match=True)
    if is_good:
        assert tokens.verify(signed(GOOD), username).username == "ann"
    else:
        with pytest.raises(TokenRefused, match="not that of the token"):
            tokens.verify(signed(GOOD), username)


async def test_a_header_may_have_spaces_and_line_breaks(desk: Desk) -> None:
    for begin in ("{", "{ ", "{\n  ", "{\r\n\t"):
        head = part(begin + '"alg": "HS256"}') + b"." + part(GOOD)
        signature = HMACAlgorithm(HMACAlgorithm.SHA256).sign(head, SECRET)
        token = head + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
        assert await accepted(desk.authenticator(), token)


def test_a_token_without_end_needs_leave(desk: Desk) -> None:
    verdict = desk.authenticator(require_exp=False).verify(signed({"sub": "ann"}))
    assert verdict.grants.expires_at == float("inf")


# ── claims that refuse ─────────────────────────────────────────────────────────────────────────────────────────────

WRONG_CLAIMS: list[tuple[str, object, dict[str, object], str]] = [
    ("expired", {**GOOD, "exp": NOW - 10}, {}, "expired 10 s ago"),
    ("expired with leeway", {**GOOD, "exp": NOW - 9.9}, {"leeway_s": 9.0}, "expired"),
    ("not yet", {**GOOD, "nbf": NOW + 11}, {}, "not valid yet"),
    ("issued in future", {**GOOD, "iat": NOW + 11}, {}, "not valid yet"),
    ("endless", {"sub": "ann"}, {}, "never expires"),
    ("exp is text", {**GOOD, "exp": "tomorrow"}, {}, "exp is no time"),
    ("exp is true", {**GOOD, "exp": True}, {}, "exp is no time"),
    ("exp is null", {**GOOD, "exp": None}, {}, "exp is no time"),
    ("exp is NaN", '{"sub": "ann", "exp": NaN}', {}, "cannot be read"),
    ("exp is infinite", '{"sub": "ann", "exp": Infinity}', {}, "cannot be read"),
    ("exp overflows", '{"sub": "ann", "exp": 1e999}', {}, "cannot be read|no time"),
    ("exp is huge", '{"sub": "ann", "exp": 1%s}' % ("0" * 400), {}, "no time|cannot be read"),
    ("exp in milliseconds", {**GOOD, "exp": (NOW + 60) * 1000}, {}, "exp is no time .*not milliseconds"),
    ("exp just too late", {**GOOD, "exp": LAST_TIME + 1}, {}, "exp is no time"),
    ("exp of thirty zeros", {**GOOD, "exp": 10**30}, {}, "exp is no time"),
    ("nbf before all time", {**GOOD, "nbf": -(10**30)}, {}, "nbf is no time"),
    ("nbf is an object", {**GOOD, "nbf": {}}, {}, "nbf is no time"),
    ("other audience", {**GOOD, "aud": "web"}, {"audience": "mqtt"}, "another audience"),
    ("other audiences", {**GOOD, "aud": ["web", "mqtt2"]}, {"audience": "mqtt"}, "another audience"),
    ("no audience", GOOD, {"audience": "mqtt"}, "another audience"),
    ("audience unasked", {**GOOD, "aud": "web"}, {}, "no audience is configured"),
    ("other issuer", {**GOOD, "iss": "evil"}, {"issuer": "good"}, "another issuer"),
    ("issuer in a list", {**GOOD, "iss": ["good"]}, {"issuer": "good"}, "another issuer"),
    ("no issuer", GOOD, {"issuer": "good"}, "another issuer"),
    ("no user", {"exp": NOW + 60}, {}, "sub is no user name"),
    ("empty user", {**GOOD, "sub": " "}, {}, "sub is no user name"),
    ("user is a number", {**GOOD, "sub": 7}, {}, "sub is no user name"),
    ("user with a line break", {**GOOD, "sub": "ann\nroot"}, {}, "sub is no user name"),
    ("user with half a character", '{"sub": "\\ud800", "exp": 1800000060}', {}, "cannot be read|no user name"),
    ("groups are numbers", {**GOOD, "g": [1]}, {"groups_claim": "g"}, "no list of texts"),
    ("groups are an object", {**GOOD, "g": {}}, {"groups_claim": "g"}, "no list of texts"),
    ("a wrong filter", {**GOOD, "p": ["a/#/b"]}, {"publish_claim": "p"}, "wrong topic filter"),
    ("claims are a list", "[1]", {}, "no JSON object"),
    ("claims are no JSON", "{", {}, "cannot be read"),
    ("claims are nested", "[" * 6_000, {}, "cannot be read"),
    ("claims are null", "null", {}, "no JSON object"),
]


@pytest.mark.parametrize(
    ("claims", "options", "why"), [row[1:] for row in WRONG_CLAIMS], ids=[r[0] for r in WRONG_CLAIMS]
)
async def test_a_token_with_wrong_claims_is_refused(
    desk: Desk, caplog: pytest.LogCaptureFixture, claims: object, options: dict[str, Any], why: str
) -> None:
    caplog.set_level(logging.INFO)
    tokens = desk.authenticator(**options)
    with pytest.raises(TokenRefused, match=why):
        tokens.verify(signed(claims))
    verdict = await tokens.authenticate(says(signed(claims)))
    assert verdict is not None
    assert verdict.reason_code == 0x86
    assert "the token is refused: " in caplog.text


def test_an_audience_among_others_is_good(desk: Desk) -> None:
    tokens = desk.authenticator(audience="mqtt", issuer="good")
    assert tokens.verify(signed({**GOOD, "iss": "good", "aud": ["web", "mqtt"]})).username == "ann"


# ── attacks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def confused(public: bytes) -> bytes:
    """A token whose HMAC has the public key as its secret; the library itself refuses to make one."""
    head, claims = part({"alg": "HS256", "typ": "JWT"}), part(GOOD)
    signature = HMACAlgorithm(HMACAlgorithm.SHA256).sign(head + b"." + claims, public)
    return b".".join([head, claims, base64.urlsafe_b64encode(signature).rstrip(b"=")])


@pytest.mark.parametrize("alg", ["none", "None", "NONE", "nOnE", "", "HS256 ", "ES256K"])
@pytest.mark.parametrize("signature", [b"", b"AAAA"])
def test_a_token_cannot_choose_its_algorithm(desk: Desk, alg: str, signature: bytes) -> None:
    with pytest.raises(TokenRefused, match="not allowed"):
        desk.authenticator().verify(forged({"alg": alg}, GOOD, signature))


def test_a_public_key_is_no_secret_of_a_token(desk: Desk) -> None:
    public = pem(RSA_KEY)
    tokens = desk.authenticator(algorithms=("RS256",), public_key_file=desk.file(public))
    with pytest.raises(TokenRefused, match="not allowed"):
        tokens.verify(confused(public))
    keys = {"keys": [jwk(RSA_KEY, kid="1"), {"kty": "oct", "kid": "2", "k": part("x" * 32).decode()}]}
    tokens = desk.authenticator(algorithms=("RS256", "HS256"), jwks_file=desk.file(json.dumps(keys).encode()))
    for token in (confused(public), signed(GOOD, b"y" * 32, kid="1")):
        with pytest.raises(TokenRefused, match=r"no key for it|signature is wrong"):
            tokens.verify(token)


@pytest.mark.parametrize(
    "kid", ["../../../../dev/null", "/dev/null", "1' OR '1'='1", "2; cat /etc/passwd", "http://evil/", "\0", "x" * 900]
)
def test_the_kid_of_a_token_is_only_looked_up(desk: Desk, kid: str) -> None:
    keys = {"keys": [jwk(RSA_KEY, kid="1")]}
    tokens = desk.authenticator(algorithms=("RS256",), jwks_file=desk.file(json.dumps(keys).encode()))
    with pytest.raises(TokenRefused, match="no key for it"):
        tokens.verify(signed(GOOD, RSA_KEY, "RS256", kid=kid))


@pytest.mark.long
def test_keys_that_a_token_brings_are_not_believed(desk: Desk) -> None:
    stranger = rsa.generate_private_key(65537, 2048)
    tokens = desk.authenticator(algorithms=("RS256",), public_key_file=desk.file(pem(RSA_KEY)))
    token = signed(GOOD, stranger, "RS256", jwk=jwk(stranger), jku="http://127.0.0.1:1/", x5u="http://127.0.0.1:1/")
    with pytest.raises(TokenRefused, match="signature is wrong"):
        tokens.verify(token)


@pytest.mark.parametrize(
    "header",
    [
        [],
        "x",
        '{"alg": 1}',
        {"typ": "JWT"},
        {"alg": "HS256", "kid": 7},
        {"alg": "HS256", "kid": ["1"]},
        {"alg": "HS256", "crit": ["exp"]},
        {"alg": "HS256", "b64": False},
        '{"alg": "HS256", "x": ' + "[" * 5_000,
        '{"alg": "HS256"',
    ],
    ids=str,
)
def test_a_strange_header_is_refused(desk: Desk, header: object) -> None:
    with pytest.raises(TokenRefused, match="header"):
        desk.authenticator().verify(forged(header, GOOD))


def test_a_token_that_was_changed_is_refused(desk: Desk) -> None:
    tokens = desk.authenticator()
    head, claims, signature = signed(GOOD).split(b".")
    for token in (
        b".".join([head, part({**GOOD, "sub": "root"}), signature]),
        b".".join([head, claims, signature[:-4]]),
        b".".join([head, claims, b""]),
        b".".join([head, b"", signature]),
        signed(GOOD, b"another secret, as long as it has to be"),
    ):
        with pytest.raises(TokenRefused, match="signature is wrong"):
            tokens.verify(token)


@pytest.mark.parametrize(
    ("size", "why"), [(MAX_TOKEN_BYTES, "signature is wrong"), (MAX_TOKEN_BYTES + 1, "8192 at most")]
)
async def test_a_token_that_is_too_long_is_not_read(
    desk: Desk, caplog: pytest.LogCaptureFixture, size: int, why: str
) -> None:
    caplog.set_level(logging.INFO)
    head = part({"alg": "HS256"}) + b"."
    token = head + b"A" * (size - len(head) - 5) + b".AAAA"
    assert len(token) == size
    verdict = await desk.authenticator().authenticate(says(token))
    assert verdict is not None
    assert verdict.reason_code == 0x86
    assert why in caplog.text


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
CLAIMS = ["sub", "exp", "nbf", "iat", "aud", "iss", "g", "g.h", "p", "s"]


@pytest.fixture(scope="module")
def picky(tmp_path_factory: pytest.TempPathFactory) -> TokenAuthenticator:
    """It looks at every claim."""
    return Desk(tmp_path_factory.mktemp("picky")).authenticator(
        audience="mqtt", issuer="i", groups_claim="g.h", publish_claim="p", subscribe_claim="s"
    )


@pytest.mark.long
@given(st.dictionaries(st.sampled_from(CLAIMS), json_values, max_size=2))
@example({})
def test_a_token_with_any_claims_is_good_or_refused(picky: TokenAuthenticator, strange: dict[str, object]) -> None:
    right = {**GOOD, "aud": "mqtt", "iss": "i", "g": {"h": ["x"]}, "p": ["a"], "s": []}
    try:
        verdict = picky.verify(signed({**right, **strange}))
    except TokenRefused:
        assert strange
        return
    assert verdict.username
    assert verdict.grants.expires_at < float("inf")
    assert verdict.grants.publish is not None


@given(st.binary(max_size=60) | st.tuples(json_values, json_values).map(lambda both: forged(*both)))
def test_every_forgery_is_refused(picky: TokenAuthenticator, token: bytes) -> None:
    looks_like_token(token)
    with pytest.raises(TokenRefused):
        picky.verify(token)


# ── keys ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def jwk(key: Any, **fields: object) -> dict[str, object]:
    writer: Any = {rsa.RSAPrivateKey: RSAAlgorithm, ec.EllipticCurvePrivateKey: ECAlgorithm}.get(
        next(kind for kind in (rsa.RSAPrivateKey, ec.EllipticCurvePrivateKey, object) if isinstance(key, kind)),
        OKPAlgorithm,
    )
    return {**json.loads(writer.to_jwk(key.public_key())), **fields}


def key_set(*keys: object) -> bytes:
    return json.dumps({"keys": keys}).encode()


def test_each_key_of_a_set_verifies_its_own_tokens(desk: Desk) -> None:
    content = key_set(
        jwk(RSA_KEY, kid="r", use="sig", alg="RS256"),
        jwk(EC_KEYS["ES256"], kid="e", key_ops=["verify"]),
        jwk(ED_KEY, kid="d"),
        {"kty": "oct", "kid": "s", "k": part(SECRET.decode()).decode()},
        jwk(RSA_KEY, kid="r2", use="enc"),
        jwk(RSA_KEY, kid="r3", key_ops=["encrypt"]),
        {"kty": "new", "kid": "n"},
        {"kty": "OKP", "crv": "X25519", "x": "AAAA"},
    )
    options = desk.options(algorithms=("RS256", "PS256", "ES256", "EdDSA", "HS256"), jwks_file=desk.file(content))
    with pytest.raises(TokenConfigError, match=r"PS256: .* has no key for it"):
        load_keys(options)
    tokens = desk.authenticator(algorithms=("RS256", "ES256", "EdDSA", "HS256"), jwks_file=desk.file(content))
    for key, algorithm, kid in (
        (RSA_KEY, "RS256", "r"),
        (EC_KEYS["ES256"], "ES256", "e"),
        (ED_KEY, "EdDSA", "d"),
        (SECRET, "HS256", "s"),
    ):
        assert tokens.verify(signed(GOOD, key, algorithm, kid=kid)).username == "ann"
        assert tokens.verify(signed(GOOD, key, algorithm)).username == "ann", "it is the only one of its kind"
    for key, algorithm, kid in ((RSA_KEY, "RS256", "e"), (RSA_KEY, "RS256", "r2"), (SECRET, "HS256", "r")):
        with pytest.raises(TokenRefused, match="no key"):
            tokens.verify(signed(GOOD, key, algorithm, kid=kid))


@pytest.mark.long
def test_of_two_keys_a_token_names_one(desk: Desk) -> None:
    other = rsa.generate_private_key(65537, 2048)
    content = key_set(jwk(RSA_KEY, kid="old"), jwk(other, kid="new"))
    tokens = desk.authenticator(algorithms=("RS256",), jwks_file=desk.file(content))
    assert tokens.verify(signed(GOOD, other, "RS256", kid="new")).username == "ann"
    with pytest.raises(TokenRefused, match="kid absent"):
        tokens.verify(signed(GOOD, other, "RS256"))
    with pytest.raises(TokenRefused, match="signature is wrong"):
        tokens.verify(signed(GOOD, other, "RS256", kid="old"))


def test_with_one_nameless_key_the_kid_does_not_matter(desk: Desk) -> None:
    assert desk.authenticator().verify(signed(GOOD, kid="whatever")).username == "ann"


WRONG_FILES: list[tuple[str, str, bytes, tuple[str, ...], str, str]] = [
    ("short", "secret_file", b"x" * 31 + b"\n", ("HS256",), "secret_file", "31 bytes: HS256 needs 32 at least"),
    ("short for 512", "secret_file", b"x" * 63, ("HS256", "HS512"), "secret_file", "HS512 needs 64 at least"),
    ("pem as secret", "secret_file", pem(RSA_KEY), ("HS256",), "secret_file", "see public_key_file"),
    ("secret for RSA", "secret_file", SECRET, ("RS256",), "algorithms", "RS256 needs public_key_file"),
    ("private", "public_key_file", private_pem(ED_KEY), ("EdDSA",), "public_key_file", "holds a private key"),
    ("no pem", "public_key_file", b"x", ("RS256",), "public_key_file", "holds no public key in PEM"),
    (
        "broken certificate",
        "public_key_file",
        b"-----BEGIN CERTIFICATE-----",
        ("RS256",),
        "public_key_file",
        "no public",
    ),
    ("other kind", "public_key_file", pem(ED_KEY), ("RS256",), "algorithms", "has no key for it"),
    ("other curve", "public_key_file", pem(EC_KEYS["ES384"]), ("ES256",), "algorithms", "has no key for it"),
    (
        *("no secret", "public_key_file", pem(RSA_KEY), ("RS256", "HS256"), "algorithms"),
        "HS256: .* has no key for it.* in secret_file",
    ),
    (
        *("strange curve", "public_key_file", pem(ec.generate_private_key(ec.SECP256K1())), ("ES256",)),
        *("public_key_file", "curve secp256k1"),
    ),
    ("no json", "jwks_file", b"{", ("RS256",), "jwks_file", "not a JSON Web Key Set"),
    ("nested", "jwks_file", b"[" * 100_000, ("RS256",), "jwks_file", "not a JSON Web Key Set"),
    ("a list", "jwks_file", b"[]", ("RS256",), "jwks_file", "not a JSON Web Key Set"),
    ("no keys", "jwks_file", b'{"keys": []}', ("RS256",), "jwks_file", 'no list "keys"'),
    ("an entry is text", "jwks_file", b'{"keys": ["x"]}', ("RS256",), "jwks_file", r"keys\[0\] cannot be used"),
    (
        "long",
        "jwks_file",
        b'{"keys": [{"kty": "OKP", "crv": "Ed25519", "x": ' + b"[" * 90_000,
        ("EdDSA",),
        "jwks_file",
        "not",
    ),
    ("rsa without n", "jwks_file", b'{"keys": [{"kty": "RSA"}]}', ("RS256",), "jwks_file", r"keys\[0\] cannot be"),
    ("ec without crv", "jwks_file", b'{"keys": [{"kty": "EC"}]}', ("ES256",), "jwks_file", r"keys\[0\] cannot be"),
    ("bad k", "jwks_file", b'{"keys": [{"kty": "oct", "k": "!!"}]}', ("HS256",), "jwks_file", "k is not base64url"),
    ("short k", "jwks_file", b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', ("HS256",), "algorithms", "has no key"),
    (
        *("private", "jwks_file", key_set(json.loads(RSAAlgorithm.to_jwk(RSA_KEY))), ("RS256",)),
        *("jwks_file", "it is a private key"),
    ),
    (
        *("twice", "jwks_file", key_set(jwk(RSA_KEY, kid="1"), jwk(RSA_KEY, kid="1")), ("RS256",)),
        *("jwks_file", r"keys\[1\] has the kid of another key"),
    ),
    (
        *("long kid", "jwks_file", key_set(*[jwk(RSA_KEY, kid="1\x1b" + "1" * 200_000)] * 2), ("RS256",)),
        *("jwks_file", r"keys\[1\] has the kid of another key"),
    ),
    (
        *("small", "jwks_file", key_set(jwk(rsa.generate_private_key(65537, 1024))), ("RS256",)),
        *("jwks_file", "RSA key of 1024 bits"),
    ),
    (
        *("huge", "jwks_file", key_set({"kty": "RSA", "n": "_" * 10_923 + "w", "e": "AQAB"}), ("RS256",)),
        *("jwks_file", "RSA key of 65544 bits, and at most 16384 can be used"),
    ),
    (
        *("many", "jwks_file", key_set(*[{"kty": "x"}] * (MAX_KEYS + 1)), ("RS256",)),
        *("jwks_file", "101 keys: 100 at most"),
    ),
    ("large", "jwks_file", b" " * (MAX_FILE_BYTES + 1), ("RS256",), "jwks_file", "1048576 at most"),
]


@pytest.mark.parametrize(
    ("option", "content", "algorithms", "at_fault", "why"),
    [r[1:] for r in WRONG_FILES],
    ids=[r[0] for r in WRONG_FILES],
)
def test_a_file_that_cannot_be_used_is_refused(
    desk: Desk, option: str, content: bytes, algorithms: tuple[str, ...], at_fault: str, why: str
) -> None:
    with pytest.raises(TokenConfigError, match=why) as error:
        load_keys(desk.options(algorithms=algorithms, **{option: desk.file(content)}))
    assert error.value.option == at_fault
    assert len(str(error.value)) < 1_500


def test_a_key_may_come_from_a_certificate(desk: Desk, tmp_path: Path) -> None:
    from mqttlite.security.certificates import init

    init(tmp_path / "certs")
    key = serialization.load_pem_private_key((tmp_path / "certs" / "server.key").read_bytes(), None)
    tokens = desk.authenticator(algorithms=("ES256",), public_key_file=str(tmp_path / "certs" / "server.crt"))
    assert tokens.verify(signed(GOOD, key, "ES256")).username == "ann"


@pytest.mark.parametrize("path", ["missing", "."])
def test_a_file_that_is_none_is_refused(desk: Desk, tmp_path: Path, path: str) -> None:
    with pytest.raises(TokenConfigError, match=r"cannot be read|is not a file") as error:
        load_keys(desk.options(secret_file=str(tmp_path / path)))
    assert error.value.option == "secret_file"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"algorithms": ()}, "algorithms is empty"),
        ({"secret_file": "a", "jwks_file": "b"}, "set one of them"),
        ({"leeway_s": -1}, "leeway_s is -1"),
        ({"leeway_s": 601}, "leeway_s is 601"),
        ({"audience": ""}, "audience is empty"),
    ],
)
def test_options_that_contradict_themselves_are_refused(desk: Desk, options: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        desk.options(**options)
    with pytest.raises(ValueError, match="set one of them"):
        TokenOptions(algorithms=("HS256",))


# ── keys that change ───────────────────────────────────────────────────────────────────────────────────────────────


def replace(path: str, content: bytes) -> None:
    Path(path + ".new").write_bytes(content)
    os.replace(path + ".new", path)


async def accepted(tokens: TokenAuthenticator, token: bytes) -> bool:
    verdict = await tokens.authenticate(says(token))
    assert isinstance(verdict, Verdict)
    return verdict.reason_code == 0


@pytest.mark.long
async def test_new_keys_are_noticed_and_broken_ones_change_nothing(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = RSA_KEY, rsa.generate_private_key(65537, 2048)
    path = desk.file(key_set(jwk(old, kid="1")))
    tokens = desk.authenticator(algorithms=("RS256",), jwks_file=path)
    first, second = signed(GOOD, old, "RS256", kid="1"), signed(GOOD, new, "RS256", kid="2")
    assert [await accepted(tokens, each) for each in (first, second)] == [True, False]
    replace(path, key_set(jwk(old, kid="1"), jwk(new, kid="2")))
    assert [await accepted(tokens, each) for each in (first, second)] == [True, True]
    replace(path, b"{")
    assert [await accepted(tokens, each) for each in (first, second)] == [True, True]
    assert "the keys for tokens stay as they were" in caplog.text
    replace(path, key_set(jwk(new, kid="2")))
    assert [await accepted(tokens, each) for each in (first, second)] == [False, True]
    os.unlink(path)
    assert await accepted(tokens, second)


async def test_a_key_that_is_taken_out_is_gone_though_an_algorithm_has_none_then(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    path = desk.file(key_set(jwk(RSA_KEY, kid="1"), jwk(EC_KEYS["ES256"], kid="2")))
    tokens = desk.authenticator(algorithms=("RS256", "ES256"), jwks_file=path)
    first, second = signed(GOOD, RSA_KEY, "RS256", kid="1"), signed(GOOD, EC_KEYS["ES256"], "ES256", kid="2")
    assert [await accepted(tokens, each) for each in (first, second)] == [True, True]
    replace(path, key_set(jwk(EC_KEYS["ES256"], kid="2")))
    assert [await accepted(tokens, each) for each in (first, second)] == [False, True]
    assert "has no key for RS256: tokens with it are refused" in caplog.text
    with pytest.raises(TokenConfigError, match=r"RS256: .* has no key for it"):
        load_keys(desk.options(secret_file=None, algorithms=("RS256", "ES256"), jwks_file=path))


@pytest.mark.parametrize("content", [b"x" * 40, b"{"])
async def test_a_reload_logs_its_result(desk: Desk, caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    caplog.set_level(logging.INFO)
    tokens = desk.authenticator()
    replace(str(desk.folder / "keys"), content)
    await tokens.reload()
    assert ("was read again: 1 keys" if len(content) > 32 else "stay as they were") in caplog.text
