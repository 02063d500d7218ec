"""Hashes of other programs and kinds: read, compared, written, and refused where they cannot be."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm

from mqttlite.security import hashes
from mqttlite.security.authenticator import Credentials
from mqttlite.security.hashes import new_argon2id, new_scrypt, parse_hash
from mqttlite.security.keys import TextError, keys_of
from mqttlite.security.password_file import PasswordFileError, Users, load, set_user
from mqttlite.security.passwords import PasswordAuthenticator

# By mosquitto_passwd 2.0.11 (-H sha512-pbkdf2, -I 2000, -H sha512), by cryptography 50, and the vectors of RFC 7914.
SECRET_7 = (
    "$7$101$CPHVEmRDHR+OaAzj$/OUzdw2dg0ofP3arbRp9l4zfAPYiCkbkr/dk7kC2Rqk1DEElm7MK48XMcDb/O6658OvfFVpa9Z/xW1BwbAXmQw=="
)
SECRET_6 = (
    "$6$I/hpciYzvZ7Nnqci$qVwxSiqWR5GYix90lStAfkGObce0VWgIJZv2ZLlV4DqUYcW3RkXkbiJbbSMGTVitnjtmw3ni9bPZlpRMXfrHMg=="
)
PAESSWORD_7 = (
    "$7$2000$e5rx9TmPOEGi5/9I$8NzaSAO6I17H+lK7jRWHw8IU0EFg0tWeb81BuJdL14yaA/npiV2Q4PeMYxnChj+hruB5heP92kxe2L/EhEjIEg=="
)
X_ARGON2ID = "$argon2id$v=19$m=19456,t=2,p=1$MTExMTExMTExMTExMTExMQ$+wT4Ba0kkAhoEXYR3hLKOg4g8pKd0chBsEWFEP8xf94"
PLEASE_SCRYPT = (
    "$scrypt$ln=14,r=8,p=1$U29kaXVtQ2hsb3JpZGU"
    "$cCO9yzr9c0hGHAbNgf046/2o+7qQT44+qbVD9lRdofLVQylVYT8Pz2LUlwUkKpr55h6F3A1lHkDfzwF7RVdYhw"
)


@pytest.mark.long
@pytest.mark.parametrize(
    ("text", "password"),
    [
        (SECRET_7, "secret"),
        (SECRET_6, "secret"),
        (PAESSWORD_7, "pässword"),
        (X_ARGON2ID, "x"),
        (PLEASE_SCRYPT, "pleaseletmein"),
    ],
)
def test_a_hash_of_another_program_matches_its_password_alone(text: str, password: str) -> None:
    found = parse_hash(text)
    assert found.matches(password.encode())
    assert not found.matches(password.encode() + b" ")
    assert not found.matches(b"")
    assert found.format() == text
    assert text.rpartition("$")[2] not in repr(found)


@pytest.mark.long
@pytest.mark.parametrize("made", [new_argon2id("pass🔑wörd"), new_scrypt("pass🔑wörd")])
def test_a_new_hash_is_read_again(made: hashes.PasswordHash) -> None:
    assert parse_hash(made.format()) == made
    assert made.matches("pass🔑wörd".encode())


@pytest.mark.parametrize("text", [SECRET_7, SECRET_6, X_ARGON2ID, PLEASE_SCRYPT])
def test_a_decoy_costs_the_same_and_matches_nothing(text: str) -> None:
    real = parse_hash(text)
    decoy = real.decoy(b"eve")
    assert decoy == real.decoy(b"eve") != real.decoy(b"mallory")
    assert decoy.format().split("$")[:-2] == text.split("$")[:-2], "the same kind and cost"
    assert len(decoy.format()) == len(text), "salt and hash of the same length"
    assert not decoy.matches(b"secret")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("$5$abc$def", "a hash may be"),
        ("$7$x$CPHVEmRDHR+OaAzj$QQ==", "a hash may be"),
        ("$argon2i$v=19$m=19456,t=2,p=1$MTEx$MTEx", "a hash may be"),
        ("$argon2id$m=19456,t=2,p=1$MTEx$MTEx", "a hash may be"),
        (SECRET_7.replace("$101$", "$0$"), "iterations=0: it may be 1 to 10000000"),
        (SECRET_7.replace("$101$", "$10000001$"), "iterations=10000001"),
        (SECRET_7.replace("CPHV", "C*HV"), "not base64"),
        (SECRET_7[:-4] + "=A==", "not base64"),
        ("$7$101$CPHVEmRDHR+OaAzj$QUJD", "a hash of 3 bytes: SHA-512 has 64"),
        (SECRET_6.replace("I/hpciYzvZ7Nnqci", "QUJD"), "a salt of 3 bytes: it has 8 at least"),
        (X_ARGON2ID.replace("m=19456", "m=7"), "m=7: it may be 8 to 262144"),
        (X_ARGON2ID.replace("m=19456", "m=262145"), "m=262145"),
        (X_ARGON2ID.replace("t=2", "t=101"), "t=101: it may be 1 to 100"),
        (X_ARGON2ID.replace("p=1", "p=17"), "p=17: it may be 1 to 16"),
        (X_ARGON2ID + "=", "base64 without '='"),
        (X_ARGON2ID.replace("MTExMTExMTExMTExMTExMQ", "MTEx"), "a salt of 3 bytes: it may have 8 to 128"),
        ("$argon2id$v=19$m=64,t=1,p=1$MTExMTExMTExMTExMTExMQ$MTEx", "a hash of 3 bytes: it may have 16 to 128"),
        (PLEASE_SCRYPT.replace("ln=14", "ln=18"), "takes more than 256 MiB"),
        (PLEASE_SCRYPT.replace("ln=14", "ln=29"), "ln=29: it may be 1 to 28"),
        (PLEASE_SCRYPT.replace("r=8", "r=0"), "r=0"),
        (PLEASE_SCRYPT.replace("p=1", "p=101"), "p=101"),
        (PLEASE_SCRYPT.replace("ln=14,r=8", "ln=16,r=1"), "ln is below 16 times r"),
    ],
)
def test_a_hash_that_cannot_be_used_is_refused_with_its_line(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(TextError) as error:
        parse_hash(text)
    assert why in str(error.value)
    path = tmp_path / "users"
    path.write_text(f"# people\nann:{text}\n")
    with pytest.raises(PasswordFileError, match=r"users:2: ") as located:
        load(path)
    assert why in str(located.value)


@pytest.mark.slow
def test_the_dearest_hashes_that_are_read_are_computed() -> None:
    scrypt = parse_hash(PLEASE_SCRYPT.replace("ln=14,r=8", "ln=17,r=8").replace("p=1$", "p=2$"))
    argon2id = parse_hash(X_ARGON2ID.replace("m=19456,t=2", "m=262144,t=1"))
    assert not scrypt.matches(b"x")
    assert not argon2id.matches(b"x")


def test_a_system_without_argon2id_says_so_when_the_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(**_options: object) -> object:
        raise UnsupportedAlgorithm("no")

    monkeypatch.setattr("cryptography.hazmat.primitives.kdf.argon2.Argon2id", unsupported)
    path = tmp_path / "users"
    path.write_text(f"ann:{X_ARGON2ID}\n")
    with pytest.raises(PasswordFileError, match=r"users:1: Argon2id needs OpenSSL 3\.2"):
        load(path)


# ── in a password file ─────────────────────────────────────────────────────────────────────────────────────────────


def credentials(username: str, password: str) -> Credentials:
    return Credentials("c", username, password.encode(), None, "127.0.0.1:40000", "tcp-1883")


@pytest.mark.long
async def test_one_file_holds_all_kinds(tmp_path: Path) -> None:
    path = tmp_path / "users"
    lines = {"seven": SECRET_7, "six": SECRET_6, "zoe\u0308": PAESSWORD_7, "x": X_ARGON2ID, "s": PLEASE_SCRYPT}
    path.write_text("".join(f"{name}:{text}\n" for name, text in lines.items()), encoding="utf-8")
    set_user(path, "ann", keys_of("secret", b"0123456789abcdef", 4_096), create=False)
    passwords = PasswordAuthenticator(path)
    right = {
        "seven": "secret",
        "six": "secret",
        "zoe\u0308": "pässword",
        "x": "x",
        "s": "pleaseletmein",
        "ann": "secret",
    }
    for name, password in right.items():
        assert await passwords.authenticate(credentials(name, password)), name
        assert not await passwords.authenticate(credentials(name, password + "!")), name
    assert not await passwords.authenticate(credentials("eve", "secret"))


def test_users_without_scram_keys_look_to_scram_like_users_that_do_not_exist() -> None:
    ann = keys_of("secret", b"0123456789ab", 5_000)
    users = Users({"ann": ann, "bob": parse_hash(SECRET_7)})
    assert users.scram_keys("ann") == ann
    made_up = [users.scram_keys(name) for name in ("bob", "eve")]
    assert {(keys.iterations, len(keys.salt)) for keys in made_up} == {(5_000, 12)}
    assert [users.has_scram(name) for name in ("ann", "bob", "eve")] == [True, False, False]
    kinds = {type(users.find(f"user{number}")) for number in range(50)}
    assert kinds == {type(ann), type(users.find("bob"))}, "each looks like some user's"


def test_users_that_do_not_exist_depend_on_hashes_too() -> None:
    one, other = (Users({"ann": parse_hash(text)}) for text in (SECRET_7, PAESSWORD_7))
    assert one.find("eve") != other.find("eve")


def _hash_with_mosquitto(path: Path, algorithm: str) -> None:
    path.write_text("ann:secret\nZoë:pässwörd\n", encoding="utf-8")
    subprocess.run(["mosquitto_passwd", "-H", algorithm, "-U", str(path)], check=True)
    subprocess.run(["mosquitto_passwd", "-H", algorithm, "-b", str(path), "bob", "hunter2"], check=True)


@pytest.mark.skipif(shutil.which("mosquitto_passwd") is None, reason="mosquitto_passwd is not installed")
@pytest.mark.parametrize("algorithm", ["sha512", "sha512-pbkdf2"])
async def test_a_file_of_mosquitto_is_used_as_it_is(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "passwd"
    await asyncio.to_thread(_hash_with_mosquitto, path, algorithm)
    passwords = PasswordAuthenticator(path)
    for name, password in (("ann", "secret"), ("Zoë", "pässwörd"), ("bob", "hunter2")):
        assert await passwords.authenticate(credentials(name, password)), name
        assert not await passwords.authenticate(credentials(name, "wrong")), name
