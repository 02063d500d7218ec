"""SCRAM-SHA-256 as the client speaks it, against the library's server and against servers that lie."""

import base64

import pytest
from scramp import ScramMechanism

from mqttlite.client.scram import ScramSha256
from mqttlite.client.scram_conversation import ScramConversation

SALT = b"0123456789abcdef"
MECHANISM = ScramMechanism("SCRAM-SHA-256")


def keys_of(password: str) -> tuple[bytes, bytes, bytes, int]:
    salt, stored_key, server_key, iterations = MECHANISM.make_auth_info(password, 4_096, SALT)
    return salt, stored_key, server_key, iterations


async def converse(talk: ScramConversation, keys: tuple[bytes, bytes, bytes, int]) -> bytes:
    """The server's last message; raises what the library's server does."""
    server = MECHANISM.make_server(lambda _name: keys)
    server.set_client_first(talk.first().decode())
    server.set_client_final((await talk.reply(server.get_server_first().encode())).decode())
    last: str = server.get_server_final()
    return last.encode()


def challenge(talk: ScramConversation, **fields: str) -> bytes:
    """A server's first message to a client that has begun."""
    nonce = talk.first().decode().partition("r=")[2]
    said = {"r": f"{nonce}theirs", "s": base64.b64encode(SALT).decode(), "i": "4096", **fields}
    return ",".join(f"{name}={value}" for name, value in said.items()).encode()


@pytest.mark.parametrize(("username", "password"), [("a,b=c", "x=,"), ("Zoë", "pass wörd"), ("=2C", "n,,n=")])
async def test_client_and_server_agree(username: str, password: str) -> None:
    talk = ScramSha256(username, password).begin()
    talk.finish(await converse(talk, keys_of(password)))


async def test_the_client_does_not_offer_channel_binding_and_every_conversation_has_its_nonce() -> None:
    who = ScramSha256("user", "pencil")
    one, other = who.begin().first(), who.begin().first()
    assert one.startswith(b"n,,n=user,r=")
    assert one != other


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"r": "another"}, "nonce"),
        ({"r": "é"}, "[Nn]once"),
        ({"i": "4095"}, "4096"),
        ({"i": "10000001"}, "10000000"),
        ({"i": "9" * 5_000}, "not valid"),
        ({"i": "many"}, "digits"),
        ({"i": "٤٠٩٦"}, "digits"),
        ({"s": "!"}, "base 64"),
        ({"s": "QUJD"}, "salt"),
        ({"m": "x"}, "'m' attribute"),
    ],
)
async def test_a_challenge_that_is_none_gets_no_proof(fields: dict[str, str], why: str) -> None:
    talk = ScramSha256("user", "pencil").begin()
    with pytest.raises(ValueError, match=why):
        await talk.reply(challenge(talk, **fields))


@pytest.mark.parametrize("message", [b"", b"\xff", b"e=other-error", b"v=AAAA"])
async def test_an_invalid_challenge_gets_no_proof(message: bytes) -> None:
    talk = ScramSha256("user", "pencil").begin()
    talk.first()
    with pytest.raises(ValueError, match=r"."):
        await talk.reply(message)


async def test_a_challenge_must_continue_the_clients_nonce() -> None:
    talk = ScramSha256("user", "pencil").begin()
    nonce = talk.first().decode().partition("r=")[2]
    with pytest.raises(ValueError, match="longer than the client nonce"):
        await talk.reply(f"r={nonce},s={base64.b64encode(SALT).decode()},i=4096".encode())


async def test_a_server_has_one_challenge() -> None:
    talk = ScramSha256("user", "pencil").begin()
    asked = challenge(talk)
    await talk.reply(asked)
    with pytest.raises(ValueError, match="next method"):
        await talk.reply(asked)


@pytest.mark.parametrize("last", [b"", b"\xff", b"e=invalid-proof", b"v=", b"v=!", b"v=AAAA"])
async def test_a_server_that_does_not_know_the_keys_is_found_out(last: bytes) -> None:
    talk = ScramSha256("user", "pencil").begin()
    await talk.reply(challenge(talk))
    with pytest.raises(ValueError, match=r"."):
        talk.finish(last)


async def test_a_server_that_stole_the_stored_key_is_found_out() -> None:
    salt, stored_key, _, iterations = keys_of("pencil")
    talk = ScramSha256("user", "pencil").begin()
    last = await converse(talk, (salt, stored_key, stored_key, iterations))
    with pytest.raises(ValueError, match="signature"):
        talk.finish(last)


def test_a_server_cannot_end_before_it_began() -> None:
    with pytest.raises(ValueError, match="must be called first"):
        ScramSha256("user", "pencil").begin().finish(b"v=AAAA")


def test_a_password_never_shows() -> None:
    assert repr(ScramSha256("user", "pencil")) == "ScramSha256('user')"
    assert "pencil" not in repr(ScramSha256("user", "pencil").begin())


@pytest.mark.parametrize(
    ("username", "password", "which"), [("", "x", "username"), ("x", "\x07", "password"), ("x", "", "password")]
)
def test_invalid_names_and_passwords_are_refused(username: str, password: str, which: str) -> None:
    with pytest.raises(ValueError, match=which):
        ScramSha256(username, password)
