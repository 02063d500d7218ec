"""SCRAM-SHA-256, both ends against the example of RFC 7677 and against each other."""

import base64

import pytest

from mqttlite.client.scram import ScramClient, ScramSha256
from mqttlite.sasl import (
    MAX_ITERATIONS,
    Keys,
    ScramError,
    check_nonce,
    client_key_of,
    escape,
    fields,
    keys_of,
    prepare,
    salted_password,
    sha256,
    sign,
    unescape,
    xor,
)
from mqttlite.security.scram import NONCE_BYTES, ScramServer

OURS = "rOprNGfwEbeRWgbNEkqO"
THEIRS = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = f"n,,n=user,r={OURS}".encode()
SERVER_FIRST = f"r={OURS}{THEIRS},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
CLIENT_FINAL = f"c=biws,r={OURS}{THEIRS},p={PROOF}".encode()
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
KEYS = keys_of("pencil", SALT, 4096)


def server(first: bytes = CLIENT_FIRST) -> ScramServer:
    scram = ScramServer(first, THEIRS)
    scram.challenge(KEYS)
    return scram


def client(username: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient(ScramSha256(username, password), OURS)


# ── the example (RFC 7677 §3) ──────────────────────────────────────────────────────────────────────────────────────


def test_the_server_of_the_example() -> None:
    scram = ScramServer(CLIENT_FIRST, THEIRS)
    assert scram.username == "user"
    assert scram.challenge(KEYS) == SERVER_FIRST
    assert scram.finish(CLIENT_FINAL) == SERVER_FINAL


async def test_the_client_of_the_example() -> None:
    scram = client()
    assert scram.first() == CLIENT_FIRST
    assert await scram.reply(SERVER_FIRST) == CLIENT_FINAL
    scram.finish(SERVER_FINAL)


# ── the server's side ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=user,"])
def test_a_header_without_channel_binding_is_taken(header: str) -> None:
    scram = server(f"{header}n=user,r={OURS}".encode())
    binding = base64.b64encode(header.encode()).decode()
    without_proof = f"c={binding},r={OURS}{THEIRS}"
    said = f"n=user,r={OURS},{SERVER_FIRST.decode()},{without_proof}".encode()
    key = client_key_of(salted_password("pencil", SALT, 4096))
    proof = base64.b64encode(xor(key, sign(sha256(key), said))).decode()
    assert scram.finish(f"{without_proof},p={proof}".encode()).startswith(b"v=")


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "channel binding"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding"),
        (b"n,", "header"),
        (b"n", "header"),
        (b"n,a=admin,n=user,r=abc", "another user"),
        (b"n,,m=x,n=user,r=abc", "mandatory"),
        (b"n,,r=abc,n=user", "'n' is not where"),
        (b"n,,n=user", "1 fields"),
        (b"n,,n=user,r=", "nonce"),
        (b"n,,n=user,r=a b", "nonce"),
        (b"n,,n=us=er,r=abc", "escaped"),
        (b"n,,n=,r=abc", "empty"),
        (b"n,,n=\x07,r=abc", "no user name"),
        (b"n,,n=\xff,r=abc", "UTF-8"),
        (b"n,,n=u\0,r=abc", r"U\+0000"),
    ],
)
def test_a_first_message_that_is_none_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        ScramServer(message)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "no proof"),
        (CLIENT_FINAL.partition(b",p=")[0], "no proof"),
        (CLIENT_FINAL.replace(b"biws", b"eSws"), "header"),
        (CLIENT_FINAL.replace(b"biws", b"!!!!"), "base64"),
        (CLIENT_FINAL.replace(b"$k0", b"$k1"), "nonce"),
        (CLIENT_FINAL.replace(THEIRS.encode(), b""), "nonce"),
        (CLIENT_FINAL.replace(PROOF.encode(), b"AAAA"), "length"),
        (CLIENT_FINAL.replace(b"dHzb", b"dHzc"), "not the right one"),
        (CLIENT_FINAL.replace(b"dHzb", "é".encode()), "base64"),
    ],
)
def test_a_last_message_that_proves_nothing_is_refused(message: bytes, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        server().finish(message)


def test_every_exchange_has_a_nonce_of_its_own() -> None:
    first, second = ScramServer(CLIENT_FIRST).challenge(KEYS), ScramServer(CLIENT_FIRST).challenge(KEYS)
    assert first != second
    assert len(first.partition(b",")[0]) == len("r=") + len(OURS) + NONCE_BYTES * 4 // 3


def test_extensions_are_signed_and_ignored() -> None:
    assert fields("n=user,r=abc,x=1", "n", "r") == ["user", "abc"]


# ── the client's side ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("challenge", "why"),
    [
        (SERVER_FIRST.replace(b"rO", b"RO"), "nonce"),
        (SERVER_FIRST.replace(THEIRS.encode(), b""), "nonce"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "4095 iterations"),
        (SERVER_FIRST.replace(b"4096", str(MAX_ITERATIONS + 1).encode()), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"9" * 5_000), "iterations"),
        (SERVER_FIRST.replace(b"4096", b"many"), "iterations"),
        (SERVER_FIRST.replace(b"4096", "٤٠٩٦".encode()), "iterations"),
        (SERVER_FIRST.replace(b"s=", b"s=!"), "base64"),
        (b"e=other-error", "fields"),
        (b"m=x," + SERVER_FIRST, "mandatory"),
    ],
)
async def test_a_challenge_that_is_none_gets_no_proof(challenge: bytes, why: str) -> None:
    with pytest.raises(ScramError, match=why):
        await client().reply(challenge)


async def test_a_server_has_one_challenge() -> None:
    scram = client()
    await scram.reply(SERVER_FIRST)
    with pytest.raises(ScramError, match="second"):
        await scram.reply(SERVER_FIRST)


@pytest.mark.parametrize("last", [b"", b"e=invalid-proof", b"v=", SERVER_FINAL.replace(b"6rri", b"6rrj"), b"v=!"])
async def test_a_server_that_does_not_know_the_keys_is_found_out(last: bytes) -> None:
    scram = client()
    await scram.reply(SERVER_FIRST)
    with pytest.raises(ScramError):
        scram.finish(last)


def test_a_server_cannot_end_before_it_began() -> None:
    with pytest.raises(ScramError, match="signature"):
        client().finish(b"v=")


async def test_the_slow_step_is_done_once_for_each_salt() -> None:
    who = ScramSha256("user", "pencil")
    assert await who.salted(SALT, 4096) is await who.salted(SALT, 4096)
    assert await who.salted(SALT, 4097) != await who.salted(SALT, 4096)


def test_a_password_never_shows() -> None:
    assert "pencil" not in repr(ScramSha256("user", "pencil"))
    assert "pencil" not in repr(client())
    assert KEYS.stored_key.hex() not in repr(KEYS)
    assert repr(KEYS.stored_key) not in repr(KEYS)


@pytest.mark.parametrize(("username", "password", "which"), [("", "x", "username"), ("x", "\x07", "password")])
def test_what_cannot_be_a_name_or_a_password_is_refused(username: str, password: str, which: str) -> None:
    with pytest.raises(ValueError, match=which):
        ScramSha256(username, password)


# ── both ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("username", "password"), [("a,b=c", "x=,"), ("Zoë", "pass wörd"), ("\u2168", "🔑"), ("=2C", "n,,n=")]
)
async def test_client_and_server_agree(username: str, password: str) -> None:
    talking = ScramClient(ScramSha256(username, password), OURS)
    scram = ScramServer(talking.first())
    assert scram.username == prepare(username)
    reply = await talking.reply(scram.challenge(keys_of(password, b"salt", 4096)))
    talking.finish(scram.finish(reply))


async def test_with_another_password_they_do_not() -> None:
    talking = client(password="pencils")
    scram = ScramServer(talking.first())
    reply = await talking.reply(scram.challenge(KEYS))
    with pytest.raises(ScramError, match="not the right one"):
        scram.finish(reply)


async def test_who_stole_the_stored_key_is_still_no_user() -> None:
    stolen = Keys(4096, SALT, KEYS.stored_key, KEYS.stored_key)
    talking = client()
    scram = ScramServer(talking.first())
    with pytest.raises(ScramError, match="signature"):
        talking.finish(ScramServer.finish(scram, await talking.reply(scram.challenge(stolen))))


# ── texts ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "prepared"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("\u0627\u0628", "\u0627\u0628"),
    ],
)
def test_texts_are_compared_as_rfc_4013_says(text: str, prepared: str) -> None:
    assert prepare(text) == prepared
    assert prepare(prepared) == prepared


@pytest.mark.parametrize("text", ["", "\u00ad", "\x07", "\u0627\u0031", "\u0627a\u0627", "\ue000", "\ufffd", "\u2028"])
def test_some_texts_are_refused_as_rfc_4013_says(text: str) -> None:
    with pytest.raises(ScramError):
        prepare(text)


@pytest.mark.parametrize("name", ["a,b", "a=b", "=2C=3D", ",=,="])
def test_a_name_is_escaped_and_comes_back(name: str) -> None:
    assert "," not in escape(name)
    assert unescape(escape(name)) == name


@pytest.mark.parametrize("name", ["=", "a=2", "=2c", "=3D=", "=33D", "=2=3DC"])
def test_an_equals_sign_that_is_not_escaped_is_refused(name: str) -> None:
    with pytest.raises(ScramError):
        unescape(name)


@pytest.mark.parametrize("nonce", ["", "a b", "a\x7f", "é", "a,b", "a\n"])
def test_what_is_no_nonce_is_refused(nonce: str) -> None:
    with pytest.raises(ScramError):
        check_nonce(nonce)
