"""The password file, line by line, and who it lets in."""

import asyncio
import errno
import itertools
import logging
import os
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from mqttlite.client.scram import ScramSha256
from mqttlite.core.authentication import Verdict
from mqttlite.core.question import Authenticate
from mqttlite.files import atomic_file
from mqttlite.security import password_file
from mqttlite.security.auth_chain import AuthChain
from mqttlite.security.authenticator import Credentials, TooBusy
from mqttlite.security.hashes import new_scrypt
from mqttlite.security.keys import Keys, TextError, derive, keys_of, prepare
from mqttlite.security.password_file import (
    PasswordFileError,
    Users,
    delete_user,
    format_keys,
    load,
    new_salt,
    set_user,
)
from mqttlite.security.passwords import HASHES_AT_ONCE, PasswordAuthenticator, RemovedUsers

ANN = keys_of("secret", b"0123456789abcdef", 4_096)
BOB = keys_of("hunter2", b"fedcba987654", 5_000)
SALT = "MDEyMzQ1Njc4OWFiY2RlZg=="
LINE = f"ann:{format_keys(ANN)}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(f"# people\n\n{LINE}\nbob:{format_keys(BOB)}\r\n", encoding="utf-8")
    return path


def write(path: Path, text: str) -> None:
    path.write_text(text)


def remove(path: Path) -> None:
    path.unlink()


def change(path: Path) -> None:
    """Other rights, the same content."""
    path.chmod(0o400)


def credentials(username: str | None, password: bytes | None) -> Credentials:
    return Credentials("c", username, password, None, "127.0.0.1:40000", "tcp-1883")


# ── the file ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_is_read(path: Path) -> None:
    users = load(path)
    assert len(users) == 2
    assert users.find("ann") == ANN
    assert users.find("bob") == BOB
    assert "eve" not in users


def test_postgresqls_own_secrets_are_read(tmp_path: Path) -> None:
    """As `select rolpassword from pg_authid` shows it for RFC 7677's user."""
    secret = (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
        ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )
    (tmp_path / "users").write_text(f"user:{secret}\n")
    keys = load(tmp_path / "users").scram_keys("user")
    assert keys == keys_of("pencil", keys.salt, 4_096)


def test_blanks_around_a_name_and_a_hash_do_not_count(path: Path) -> None:
    name, _, secret = LINE.partition(":")
    path.write_bytes(f"\ufeff# people\r\n \t{name} : {secret} \t\r\n".encode())
    assert load(path).names() == {"ann"}
    delete_user(path, "ann")
    assert load(path).names() == set()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("ann", "this is not user:SCRAM-SHA-256"),
        ("ann:secret", "this is not user:SCRAM-SHA-256"),
        (LINE.replace("SHA-256", "SHA-1"), "this is not user:SCRAM-SHA-256"),
        (LINE + "-", "base64"),
        (LINE.replace("$4096", "$4095"), "4095 iterations: they may be 4096 to 10000000"),
        (LINE.replace("$4096", "$10000001"), "iterations"),
        (f"ann:SCRAM-SHA-256$4096:{SALT}$QUJD:{'A' * 43}=", "32 bytes"),
        (f"ann:SCRAM-SHA-256$4096:{SALT}${'A' * 43}=:QUJD", "32 bytes"),
        (LINE.replace(SALT, "MDEyMzQ1Njc4OTA="), "a salt of 11 bytes: it has 12 at least"),
        (f"{LINE}\n{LINE}", "user 'ann' has a line already"),
        (LINE.replace("ann", "a\x07"), "control characters"),
        (LINE.replace("ann", ""), "empty"),
        (LINE.replace("ann", "a\u00adnn"), "write it so"),
    ],
)
def test_a_broken_line_is_named(path: Path, line: str, why: str) -> None:
    path.write_text(f"# people\n{line}\n", encoding="utf-8")
    with pytest.raises(PasswordFileError, match=why) as error:
        load(path)
    assert str(error.value).startswith(f"{path}:{line.count(chr(10)) + 2}: ")


@pytest.mark.parametrize("name", ["a" * 100_000, "a\x1b[31m", "#" + "a" * 100_000])
def test_a_long_or_strange_name_is_quoted_in_short(path: Path, name: str) -> None:
    line = LINE.replace("ann", name)
    path.write_text(f"{LINE}\n b{line}\n{line}\n \u00ad{line}\n", encoding="utf-8")
    with pytest.raises(PasswordFileError) as error:
        load(path)
    text = str(error.value)
    assert len(text) < 1_500
    assert text.isprintable()


def test_a_file_that_is_no_text_or_not_there_is_named(path: Path) -> None:
    path.write_bytes(b"# people\n\n\xff\n")
    with pytest.raises(PasswordFileError, match="users:3: it is not UTF-8"):
        load(path)
    path.unlink()
    with pytest.raises(PasswordFileError, match="users: cannot be read: No such file"):
        load(path)


def test_users_are_added_changed_and_removed_and_the_rest_stays(path: Path) -> None:
    eve = keys_of("x", new_salt(), 4_096)
    assert set_user(path, "eve", eve, create=False)
    assert not set_user(path, "ann", BOB, create=False)
    delete_user(path, "bob")
    assert path.read_text() == f"# people\n\nann:{format_keys(BOB)}\neve:{format_keys(eve)}\n"
    with pytest.raises(PasswordFileError, match="no user 'bob'"):
        delete_user(path, "bob")
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "users"
    with pytest.raises(PasswordFileError, match="--create makes it"):
        set_user(path, "ann", ANN, create=False)
    assert set_user(path, "ann", ANN, create=True)
    assert path.read_text() == f"{LINE}\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(PasswordFileError, match="exists already"):
        set_user(path, "ann", BOB, create=True)
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


@pytest.mark.parametrize(("before", "after"), [(0o644, 0o640), (0o640, 0o640), (0o666, 0o660), (0o600, 0o600)])
def test_a_changed_file_keeps_its_readers(path: Path, before: int, after: int) -> None:
    path.chmod(before)
    set_user(path, "ann", BOB, create=False)
    assert stat.S_IMODE(path.stat().st_mode) == after


def test_a_link_to_the_file_stays_a_link(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to(path)
    delete_user(link, "bob")
    assert link.is_symlink()
    assert len(load(path)) == 1


no_locks = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no locks that leave readers alone")


@no_locks
def test_a_change_waits_for_another_one_but_not_for_ever(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_file, "MAX_WAIT_S", 0.05)
    why = "cannot be written: another change of it is under way"
    with atomic_file.changing(path), pytest.raises(PasswordFileError, match=why):
        delete_user(path, "bob")
    assert len(load(path)) == 2
    delete_user(path, "bob")
    assert len(load(path)) == 1
    path.unlink()
    with atomic_file.changing(path), pytest.raises(PasswordFileError, match=why):
        set_user(path, "ann", ANN, create=True)
    assert not path.exists()


@no_locks
@pytest.mark.parametrize("is_new", [False, True])
def test_changes_at_once_lose_none_and_leave_nothing(path: Path, is_new: bool) -> None:
    if is_new:
        path.unlink()

    def add(number: int) -> None:
        with atomic_file.changing(path) as replace:
            was = path.read_bytes() if path.exists() else b""
            replace(was + f"u{number}:{format_keys(ANN)}\n".encode())

    with ThreadPoolExecutor(16) as threads:
        assert all(each is None for each in threads.map(add, range(100)))
    assert {f"u{number}" for number in range(100)} <= load(path).names()
    assert [each.name for each in path.parent.iterdir()] == ["users"]


@no_locks
def test_a_broker_that_writes_the_file_waits_for_a_command(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = f"{LINE}\n".encode()
    has_read, may_go_on = threading.Event(), threading.Event()
    make = password_file._content_of

    def slow(*arguments: Any) -> bytes:
        has_read.set()
        may_go_on.wait(10)
        return make(*arguments)

    monkeypatch.setattr(password_file, "_content_of", slow)
    with ThreadPoolExecutor(2) as threads:
        command = threads.submit(set_user, path, "cid", BOB, create=False)
        assert has_read.wait(10)
        broker = threads.submit(atomic_file.save, path, theirs)
        with pytest.raises(TimeoutError):
            broker.result(0.1)
        may_go_on.set()
        command.result(10)
        broker.result(10)
    assert path.read_bytes() == theirs
    assert [each.name for each in path.parent.iterdir()] == ["users"]


@no_locks
def test_a_lock_is_that_of_the_file_that_is_there_now(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atomic_file, "MAX_WAIT_S", 0.05)
    real, other = atomic_file._is_locked, path.with_name("other")
    other.write_text("of a writer between the opening of the file and the lock")

    def late(lock: int) -> bool:
        if other.exists():
            other.replace(path)
        return real(lock)

    monkeypatch.setattr(atomic_file, "_is_locked", late)
    with atomic_file.changing(path), pytest.raises(OSError, match="another change of it is under way"):
        atomic_file.save(path, b"")


def test_writers_of_a_file_have_temporary_files_of_their_own(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a file system has no locks: one writer goes on while another one has written nothing yet."""
    monkeypatch.setattr(atomic_file, "_is_locked", lambda lock: True)
    before = path.read_bytes()
    arrived, may_go_on = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    numbers = itertools.count()

    def wait(descriptor: int, path: Path) -> None:
        number = next(numbers)
        arrived[number].set()
        may_go_on[number].wait(10)

    monkeypatch.setattr(atomic_file, "_inherit", wait)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(atomic_file.save, path, b"first")
        assert arrived[0].wait(10)
        second = threads.submit(atomic_file.save, path, b"second")
        assert arrived[1].wait(10)
        may_go_on[0].set()
        with suppress(FileNotFoundError):  # the second one took its file for what a crash had left
            first.result(10)
        assert path.read_bytes() in (before, b"first")
        may_go_on[1].set()
        second.result(10)
    assert path.read_bytes() == b"second"


def test_a_change_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PasswordFileError, match="cannot be written: No space left"):
        delete_user(path, "bob")
    assert len(load(path)) == 2
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(PasswordFileError, match="cannot be written: No such file"):
        set_user(tmp_path / "no" / "users", "ann", ANN, create=True)


# ── who does not exist ─────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_user_looks_like_a_known_one() -> None:
    users = Users({"ann": ANN, "bob": BOB})
    shapes = {(keys.iterations, len(keys.salt)) for keys in map(users.scram_keys, [f"user{n}" for n in range(50)])}
    assert shapes == {(4_096, 16), (5_000, 12)}


def test_an_unknown_user_gets_the_same_salt_after_a_restart_and_one_of_its_own() -> None:
    users, again = Users({"ann": ANN}), Users({"ann": ANN})
    assert users.find("eve") == again.find("eve") != users.find("mallory")
    assert users.find("eve") != Users({"ann": BOB}).find("eve")
    assert Users({}).scram_keys("eve").iterations == password_file.ITERATIONS


# ── user name and password ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("username", "password", "good"),
    [
        ("ann", b"secret", True),
        ("bob", b"hunter2", True),
        ("ann", b"hunter2", False),
        ("eve", b"secret", False),
        ("ann", None, False),
        ("ann", b"", False),
        ("ann", b"\xff", False),
        ("", b"secret", False),
        (None, b"secret", False),
        (None, None, False),
        ("a\u00adnn", b"secret", False),
    ],
)
@pytest.mark.parametrize("allow_anonymous", [False, True])
async def test_accepted_logins(
    path: Path, username: str | None, password: bytes | None, good: bool, allow_anonymous: bool
) -> None:
    auth_chain = AuthChain(PasswordAuthenticator(path), allow_anonymous=allow_anonymous)
    anonymous = username is None and password is None
    asked = Authenticate(1, "c", username, password)
    verdict = await auth_chain.verdict(asked, credentials(username, password))
    assert verdict.reason_code == (0 if good or (anonymous and allow_anonymous) else 0x86)


@pytest.mark.long
async def test_a_hash_of_the_empty_password_refuses_a_login_without_a_password(tmp_path: Path) -> None:
    path = tmp_path / "passwords"
    write(path, f"ann:{new_scrypt('').format()}\n")
    passwords = PasswordAuthenticator(path)
    found = [await passwords.authenticate(credentials("ann", given)) for given in (None, b"", None)]
    assert found == [False, True, False], "also after the empty password was found right, and is remembered"


async def test_a_right_password_is_hashed_once_for_a_while(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed, now = Mock(side_effect=derive), itertools.count(0.0, 30.0)
    monkeypatch.setattr("mqttlite.security.passwords.derive", hashed)
    monkeypatch.setattr("mqttlite.security.passwords.time.monotonic", lambda: next(now))
    passwords = PasswordAuthenticator(path, cache_s=100)
    ann, wrong = credentials("ann", b"secret"), credentials("ann", b"wrong")
    counts = []
    for asked in (ann, ann, wrong, wrong, ann, ann):
        assert await passwords.authenticate(asked) == (asked is ann)
        counts.append(hashed.call_count)
    assert counts == [1, 1, 2, 3, 4, 4], "wrong ones are always hashed, and the right one after its time"


async def test_without_a_cache_each_password_is_hashed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = Mock(side_effect=derive)
    monkeypatch.setattr("mqttlite.security.passwords.derive", hashed)
    passwords = PasswordAuthenticator(path, cache_s=0)
    for _ in range(3):
        assert await passwords.authenticate(credentials("ann", b"secret"))
    assert hashed.call_count == 3


async def test_a_changed_password_is_not_known_any_more(path: Path) -> None:
    passwords = PasswordAuthenticator(path)
    assert await passwords.authenticate(credentials("ann", b"secret"))
    set_user(path, "ann", BOB, create=False)
    assert not await passwords.authenticate(credentials("ann", b"secret"))
    assert await passwords.authenticate(credentials("ann", b"hunter2"))


async def test_a_known_answer_does_not_wait(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = PasswordAuthenticator(path)
    assert await passwords.authenticate(credentials("bob", b"hunter2"))
    held = Held(monkeypatch)
    waiting = [asyncio.create_task(passwords.authenticate(credentials("ann", b"x"))) for _ in range(HASHES_AT_ONCE + 5)]
    await held.full()
    assert await passwords.authenticate(credentials("bob", b"hunter2"))
    held.free.set()
    assert not any(await asyncio.gather(*waiting))


async def test_reload_forgets_which_passwords_were_right(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = PasswordAuthenticator(path)
    assert await passwords.authenticate(credentials("ann", b"secret"))
    hashed = Mock(side_effect=derive)
    monkeypatch.setattr("mqttlite.security.passwords.derive", hashed)
    await passwords.reload()
    assert await passwords.authenticate(credentials("ann", b"secret"))
    assert hashed.call_count == 1


class Held:
    """Holds up the threads that hash, until it is told to let them go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = threading.Event()
        self.begun = threading.Semaphore(0)
        monkeypatch.setattr("mqttlite.security.passwords.derive", self._derive)

    def _derive(self, prepared: str, salt: bytes, iterations: int) -> Keys:
        self.begun.release()
        self.free.wait(10)
        return derive(prepared, salt, iterations)

    async def full(self) -> None:
        """Every thread has something to do."""
        for _ in range(HASHES_AT_ONCE):
            await asyncio.to_thread(self.begun.acquire, timeout=60)


async def test_texts_are_prepared_once_and_not_on_the_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[tuple[str, int]] = []

    def spy(text: str) -> str:
        prepared.append((text, threading.get_ident()))
        return text

    monkeypatch.setattr("scramp.utils.saslprep", spy)
    assert not await PasswordAuthenticator(path).authenticate(credentials("Zoë", "pässword".encode()))
    ((text, thread),) = prepared
    assert text == "pässword"
    assert thread != threading.get_ident()


async def test_scram_prepares_names_not_on_the_loop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def find(_users: Users, _name: str) -> Keys:
        threads.append(threading.get_ident())
        return ANN

    monkeypatch.setattr(Users, "scram_keys", find)
    await PasswordAuthenticator(path).begin("SCRAM-SHA-256", credentials(None, None)).step(b"n,,n=ann,r=x")
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


@pytest.mark.parametrize(("password", "pauses"), [("secret", []), ("sécret", [9 * 2.0])])
async def test_a_thread_that_prepares_leaves_most_of_the_time_to_the_loop(
    path: Path, monkeypatch: pytest.MonkeyPatch, password: str, pauses: list[float]
) -> None:
    clock, slept = itertools.count(0.0, 2.0), list[float]()
    monkeypatch.setattr("mqttlite.security.passwords.time.thread_time", lambda: next(clock))
    monkeypatch.setattr("mqttlite.security.passwords.time.sleep", slept.append)
    await PasswordAuthenticator(path).authenticate(credentials("ann", password.encode()))
    assert slept == pauses


async def test_when_too_many_wait_the_next_is_told_to_come_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.security.passwords.MAX_WAITING", 6)
    held, passwords = Held(monkeypatch), PasswordAuthenticator(path)
    auth_chain = AuthChain(passwords, passwords)
    ann = credentials("ann", b"secret")
    waiting = [asyncio.create_task(passwords.authenticate(ann)) for _ in range(HASHES_AT_ONCE + 2)]
    await held.full()
    waiting.append(asyncio.create_task(passwords.authenticate(ann)))  # the last that fits
    await asyncio.sleep(0)
    with pytest.raises(TooBusy, match="3 clients wait"):
        await passwords.authenticate(ann)
    for asked in (Authenticate(1, "c", "ann", b"secret"), question(b"n,,n=ann,r=x", begins=True)):
        asked.method = "SCRAM-SHA-256" if asked.method else ""
        assert (await auth_chain.verdict(asked, ann)).reason_code == 0x89
    assert not await passwords.authenticate(credentials("ann", b"x" * 4_097)), "it takes no thread"
    held.free.set()
    assert all(await asyncio.gather(*waiting))
    assert await passwords.authenticate(ann)


async def test_a_client_that_leaves_makes_room_for_the_next(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mqttlite.security.passwords.MAX_WAITING", 1)
    held, passwords = Held(monkeypatch), PasswordAuthenticator(path)
    ann = credentials("ann", b"secret")
    waiting = [asyncio.create_task(passwords.authenticate(ann)) for _ in range(HASHES_AT_ONCE)]
    await held.full()
    left = asyncio.create_task(passwords.authenticate(ann))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.wait([left])
    waiting.append(asyncio.create_task(passwords.authenticate(ann)))
    held.free.set()
    assert all(await asyncio.gather(*waiting))


async def test_an_entry_whose_name_and_password_are_newer_than_unicode_3_2_is_good(path: Path) -> None:
    assert set_user(path, "zoë🔑", keys_of("pass🔑wörd", b"0123456789abcdef", 4_096), create=False)
    assert await PasswordAuthenticator(path).authenticate(credentials("zoë🔑", "pass🔑wörd".encode()))


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
        ("\u2168🔑\u2168", "IX🔑IX"),
    ],
)
def test_texts_are_compared_as_rfc_4013_says(text: str, prepared: str) -> None:
    assert prepare(text) == prepared


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "empty"), ("\u00ad", "empty"), ("a\x07", "control"), ("\u0627x", "bidi"), ("x" * 1_025, "1024")],
)
def test_a_text_that_cannot_be_a_password_is_refused(text: str, why: str) -> None:
    with pytest.raises(TextError, match=why):
        prepare(text)
    assert prepare("x" * 1_024) == "x" * 1_024


@pytest.mark.long
async def test_many_at_once_are_checked_a_few_at_a_time(path: Path) -> None:
    passwords = PasswordAuthenticator(path)
    loop_driver = 0

    async def loop_turns() -> None:
        nonlocal loop_driver
        while True:
            loop_driver += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(loop_turns())
    answers = await asyncio.gather(*(passwords.authenticate(credentials("ann", b"secret")) for _ in range(20)))
    counting.cancel()
    assert all(answers)
    assert loop_driver > 20, "the loop went on"


async def test_a_change_of_the_file_is_noticed(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    passwords = PasswordAuthenticator(path)
    set_user(path, "eve", ANN, create=False)
    assert await passwords.authenticate(credentials("eve", b"secret"))
    assert f"{path} was read again: 3 users" in caplog.text
    delete_user(path, "eve")
    assert not await passwords.authenticate(credentials("eve", b"secret"))


async def test_a_file_that_broke_or_is_gone_keeps_the_former_users(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    passwords = PasswordAuthenticator(path)
    write(path, "ann:secret\n")
    assert await passwords.authenticate(credentials("ann", b"secret"))
    assert await passwords.authenticate(credentials("ann", b"secret"))
    remove(path)
    assert await passwords.authenticate(credentials("bob", b"hunter2"))
    errors = [record.getMessage() for record in caplog.records]
    assert len(errors) == 2, "each once"
    assert f"{path}:1: this is not" in errors[0]
    assert "No such file" in errors[1]


def test_a_user_is_not_added_to_a_file_that_is_broken_but_may_mend_it(path: Path) -> None:
    broken = f"# people\n{LINE}\nbob:garbage\n"
    write(path, broken)
    with pytest.raises(PasswordFileError, match=f"{path}:3: this is not"):
        set_user(path, "eve", ANN, create=False)
    assert path.read_text() == broken
    set_user(path, "bob", BOB, create=False)
    assert "bob" in load(path)


async def test_a_file_that_could_not_be_read_is_read_later(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttlite.security.passwords.RETRY_S", 0.0)
    passwords = PasswordAuthenticator(path)
    delete_user(path, "ann")
    with monkeypatch.context() as without_files:
        without_files.setattr(Path, "read_bytes", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        for _ in range(3):
            assert await passwords.authenticate(credentials("ann", b"secret")), "it is not known yet"
    assert not await passwords.authenticate(credentials("ann", b"secret"))
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == [
        f"the users stay as they were: {path}: cannot be read: Too many open files"
    ]


async def test_a_file_that_cannot_be_read_is_not_tried_for_every_client(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passwords = PasswordAuthenticator(path)
    change(path)
    reads = Mock(side_effect=OSError(errno.EMFILE, "Too many open files"))
    monkeypatch.setattr(Path, "read_bytes", reads)
    await asyncio.gather(*(passwords.users() for _ in range(20)))
    assert reads.call_count == 1


async def test_a_client_that_comes_while_the_file_is_read_again_waits_for_it(path: Path) -> None:
    passwords = PasswordAuthenticator(path)
    delete_user(path, "ann")
    answers = await asyncio.gather(*(passwords.authenticate(credentials("ann", b"secret")) for _ in range(5)))
    assert not any(answers)


async def test_other_rights_are_a_change_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    passwords = PasswordAuthenticator(path)
    loaded = Mock(side_effect=load)
    monkeypatch.setattr("mqttlite.security.passwords.load", loaded)
    await passwords.users()
    assert not loaded.called
    change(path)
    await passwords.users()
    assert loaded.called


@pytest.mark.parametrize("text", ["x" * 65_000, "\ufdfa" * 1_000, "\u00e4" * 65_000])
async def test_long_names_and_passwords_take_no_time(path: Path, text: str) -> None:
    passwords = PasswordAuthenticator(path)
    with pytest.raises(TextError, match="characters, and may have 1024"):
        prepare(text)
    assert not await passwords.authenticate(credentials("ann", text.encode()))
    assert not await passwords.authenticate(credentials(text, b"secret"))
    verdict = await passwords.begin("SCRAM-SHA-256", credentials(None, None)).step(f"n,,n={text},r=abc".encode())
    assert verdict.reason_code == 0x87


# ── SCRAM ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def scram(passwords: PasswordAuthenticator, username: str, password: str) -> Verdict:
    client = ScramSha256(username, password).begin()
    exchange = passwords.begin("SCRAM-SHA-256", credentials(None, None))
    challenge = await exchange.step(client.first())
    assert challenge.reason_code == 0x18
    return await exchange.step(await client.reply(challenge.data or b""))


async def test_scram_finds_the_user_name(path: Path) -> None:
    passwords = PasswordAuthenticator(path)
    verdict = await scram(passwords, "ann", "secret")
    assert (verdict.reason_code, verdict.username) == (0, "ann")
    assert (await scram(passwords, "ann", "hunter2")).reason_code == 0x87


async def test_an_unknown_user_fails_like_a_wrong_password(path: Path) -> None:
    passwords = PasswordAuthenticator(path)
    for username in ("ann", "eve"):
        verdict = await scram(passwords, username, "wrong")
        assert (verdict.reason_code, verdict.data) == (0x87, None)


async def test_an_unknown_user_fails_even_with_a_proof(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for find in ("find", "scram_keys"):
        monkeypatch.setattr(Users, find, lambda _users, _name: ANN)
    assert (await scram(PasswordAuthenticator(path), "eve", "secret")).reason_code == 0x87
    assert not await PasswordAuthenticator(path).authenticate(credentials("eve", b"secret"))


@pytest.mark.parametrize("header", [b"n,,", b"y,,"])
async def test_a_client_without_channel_binding_is_asked(path: Path, header: bytes) -> None:
    exchange = PasswordAuthenticator(path).begin("SCRAM-SHA-256", credentials(None, None))
    verdict = await exchange.step(header + b"n=ann,r=abc")
    assert verdict.reason_code == 0x18
    assert (verdict.data or b"").startswith(b"r=abc")
    assert (verdict.data or b"").endswith(f",s={SALT},i=4096".encode())


@pytest.mark.parametrize("last", [b"", b"\xff", b"c=biws,r={}", b"c=eSws,r={},p=AAAA", b"c=biws,r=x,p=AAAA"])
async def test_a_last_message_that_proves_nothing_is_refused(path: Path, last: bytes) -> None:
    exchange = PasswordAuthenticator(path).begin("SCRAM-SHA-256", credentials(None, None))
    asked = (await exchange.step(b"n,,n=ann,r=abc")).data or b""
    nonce = asked.partition(b",")[0].removeprefix(b"r=")
    assert (await exchange.step(last.replace(b"{}", nonce))).reason_code == 0x87


async def test_the_header_of_the_first_message_is_signed(path: Path) -> None:
    """Somebody between the two has taken out that the client knows of channel binding."""
    talk = ScramSha256("ann", "secret").begin()
    exchange = PasswordAuthenticator(path).begin("SCRAM-SHA-256", credentials(None, None))
    challenge = await exchange.step(b"y" + talk.first()[1:])
    assert (await exchange.step(await talk.reply(challenge.data or b""))).reason_code == 0x87


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"p=tls-unique,,n=ann,r=x",
        b"n",
        b"n,",
        b"n,a=bob,n=ann,r=x",
        b"n,,m=x,n=ann,r=x",
        b"n,,r=x,n=ann",
        b"n,,n=ann",
        b"n,,n=ann,r=a b",
        b"n,,n=a=nn,r=x",
        b"n,,n=,r=x",
        b"n,,n=\x07,r=x",
        b"n,,n=\xff,r=x",
        b"n,,n=u\0,r=x",
        f"n,,n=ann,r={'x' * 2_048}".encode(),
        f"n,,n={chr(0xFDFA) * 200},r=x".encode(),
    ],
)
async def test_a_scram_that_is_none_is_refused(path: Path, data: bytes | None) -> None:
    exchange = PasswordAuthenticator(path).begin("SCRAM-SHA-256", credentials(None, None))
    assert (await exchange.step(data)).reason_code == 0x87


async def test_a_challenge_needs_an_answer(path: Path) -> None:
    exchange = PasswordAuthenticator(path).begin("SCRAM-SHA-256", credentials(None, None))
    await exchange.step(b"n,,n=ann,r=x")
    assert (await exchange.step(None)).reason_code == 0x87


# ── the gate ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Counting:
    """A method that counts the steps of each exchange, and lets in at the third."""

    methods = frozenset({"COUNT"})

    def __init__(self) -> None:
        self.begun = 0

    def begin(self, method: str, credentials: Credentials) -> "Counting":
        self.begun += 1
        self.steps = 0
        return self

    async def step(self, data: bytes | None) -> Verdict:
        self.steps += 1
        if data == b"break":
            raise LookupError("the directory is away")
        return Verdict(0 if self.steps == 3 else 0x18, b"%d" % self.steps)


def question(data: bytes | None = None, *, begins: bool = False, number: int = 1) -> Authenticate:
    asked = Authenticate(number, "c", None, None)
    asked.method, asked.data, asked.begins = "COUNT", data, begins
    return asked


async def test_a_gate_keeps_the_exchanges_apart() -> None:
    auth_chain = AuthChain(None, Counting())
    nobody = credentials(None, None)
    codes = [(await auth_chain.verdict(question(begins=n == 0), nobody)).reason_code for n in range(3)]
    assert codes == [0x18, 0x18, 0]
    assert (auth_chain.methods, auth_chain.is_open) == (frozenset({"COUNT"}), False)


async def test_an_exchange_that_begins_again_begins_again() -> None:
    counting = Counting()
    auth_chain = AuthChain(None, counting)
    nobody = credentials(None, None)
    await auth_chain.verdict(question(begins=True), nobody)
    await auth_chain.verdict(question(begins=True), nobody)
    auth_chain.forget(1)
    auth_chain.forget(1)
    await auth_chain.verdict(question(), nobody)
    assert counting.begun == 3


async def test_a_failing_authenticator_refuses_the_login_and_leaves_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counting = Counting()
    auth_chain = AuthChain(None, counting)
    nobody = credentials(None, None)
    await auth_chain.verdict(question(begins=True), nobody)
    assert (await auth_chain.verdict(question(b"break"), nobody)).reason_code == 0x88
    assert "the directory is away" in caplog.text
    await auth_chain.verdict(question(), nobody)
    assert counting.begun == 2


async def test_where_only_methods_are_asked_a_password_is_not_enough() -> None:
    plain = Authenticate(1, "c", "ann", b"secret")
    assert (await AuthChain(None, Counting()).verdict(plain, credentials("ann", b"secret"))).reason_code == 0x86
    assert AuthChain().is_open
    assert AuthChain().methods == frozenset()


def test_a_file_that_is_empty_for_a_moment_removes_no_user(path: Path) -> None:
    both = load(path)
    write(path, "")
    nobody = load(path)
    write(path, LINE)
    ann = load(path)
    removed = RemovedUsers(both)
    assert [removed.look(each) for each in (both, nobody, both, both, ann)] == [frozenset()] * 5
    assert [removed.look(each) for each in (ann, ann, nobody, nobody)] == [{"bob"}, frozenset(), frozenset(), {"ann"}]
