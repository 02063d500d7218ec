"""The file of dynamic security, who it lets in, and its commands without a broker."""

import asyncio
import gc
import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mqttlite.core.message import Message
from mqttlite.core.route.tally import QUOTA_EXCEEDED, Tally
from mqttlite.core.source import CLIENT, Source
from mqttlite.extensions.dynamic_security.control import (
    MAX_COMMANDS,
    MAX_REQUEST_BYTES,
    MAX_WAITING,
    RESPONSE_TOPIC,
    ControlTopic,
    Port,
)
from mqttlite.files.atomic_file import save
from mqttlite.files.shared_document import NotAgreed, SharedDocument
from mqttlite.security.authenticator import Credentials, TooBusy
from mqttlite.security.dynamic_security import DynamicSecurity, DynamicSecurityOptions, document, model, passwords
from mqttlite.security.dynamic_security.document import DynamicSecurityError, dump, load, parse
from mqttlite.security.dynamic_security.model import MAX_ACLS, MAX_MEMBERSHIPS, Client, State
from mqttlite.security.dynamic_security.passwords import DynamicAuthenticator, Passwords
from mqttlite.security.dynamic_security.role_rules import RoleRules
from mqttlite.security.dynamic_security.rules import NOBODY, DynamicRules
from mqttlite.security.hashes import MosquittoHash, PasswordHash
from mqttlite.wire.properties import NONE

# As `mosquitto_ctrl dynsec init` writes it, shortened; the password is "secret".
PASSWORD = "UyuQyrGsGNr7bwn/uX85jIC/WaexBDUXri8S04PeNtiY8fgl9MFDmrEdNFjJgB9sIJ8l5XaAGcgcN+hzti+1ig=="
INITIAL = """{
	"clients":	[{
			"username":	"admin",
			"textName":	"Dynsec admin user",
			"password":	"PASSWORD",
			"salt":	"yA2o+hfki7r8QWGw",
			"iterations":	101,
			"roles":	[{ "rolename":	"admin" }]
		}],
	"roles":	[{
			"rolename":	"admin",
			"acls":	[{ "acltype": "publishClientSend", "topic": "$CONTROL/dynamic-security/#", "allow": true }]
		}],
	"defaultACLAccess":	{ "publishClientSend": false, "publishClientReceive": true }
}
""".replace("PASSWORD", PASSWORD)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "dynamic-security.json"
    path.write_text(INITIAL)
    return path


def credentials(username: str | None, password: bytes | None, client_id: str = "c") -> Credentials:
    return Credentials(client_id, username, password, None, "127.0.0.1:40000", "tcp-1883")


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_file_of_mosquitto_is_read_and_written_back(path: Path) -> None:
    state = load(path)
    assert state.clients["admin"].text_name == "Dynsec admin user"
    assert state.default_access == {
        "publishClientSend": False,
        "publishClientReceive": True,
        "subscribe": False,
        "unsubscribe": False,
    }
    assert parse(dump(state)) == state


BROKEN: list[tuple[str, str]] = [
    ('{\n"clients": [,]}', ":2: column 13: Expecting value"),
    ("[]", ": it must be a JSON object"),
    ("[" * 100_000, ": it is nested too deeply"),
    ('{"clients": ' + "1" * 5_000 + "}", "Exceeds the limit"),
    ('{"clients": 7}', ": clients must be an array"),
    ('{"clients": [7]}', ": clients[0] must be an object"),
    ('{"clients": [{}]}', ": clients[0].username is missing or empty"),
    ('{"clients": [{"username": 7}]}', ": clients[0].username must be a text of at most 65535 bytes without U+0000"),
    (r'{"clients": [{"username": "\ud800"}]}', ": clients[0].username must be a text"),
    ('{"clients": [{"username": "a"}, {"username": "a"}]}', ": clients[1].username is 'a', which the file has already"),
    ('{"clients": [{"username": "a", "disabled": 1}]}', ": clients[0].disabled must be true or false"),
    ('{"clients": [{"username": "a", "password": "!", "salt": "", "iterations": 1}]}', "password is not base64"),
    (
        '{"clients": [{"username": "a", "password": "YQ==", "salt": "", "iterations": 1}]}',
        "has 1 bytes: it must have 64",
    ),
    ('{"clients": [{"username": "a", "password": "YQ=="}]}', "iterations is 0: it may be 1 to 1000000"),
    ('{"clients": [{"username": "a", "roles": [{"rolename": "r"}]}]}', "[0].rolename is 'r', which is not in the file"),
    ('{"groups": [{"groupname": "g", "clients": [{"username": "a"}]}]}', "username is 'a', which is not in the file"),
    ('{"anonymousGroup": "g"}', ": anonymousGroup is 'g', which is not in the file"),
    ('{"roles": [{"rolename": "r", "acls": [{"acltype": "x", "topic": "a"}]}]}', "acls[0].acltype must be one of"),
    ('{"roles": [{"rolename": "r", "acls": [{"acltype": "subscribeLiteral", "topic": "a#"}]}]}', "acls[0].topic: "),
    (
        '{"roles": [{"rolename": "r", "acls": [{"acltype": "subscribeLiteral", "topic": "a", "priority": "x"}]}]}',
        "priority must be a whole number",
    ),
    ('{"defaultACLAccess": []}', ": defaultACLAccess must be an object"),
    (f'{{"roles": {json.dumps([{}] * (model.MAX_ROLES + 1))}}}', f"roles has {model.MAX_ROLES + 1} entries"),
]


@pytest.mark.parametrize(("content", "expected"), BROKEN)
def test_a_broken_file_is_refused_with_its_place(path: Path, content: str, expected: str) -> None:
    path.write_text(content)
    with pytest.raises(DynamicSecurityError) as caught:
        load(path)
    assert str(caught.value).startswith(str(path))
    assert expected in str(caught.value)
    assert path.read_text() == content


def test_a_file_that_is_not_there_or_not_text_is_refused(path: Path) -> None:
    path.write_bytes(b'{\n"a": "\xff"}')
    with pytest.raises(DynamicSecurityError, match=":2: it is not UTF-8"):
        load(path)
    path.unlink()
    with pytest.raises(DynamicSecurityError, match="No such file or directory"):
        load(path)


@pytest.mark.parametrize("call", ["open", "fsync", "replace"])
def test_a_write_that_fails_leaves_the_former_file(path: Path, call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left"):
        save(path, b"{}")
    monkeypatch.undo()
    assert path.read_text() == INITIAL
    assert os.listdir(path.parent) == [path.name]


def test_files_left_by_a_crash_do_no_harm(path: Path) -> None:
    path.with_name(f"{path.name}.new-0123456789abcdef").write_text("{half")
    assert set(load(path).clients) == {"admin"}
    path.chmod(0o640)
    save(path, b'{"clients": []}')
    assert load(path) == State()
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(path.parent) == [path.name]


# ── who comes in ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.long
def test_accepted_logins(path: Path) -> None:
    rules = DynamicRules(load(path))
    hashes = Passwords()

    async def fits(username: str | None, password: bytes | None, client_id: str = "c") -> bool | None:
        authenticator = DynamicAuthenticator(rules, hashes)
        return await authenticator.authenticate(credentials(username, password, client_id))

    async def main() -> None:
        rules.state.clients["dev"] = Client("dev", password=await hashes.make("pw"), client_id="one")
        rules.state.clients["bare"] = Client("bare")
        assert await fits("admin", b"secret"), "the hash is Mosquitto's"
        assert await fits("dev", b"pw", "one")
        assert await fits("dev", b"pw", "two") is False
        assert await fits("dev", b"no", "one") is False
        assert await fits("dev", None, "one") is None
        assert await fits("bare", b"") is None
        assert await fits("nobody", b"pw") is None
        assert await fits(None, b"pw") is None
        assert await fits(None, None) is None
        for name in ("dev", "bare"):
            rules.state.clients[name].disabled = True
            assert await fits(name, b"pw", "one") is False
            assert rules.state.role_sets_of(name) is None, "nor by another login"

    asyncio.run(main())
    hashes.close()


def test_unknown_users_cost_as_much_as_known_ones() -> None:
    """So that no time tells who exists, where an old import has cheaper hashes than new users."""

    class Asked(Passwords):
        def __init__(self) -> None:
            super().__init__()
            self.costs: list[int] = []

        async def fits(self, password: PasswordHash, given: bytes) -> bool:
            assert isinstance(password, MosquittoHash)
            self.costs.append(password.iterations)
            return False

    def user(name: str, iterations: int) -> Client:
        return Client(name, password=MosquittoHash(iterations, b"s" * 12, name.encode() * 16))

    clients = {name: user(name, cost) for name, cost in (("anna", 101), ("bert", 101), ("carl", 900), ("dora", 900))}
    asked = Asked()

    async def costs_of(name: str) -> set[int]:
        asked.costs.clear()
        for _ in range(3):  # as after restarts
            authenticator = DynamicAuthenticator(DynamicRules(State(clients=clients)), asked)
            await authenticator.authenticate(credentials(name, b"pw"))
        return set(asked.costs)

    async def main() -> None:
        unknown = [await costs_of(f"nobody {number}") for number in range(40)]
        assert all(len(each) == 1 for each in unknown), "always the same for one name"
        assert {101} in unknown
        assert {900} in unknown
        assert await costs_of("carl") == {900}

    asyncio.run(main())
    asked.close()


def test_a_user_deleted_while_its_password_is_hashed_stays_out() -> None:
    async def main() -> None:
        hashes = Passwords()
        state = State(clients={"dev": Client("dev", password=await hashes.make("pw"))})
        authenticator = DynamicAuthenticator(DynamicRules(state), hashes)
        verdict = asyncio.ensure_future(authenticator.authenticate(credentials("dev", b"pw")))
        await asyncio.sleep(0)
        del state.clients["dev"]
        assert await verdict is False
        hashes.close()

    asyncio.run(main())


@pytest.mark.long
def test_more_clients_than_may_wait_are_refused_as_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "MAX_WAITING", 1)

    async def main() -> None:
        hashes = Passwords()
        password = await hashes.make("pw")
        waiting = [asyncio.ensure_future(hashes.fits(password, b"pw")) for _ in range(passwords.HASHES_AT_ONCE + 1)]
        await asyncio.sleep(0)
        with pytest.raises(TooBusy):
            await hashes.fits(password, b"pw")
        assert all(await asyncio.gather(*waiting))
        assert await hashes.fits(password, b"pw")
        hashes.close()

    asyncio.run(main())


ENCODED = "$argon2id$v=19$m=19456,t=2,p=1$MTExMTExMTExMTExMTExMQ$+wT4Ba0kkAhoEXYR3hLKOg4g8pKd0chBsEWFEP8xf94"
"""Of the password "x", as Mosquitto 2.1 writes it."""


@pytest.mark.long
def test_a_password_of_mosquitto_2_1_lets_its_user_in_and_outlives_a_change(path: Path) -> None:
    path.write_text(json.dumps({"clients": [{"username": "ann", "encoded_password": ENCODED, "password": "old"}]}))
    for again in (False, True):
        state, hashes = load(path), Passwords()
        authenticator = DynamicAuthenticator(DynamicRules(state), hashes)

        async def main(authenticator: DynamicAuthenticator = authenticator) -> list[bool | None]:
            return [await authenticator.authenticate(credentials("ann", given)) for given in (b"x", b"y", b"old")]

        assert asyncio.run(main()) == [True, False, False], again
        hashes.close()
        path.write_bytes(dump(state))
    assert json.loads(path.read_text())["clients"][0]["encoded_password"] == ENCODED


def test_keys_that_are_not_known_are_kept_and_named(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    added = {"x-Tool": {"Aa": [{"Bb": 1}]}}
    tree: dict[str, Any] = {
        "changeIndex": 7,
        "clients": [{"username": "ann", **added}],
        "groups": [{"groupname": "g", "roles": [], "clients": [{"username": "ann"}], **added}],
        "roles": [
            {"rolename": "r", "allowwildcardsubs": False, "acls": [{"acltype": "subscribeLiteral", "topic": "a"}]}
        ],
        **added,
    }
    tree["roles"][0] |= added
    tree["roles"][0]["acls"][0] |= added
    path.write_text(json.dumps(tree))
    desk = Desk(path)
    assert "error" not in desk.ask({"command": "createGroup", "groupname": "h"})[0]
    kept = json.loads(path.read_text())
    places = [kept, kept["clients"][0], kept["groups"][0], kept["roles"][0], kept["roles"][0]["acls"][0]]
    assert [each["x-Tool"] for each in places] == [added["x-Tool"]] * 5
    assert (kept["changeIndex"], kept["roles"][0]["allowwildcardsubs"]) == (8, False)
    assert load(path) == desk.rules.state
    named = ["roles[0].x-Tool", "roles[0].acls[0].x-Tool", "clients[0].x-Tool", "groups[0].x-Tool", "x-Tool"]
    assert sorted(load(path).unknown_places) == sorted(named)
    assert "x-Tool" not in json.dumps(desk.ask({"command": "listRoles", "verbose": True})), "answers are the plugin's"
    with caplog.at_level(logging.WARNING, "mqttlite.security"):
        DynamicSecurity(path, DynamicSecurityOptions(), lambda: ())
    assert f"{path}: roles[0].acls[0].x-Tool is not known; it stays in the file" in caplog.text


@pytest.mark.parametrize("how", ["chance", "environment", "file"])
def test_the_first_start_makes_the_file(path: Path, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink()
    words, options = path.with_name("init"), DynamicSecurityOptions()
    monkeypatch.delenv("MOSQUITTO_DYNSEC_PASSWORD", raising=False)
    if how == "environment":
        monkeypatch.setenv("MOSQUITTO_DYNSEC_PASSWORD", "adminadminadmin")
    elif how == "file":
        words.write_text("adminadminadmin \nnot this\n")
        options = DynamicSecurityOptions(password_init_file=str(words))
    security = DynamicSecurity(path, options, lambda: ())
    beside = path.with_name(f"{path.name}.pw")
    passwords = {"admin": "adminadminadmin"}
    if how == "chance":
        passwords = dict(line.split(" ") for line in beside.read_text().splitlines())
        assert (set(passwords), beside.stat().st_mode & 0o777) == ({"admin", "democlient"}, 0o600)
    else:
        assert not beside.exists()
    assert path.stat().st_mode & 0o777 == 0o600

    async def main() -> None:
        for name, password in passwords.items():
            assert await security.authenticator.authenticate(credentials(name, password.encode()))

    asyncio.run(main())
    security.close()
    assert set(security.rules.state.clients) == set(passwords)
    admin, anybody = security.rules.role_of("c", "admin"), security.rules.role_of("c", None)
    assert security.rules.may_publish(admin, b"$CONTROL/dynamic-security/v1")
    assert not security.rules.may_publish(admin, b"a")
    assert security.rules.may_subscribe(admin, b"$SYS/#")
    assert not security.rules.may_subscribe(anybody, b"a")
    if how == "chance":
        demo = security.rules.role_of("c", "democlient")
        assert security.rules.may_publish(demo, b"a")
        assert not security.rules.may_subscribe(demo, b"$CONTROL/dynamic-security/#")
    assert load(path) == security.rules.state


@pytest.mark.parametrize(
    ("password", "file", "why"),
    [("short", None, "has 5 characters: 12 at least"), (None, "", "no password"), (None, None, "cannot be written")],
)
def test_a_first_start_that_has_no_password_or_no_folder_makes_nothing(
    path: Path, password: str | None, file: str | None, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.unlink()
    monkeypatch.delenv("MOSQUITTO_DYNSEC_PASSWORD", raising=False)
    wanted, options = path, DynamicSecurityOptions()
    if password is not None:
        monkeypatch.setenv("MOSQUITTO_DYNSEC_PASSWORD", password)
    elif file is not None:
        path.with_name("init").write_text(file)
        options = DynamicSecurityOptions(password_init_file=str(path.with_name("init")))
    else:
        wanted = path.with_name("none") / path.name
    with pytest.raises(DynamicSecurityError, match=why):
        DynamicSecurity(wanted, options, lambda: ())
    assert not wanted.exists()
    with pytest.raises(DynamicSecurityError, match=r"init: cannot be read"):
        DynamicSecurity(
            path, DynamicSecurityOptions(password_init_file=str(path.with_name("nothing") / "init")), lambda: ()
        )


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Desk:
    """The commands over a file, without a broker."""

    def __init__(self, path: Path, save_file: Callable[[Path, bytes], None] = save) -> None:
        self.rules = DynamicRules(load(path))
        self.heard: list[tuple[str, Any]] = []
        self.kicked: list[frozenset[str | None]] = []
        self.applied = 0
        self.hashes = Passwords()
        self.addresses: dict[str, list[str]] = {}
        self.users: set[str] = set()
        """The clients that may send requests while there is a user of their name."""
        port = Port(
            *(self._respond, self._apply, self._kick, lambda username, _: self.addresses.get(username, [])),
            lambda source: source.client_id not in self.users or source.client_id in self.rules.state.clients,
        )
        self.document = SharedDocument(
            *("dynamic-security", parse, self._replace), path=path, lock=asyncio.Lock(), reload=self._reload
        )
        self.control = ControlTopic(path, self.document, self.rules, self.hashes, port, save_file)

    async def _replace(self, content: bytes) -> None:
        raise AssertionError("a broker alone gets nothing from others")

    async def _reload(self, content: bytes) -> None:
        self.rules.state = parse(content)

    def _respond(self, client_id: str, topic: bytes, payload: bytes) -> bool:
        assert topic == RESPONSE_TOPIC
        self.heard.append((client_id, json.loads(payload)["responses"]))
        return True

    def _apply(self) -> None:
        self.applied += 1

    async def _kick(self, users: frozenset[str | None]) -> None:
        self.kicked.append(users)

    def put(self, payload: bytes, client_id: str = "admin") -> Tally:
        tally = Tally()
        message = Message(b"t", payload, 1, False, NONE, 0.0)
        self.control.accept(message, Source(CLIENT, client_id), tally)
        return tally

    def ask(self, *commands: object, payload: bytes | None = None) -> list[Any]:
        """The responses to a request."""

        async def main() -> None:
            self.put(json.dumps({"commands": commands}).encode() if payload is None else payload)
            while not self.heard:
                await asyncio.sleep(0.001)
            await self.control.stop()

        self.heard.clear()
        asyncio.run(main())
        ((_, responses),) = self.heard
        assert isinstance(responses, list)
        return responses


def test_a_change_is_on_disk_when_it_is_answered_and_a_question_writes_nothing(path: Path) -> None:
    desk = Desk(path)
    assert desk.ask({"command": "listClients"})[0]["data"]["clients"] == ["admin"]
    assert (desk.applied, path.read_text()) == (0, INITIAL)
    assert desk.ask({"command": "createClient", "username": "ann", "password": "pw"}) == [{"command": "createClient"}]
    assert desk.applied == 1
    assert set(load(path).clients) == {"admin", "ann"}
    assert load(path) == desk.rules.state


def test_a_change_that_cannot_be_saved_is_undone(path: Path) -> None:
    def fail(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    desk = Desk(path, fail)
    responses = desk.ask({"command": "deleteClient", "username": "admin"}, {"command": "createRole", "rolename": "r"})
    assert responses == [
        {"command": "deleteClient", "error": "Internal error"},
        {"command": "createRole", "error": "Internal error"},
    ]
    assert desk.kicked == []
    assert desk.applied == 0
    assert desk.rules.state == load(path)


EDITED = "dynamic-security.json was edited and is in force now: send the command again"


def edit(path: Path, username: str) -> None:
    tree = json.loads(path.read_text())
    tree["clients"].append({"username": username})
    path.write_text(json.dumps(tree))


def test_a_command_keeps_what_somebody_has_just_written_into_the_file(path: Path) -> None:
    desk = Desk(path)
    for by_hand, by_command in (("ann", "bob"), ("cid", "dan")):
        edit(path, by_hand)
        create = {"command": "createClient", "username": by_command}
        assert desk.ask(create) == [{"command": "createClient", "error": EDITED}]
        assert desk.ask(create) == [{"command": "createClient"}]
    assert set(load(path).clients) == {"admin", "ann", "bob", "cid", "dan"}
    assert load(path) == desk.rules.state
    edit(path, "eve")
    assert desk.ask({"command": "listClients"}) == [{"command": "listClients", "error": EDITED}]
    assert "eve" in desk.ask({"command": "listClients"})[0]["data"]["clients"]


async def test_no_command_is_carried_out_that_was_let_in_before_an_edit_took_force(path: Path) -> None:
    desk = Desk(path)
    edit(path, "ann")
    for number in range(3):  # the last ones wait behind the one that finds the edit
        desk.put(json.dumps({"commands": [{"command": "createClient", "username": f"c{number}"}]}).encode())
    over_http = desk.control.execute(
        b'{"commands": [{"command": "deleteClient", "username": "ann", "correlationData": "7"}, {"command": "x"}]}', "h"
    )
    assert await over_http == [
        {"command": "deleteClient", "error": EDITED, "correlationData": "7"},
        {"command": "x", "error": "Unknown command"},
    ]
    assert [responses for _, responses in desk.heard] == [[{"command": "createClient", "error": EDITED}]] * 3
    assert set(desk.rules.state.clients) == set(load(path).clients) == {"admin", "ann"}


async def test_no_command_is_carried_out_that_waited_while_another_node_replaced_the_users(path: Path) -> None:
    desk = Desk(path)
    create = json.dumps({"commands": [{"command": "createClient", "username": "ann"}]}).encode()
    async with desk.document.lock:
        asked = asyncio.create_task(desk.control.execute(create, "h"))
        await asyncio.sleep(0)
        edit(path, "bob")
        desk.rules.state = load(path)
    assert await asked == [{"command": "createClient", "error": EDITED}]
    assert await desk.control.execute(create, "h") == [{"command": "createClient"}]


async def test_no_command_is_carried_out_of_a_sender_who_lost_the_right_by_a_request_before_it(path: Path) -> None:
    desk = Desk(path)
    desk.users.add("ann")
    create = json.dumps({"commands": [{"command": "createClient", "username": "ann"}]}).encode()
    desk.put(create)
    desk.put(b'{"commands": [{"command": "deleteClient", "username": "ann"}]}')
    desk.put(json.dumps({"commands": [{"command": "createClient", "username": "bob"}]}).encode(), "ann")
    while len(desk.heard) < 3:
        await asyncio.sleep(0.001)
    error = "the right to send commands was taken away while this one waited"
    assert desk.heard[2] == ("ann", [{"command": "createClient", "error": error}])
    assert set(load(path).clients) == {"admin"}
    assert await desk.control.execute(create, "a caller over HTTP") == [{"command": "createClient"}]


def test_a_file_that_is_nested_too_deeply_is_a_mistake_as_others(path: Path) -> None:
    desk = Desk(path)
    for broken in ("[" * 200_000, '{"of another program": ' + "[" * 700 + "]" * 700 + "}"):
        with pytest.raises(ValueError, match="it is nested too deeply"):
            parse(broken.encode())
        with pytest.raises(ValueError, match="it is nested too deeply"):
            desk.document.check(broken.encode())
        path.write_text(broken)
        (response,) = desk.ask({"command": "createClient", "username": "bob"})
        assert response["error"] == f"{path.name} was edited and cannot be used: mend it first"
        assert path.read_text() == broken


def test_no_command_overwrites_an_edit_with_a_mistake(path: Path) -> None:
    desk = Desk(path)
    path.write_text("{ half of it")
    (response,) = desk.ask({"command": "createClient", "username": "bob"})
    assert response == {"command": "createClient", "error": f"{path.name} was edited and cannot be used: mend it first"}
    assert path.read_text() == "{ half of it"
    assert desk.ask({"command": "listClients"})[0]["data"]["clients"] == ["admin"]
    path.write_text(INITIAL)
    assert desk.ask({"command": "createClient", "username": "bob"}) == [{"command": "createClient"}]
    assert set(load(path).clients) == {"admin", "bob"}


def test_a_change_during_which_somebody_edits_the_file_is_refused_and_the_edit_stays(path: Path) -> None:
    desk = Desk(path)

    async def agree(content: bytes) -> None:
        await asyncio.to_thread(edit, path, "ann")

    desk.document.agreeing = agree
    (response,) = desk.ask({"command": "createClient", "username": "bob"})
    assert response == {"command": "createClient", "error": f"{path.name} was edited at the same time: try again"}
    assert set(load(path).clients) == {"admin", "ann"}
    desk.document.agreeing = None
    (response,) = desk.ask({"command": "createClient", "username": "bob"})
    assert response == {"command": "createClient", "error": EDITED}
    assert desk.ask({"command": "createClient", "username": "bob"}) == [{"command": "createClient"}]
    assert set(load(path).clients) == {"admin", "ann", "bob"}


def test_a_file_that_was_removed_is_made_again_by_the_next_change(path: Path) -> None:
    desk = Desk(path)
    path.unlink()
    assert desk.ask({"command": "createClient", "username": "bob"}) == [{"command": "createClient"}]
    assert set(load(path).clients) == {"admin", "bob"}


def test_a_change_does_not_hold_before_other_nodes_agree_nor_after_they_refuse(path: Path) -> None:
    desk = Desk(path)
    before = load(path)
    held: list[bool] = []

    async def refuse(content: bytes) -> None:
        held.append(desk.rules.state != before)
        raise NotAgreed("the other nodes do not answer")

    async def agree(content: bytes) -> None:
        held.append(desk.rules.state != before)

    desk.document.agreeing = refuse
    changes = [
        {"command": "createClient", "username": "ann", "password": "pw"},
        {"command": "modifyClient", "username": "admin", "textname": "x", "roles": []},
        {"command": "addRoleACL", "rolename": "admin", "acltype": "subscribeLiteral", "topic": "t", "allow": True},
        {"command": "createGroup", "groupname": "g"},
        {"command": "addGroupClient", "groupname": "g", "username": "admin"},
        {"command": "setDefaultACLAccess", "acls": [{"acltype": "subscribe", "allow": True}]},
    ]
    assert {each.get("error") for each in desk.ask(*changes)} == {"the other nodes do not answer"}
    assert desk.rules.state == before
    assert (desk.applied, desk.kicked) == (0, [])
    desk.document.agreeing = agree
    assert not any("error" in each for each in desk.ask(*changes))
    assert held == [False, False]
    assert desk.rules.state == load(path) != before


def test_users_whose_permissions_change_are_disconnected(path: Path) -> None:
    desk = Desk(path)
    desk.ask(
        {"command": "createRole", "rolename": "r"},
        {"command": "createGroup", "groupname": "g", "roles": [{"rolename": "r"}]},
        {"command": "createClient", "username": "ann", "groups": [{"groupname": "g"}]},
        {"command": "createClient", "username": "bob", "roles": [{"rolename": "r"}]},
        {"command": "createClient", "username": "cid"},
    )
    assert desk.kicked == []
    for command, kicked in (
        ({"command": "setAnonymousGroup", "groupname": "g"}, {None}),
        ({"command": "modifyRole", "rolename": "r", "textname": "R"}, {None, "ann", "bob"}),
        ({"command": "addGroupRole", "groupname": "g", "rolename": "admin"}, {None, "ann"}),
        ({"command": "disableClient", "username": "cid"}, {"cid"}),
        ({"command": "setClientPassword", "username": "cid", "password": "x"}, {"cid"}),
        ({"command": "enableClient", "username": "cid"}, None),
        ({"command": "deleteClient", "username": "bob"}, {"bob"}),
    ):
        desk.kicked.clear()
        assert "error" not in desk.ask(command)[0]
        assert desk.kicked == ([] if kicked is None else [frozenset(kicked)])


def test_the_anonymous_group_is_not_deleted(path: Path) -> None:
    desk = Desk(path)
    desk.ask({"command": "createGroup", "groupname": "g"}, {"command": "setAnonymousGroup", "groupname": "g"})
    (response,) = desk.ask({"command": "deleteGroup", "groupname": "g"})
    assert response["error"] == "Deleting the anonymous group is forbidden"


def test_a_request_is_bounded(path: Path) -> None:
    desk = Desk(path)
    assert "too large" in desk.ask(payload=b" " * (MAX_REQUEST_BYTES + 1))[0]["error"]
    assert desk.ask(payload=b" " * MAX_REQUEST_BYTES)[0]["error"] == "Payload not valid JSON"
    assert desk.ask(payload=b"[" * MAX_REQUEST_BYTES)[0]["error"] == "Payload not valid JSON"
    assert len(desk.ask(*[{"command": "getAnonymousGroup"}] * MAX_COMMANDS)) == MAX_COMMANDS
    assert "Too many commands" in desk.ask(*[{"command": "x"}] * (MAX_COMMANDS + 1))[0]["error"]


LIMITS: list[tuple[str, str, dict[str, Any]]] = [
    ("MAX_CLIENTS", "Too many clients: 1 at most", {"command": "createClient", "username": "x"}),
    ("MAX_ROLES", "Too many roles: 1 at most", {"command": "createRole", "rolename": "x"}),
    (
        "MAX_ACLS",
        "Too many ACLs: 1 at most",
        {"command": "addRoleACL", "rolename": "admin", "acltype": "subscribeLiteral", "topic": "x"},
    ),
    (
        "MAX_MEMBERSHIPS",
        "Too many roles: 1 at most",
        {"command": "addClientRole", "username": "admin", "rolename": "other"},
    ),
]


@pytest.mark.parametrize(("limit", "error", "command"), LIMITS)
def test_how_much_there_may_be(
    path: Path, limit: str, error: str, command: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(path)
    if limit == "MAX_MEMBERSHIPS":
        desk.ask({"command": "createRole", "rolename": "other"})
    monkeypatch.setattr(model, limit, 1)
    assert desk.ask(command) == [{"command": command["command"], "error": error}]
    monkeypatch.setattr(model, limit, 2)
    assert desk.ask(command) == [{"command": command["command"]}]


def test_lists_in_commands_are_bounded(path: Path) -> None:
    desk = Desk(path)
    assert MAX_ACLS > MAX_MEMBERSHIPS
    acls = [{"acltype": "subscribeLiteral", "topic": "x"}] * (MAX_ACLS + 1)
    assert "Too many ACLs" in desk.ask({"command": "createRole", "rolename": "r", "acls": acls})[0]["error"]
    names = [{"command": "createRole", "rolename": f"r{number}"} for number in range(MAX_MEMBERSHIPS + 1)]
    desk.ask(*names)
    roles = [{"rolename": each["rolename"]} for each in names]
    create = {"command": "createClient", "username": "x", "roles": roles}
    assert "Too many roles" in desk.ask(create)[0]["error"]
    assert "x" not in desk.rules.state.clients
    assert "error" not in desk.ask({**create, "roles": roles[1:]})[0]


def test_names_that_mqtt_cannot_carry_are_refused(path: Path) -> None:
    desk = Desk(path)
    for name in ("\ud800", "a\0", "x" * 65_536):
        (response,) = desk.ask({"command": "createClient", "username": name})
        assert response["error"] == "Username not valid UTF-8"
    assert desk.ask({"command": "createClient", "username": ""})[0]["error"] == "Empty username"
    (response,) = desk.ask({"command": "nix", "correlationData": 7})
    assert response["error"] == "Invalid correlationData data type."


@pytest.mark.parametrize("odd", ["\x01", "\n", "\x7f", "\x85", "\ufdd0", "\ufdef", "\ufffe", "\uffff", "\U0010ffff"])
def test_controls_and_noncharacters_are_in_no_name(path: Path, odd: str) -> None:
    desk = Desk(path)
    for command, error in (
        ({"command": "createClient", "username": f"a{odd}"}, "Username not valid UTF-8"),
        ({"command": "createClient", "username": "a", "clientid": odd}, "Client ID not valid UTF-8"),
        ({"command": "createRole", "rolename": odd}, "Role name not valid UTF-8"),
        ({"command": "createGroup", "groupname": odd}, "Group name not valid UTF-8"),
        ({"command": "setClientId", "username": "admin", "clientid": odd}, "Client ID not valid UTF-8"),
        ({"command": "modifyClient", "username": "admin", "clientid": odd}, "Client ID not valid UTF-8"),
        (
            {"command": "addRoleACL", "rolename": "admin", "acltype": "subscribeLiteral", "topic": odd},
            "Topic not valid UTF-8",
        ),
    ):
        assert desk.ask(command)[0]["error"] == error
    described = {"command": "createRole", "rolename": "\ufdcf\ufffd\xa0", "textname": odd, "textdescription": odd}
    assert "error" not in desk.ask(described)[0]
    assert "error" not in desk.ask({"command": "createClient", "username": "b", "password": odd})[0]


def test_a_file_with_a_name_that_no_command_takes_is_read(path: Path) -> None:
    path.write_text('{"clients": [{"username": "a\\uffff"}]}')
    assert "a\uffff" in load(path).clients


def test_details_count_the_entries_and_their_changes(path: Path) -> None:
    desk = Desk(path)
    desk.ask({"command": "createRole", "rolename": "r"}, {"command": "createRole", "rolename": "r"})
    (response,) = desk.ask({"command": "getDetails"})
    assert response["data"] == {"clientCount": 1, "groupCount": 0, "roleCount": 2, "changeIndex": 1}
    assert load(path).change_index == 1


def test_a_client_is_shown_with_the_addresses_of_its_connections(path: Path) -> None:
    desk = Desk(path)
    desk.addresses["admin"] = ["127.0.0.1", "::1"]
    (response,) = desk.ask({"command": "getClient", "username": "admin"})
    assert response["data"]["client"]["connections"] == [{"address": "127.0.0.1"}, {"address": "::1"}]
    (response,) = desk.ask({"command": "listClients", "verbose": True})
    assert len(response["data"]["clients"][0]["connections"]) == 2


def test_a_role_is_shown_and_changed_with_whether_it_allows_wildcards(path: Path) -> None:
    desk = Desk(path)
    assert desk.ask({"command": "getRole", "rolename": "admin"})[0]["data"]["role"]["allowwildcardsubs"] is True
    for command in ("createRole", "modifyRole"):
        asked = {"command": command, "rolename": "r" if command == "createRole" else "admin"}
        assert desk.ask({**asked, "allowwildcardsubs": 1})[0]["error"] == "Invalid allowwildcardsubs"
        assert "error" not in desk.ask({**asked, "allowwildcardsubs": False})[0]
        assert load(path).roles[asked["rolename"]].allow_wildcard_subs is False


@pytest.mark.long
def test_requests_wait_in_a_bounded_queue_and_are_answered_in_order(path: Path) -> None:
    desk = Desk(path)

    async def main() -> None:
        for number in range(MAX_WAITING):
            role = json.dumps({"commands": [{"command": "createRole", "rolename": f"{number}"}]})
            assert desk.put(role.encode(), f"admin{number % 3}").code == 0
        assert desk.put(b"{}").code == QUOTA_EXCEEDED
        while len(desk.heard) < MAX_WAITING:
            await asyncio.sleep(0.001)

    asyncio.run(main())
    assert [client_id for client_id, _ in desk.heard] == [f"admin{number % 3}" for number in range(MAX_WAITING)]
    assert all("error" not in response for _, (response,) in desk.heard)
    assert len(load(path).roles) == MAX_WAITING + 1


def test_the_log_names_the_caller_and_the_command_and_no_password(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(path)
    with caplog.at_level(logging.DEBUG, "mqttlite.security"):
        desk.ask({"command": "createClient", "username": "ann", "password": "hunter2"})
        desk.ask({"command": "deleteClient", "username": "nix"})
    assert "client 'admin': createClient username='ann'" in caplog.text
    assert "client 'admin': deleteClient username='nix' failed: Client not found" in caplog.text
    assert "hunter2" not in caplog.text + repr(desk.rules.state)


# ── rules ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_control_is_never_open_by_default_and_unknown_users_may_nothing(path: Path) -> None:
    state = load(path)
    state.default_access = dict.fromkeys(state.default_access, True)
    state.clients["ann"] = Client("ann")
    rules = DynamicRules(state)
    admin, ann, nobody = (rules.role_of("c", name) for name in ("admin", "ann", "nobody"))
    assert rules.may_publish(admin, b"$CONTROL/dynamic-security/v1")
    assert rules.may_publish(ann, b"a")
    assert rules.may_receive(ann, b"a")
    assert rules.may_subscribe(ann, b"a")
    assert not rules.may_publish(ann, b"$CONTROL/dynamic-security/v1")
    assert not rules.may_subscribe(ann, b"$CONTROL/#")
    assert not rules.may_subscribe(ann, b"$share/g/$CONTROL/#")
    assert nobody == NOBODY
    assert not rules.may_publish(nobody, b"a")
    assert not rules.may_receive(nobody, b"a")
    assert not rules.is_open(b"a")
    assert not rules.is_readable(b"a")
    assert rules.reason(ann, "publish", b"a") == "allowed by the default access publishClientSend"
    expected = "allowed by publishClientSend $CONTROL/dynamic-security/# of role admin"
    assert rules.reason(admin, "publish", b"$CONTROL/dynamic-security/v1") == expected
    assert rules.reason(ann, "subscribe", b"$CONTROL/#") == "denied by dynamic security: no role allows it"
    assert rules.reason(nobody, "receive", b"a") == "denied by dynamic security, which does not know the user"


def test_a_number_stands_for_the_same_roles_for_good(path: Path) -> None:
    in_use: set[int] = set()
    rules = DynamicRules(load(path), lambda: in_use, max_holders=2)
    admin, anonymous = rules.role_of("c", "admin"), rules.role_of("c", None)
    rules.state.clients["ann"] = Client("ann", roles={"admin": 3})
    assert rules.role_of("c", "ann") == admin != anonymous
    del rules.state.roles["admin"]
    assert not rules.may_publish(admin, b"$CONTROL/dynamic-security/v1")
    assert not rules.may_subscribe(admin, b"a")
    rules.state.clients["ann"].roles = {}
    in_use |= {admin, anonymous}
    rules.state.roles |= {"admin": model.Role("admin"), "other": model.Role("other")}
    rules.state.clients["bob"] = Client("bob", roles={"other": 1})
    assert rules.role_of("c", "bob") == NOBODY, "there is no room for one more list"
    in_use.remove(anonymous)
    bob = rules.role_of("c", "bob")
    assert bob not in (NOBODY, admin, anonymous), "a number is not given again"
    assert not rules.may_publish(anonymous, b"a")
    assert not rules.may_subscribe(anonymous, b"a")


def test_a_role_may_refuse_all_wildcards_before_its_rules() -> None:
    role = model.Role("r", allow_wildcard_subs=False)
    role.add("subscribePattern", model.Acl("#", 0, allow=True))
    rules = DynamicRules(State(clients={"ann": Client("ann", roles={"r": 1})}, roles={"r": role}))
    ann = rules.role_of("c", "ann")
    allowed = [rules.may_subscribe(ann, each) for each in (b"a/b", b"$share/g/a", b"a/+", b"#", b"$share/g/a/#")]
    assert allowed == [True, True, False, False, False]
    assert rules.reason(ann, "subscribe", b"#") == "denied by allowwildcardsubs of role r"


@pytest.mark.parametrize("kind", ["publishClientSend", "publishClientReceive", "subscribePattern"])
def test_rules_have_the_names_of_the_client_where_no_name_reaches_topics_of_others(kind: str) -> None:
    role = model.Role("r")
    for topic in ("s/%u/#", "c/%c", "%c/x", "100%/%up/%cc"):
        role.add(kind, model.Acl(topic, 0, allow=True))
    clients = {name: Client(name, roles={"r": 1}) for name in ("ann", "+", "#", "a/b", "$SYS")}
    rules = DynamicRules(State(clients=clients, roles={"r": role}))

    def may(client_id: str, username: str, *topics: bytes) -> list[bool]:
        number = rules.role_of(client_id, username)
        ask = {"publishClientSend": rules.may_publish, "publishClientReceive": rules.may_receive}
        return [ask.get(kind, rules.may_subscribe)(number, topic) for topic in topics]

    topics = b"s/ann/1", b"s/ann", b"c/7", b"7/x", b"s/bob/1", b"c/8", b"s/%u/1", b"100%/%up/%cc"
    assert may("7", "ann", *topics) == [True, True, True, True, False, False, False, True]
    assert may("8", "ann", b"c/7", b"c/8") == [False, True]
    for name in ("+", "#", "a/b"):
        assert not any(may(name, name, b"s/ann/1", b"c/7", b"7/x", b"s/a/b/1", b"c/a/b", b"s/+/1", b"+/x"))
    assert may("$SYS", "$SYS", b"s/$SYS/1", b"$SYS/x") == [True, False]
    assert may("", "ann", b"c/", b"/x") == [False, False]


@pytest.mark.parametrize(
    ("pattern", "topic_filter", "covered"),
    [
        (b"#", b"$SYS/#", False),
        (b"+/#", b"$SYS/#", False),
        (b"$SYS/#", b"$SYS/broker/+", True),
        (b"$SYS/#", b"SYS/#", False),
        (b"#", b"a/#", True),
        (b"+/#", b"#", False),
        (b"a/+", b"a/#", False),
        (b"a/#", b"a", True),
        (b"a/#", b"a/#", True),
        (b"a/b/#", b"a/#", False),
        (b"#", b"#", True),
        (b"a", b"a/#", False),
    ],
)
def test_a_pattern_covers_these_topics(pattern: bytes, topic_filter: bytes, covered: bool) -> None:
    role = model.Role("r")
    role.add("subscribePattern", model.Acl(pattern.decode(), 0, allow=True))
    rules = DynamicRules(State(clients={"ann": Client("ann", roles={"r": 1})}, roles={"r": role}))
    assert rules.may_subscribe(rules.role_of("c", "ann"), topic_filter) == covered


def test_a_changed_role_is_asked_and_one_that_is_made_again_is_another() -> None:
    role = model.Role("r")
    role.add("publishClientSend", model.Acl("a", 0, allow=True))
    rules = DynamicRules(State(clients={"ann": Client("ann", roles={"r": 1})}, roles={"r": role}))
    ann = rules.role_of("c", "ann")

    def may(*changes: tuple[str, bool]) -> list[bool]:
        state = rules.state.copy()
        for topic, allow in changes:
            state.roles["r"].add("publishClientSend", model.Acl(topic, 0, allow=allow))
        rules.state = state
        return [rules.may_publish(ann, each) for each in (b"a", b"b", b"b/c")]

    assert may() == [True, False, False]
    assert may(("b", True), ("b/#", False)) == [True, True, False]
    without = rules.state.copy()
    del without.roles["r"]
    rules.state = without
    assert not rules.may_publish(ann, b"a")
    again = rules.state.copy()
    again.roles["r"] = model.Role("r")
    again.roles["r"].add("publishClientSend", model.Acl("b/c", 0, allow=True))
    rules.state = again
    assert may() == [False, False, True]


@pytest.mark.slow
def test_nothing_is_kept_of_a_role_that_is_gone() -> None:
    def made() -> int:
        return sum(type(each) is RoleRules for each in gc.get_objects())

    before = made()
    rules = DynamicRules(State(clients={"ann": Client("ann", roles={"r": 1})}, roles={"r": model.Role("r")}))
    rules.may_publish(rules.role_of("c", "ann"), b"a")
    assert made() == before + 1
    rules.state = State()
    assert made() == before


def test_a_share_does_not_get_round_a_denial() -> None:
    role = model.Role("r")
    role.add("subscribePattern", model.Acl("secret/#", 1, allow=False))
    role.add("subscribePattern", model.Acl("#", 0, allow=True))
    rules = DynamicRules(State(clients={"ann": Client("ann", roles={"r": 1})}, roles={"r": role}))
    ann = rules.role_of("c", "ann")
    assert rules.may_subscribe(ann, b"$share/g/open/#")
    assert not rules.may_subscribe(ann, b"$share/g/secret/#")


def test_the_document_has_a_largest_size(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAX_FILE_BYTES", len(INITIAL.encode()))
    load(path)
    monkeypatch.setattr(document, "MAX_FILE_BYTES", len(INITIAL.encode()) - 1)
    with pytest.raises(DynamicSecurityError, match="at most"):
        load(path)


# ── unsubscribe ──────────────────────────────────────────────────────────────────────────────────────────────────────


def may_unsubscribe(acls: list[dict[str, Any]], topic_filter: str, *, by_default: bool = False) -> bool:
    state = parse(
        json.dumps(
            {
                "clients": [{"username": "u", "roles": [{"rolename": "r"}]}],
                "roles": [{"rolename": "r", "allowwildcardsubs": False, "acls": acls}],
                "defaultACLAccess": {"unsubscribe": by_default},
            }
        ).encode()
    )
    rules = DynamicRules(state)
    return rules.may_unsubscribe(rules.role_of("c", "u"), topic_filter.encode())


def test_unsubscribe_has_rules_and_a_default_access_of_its_own() -> None:
    literal = {"acltype": "unsubscribeLiteral", "topic": "a/#", "allow": True}
    pattern = {"acltype": "unsubscribePattern", "topic": "b/%u/#", "allow": True}
    denied = {"acltype": "unsubscribeLiteral", "topic": "b/u/1", "allow": False}
    subscribe = {"acltype": "subscribePattern", "topic": "#", "allow": True}
    assert may_unsubscribe([literal], "a/#")
    assert not may_unsubscribe([literal], "a/1")
    assert may_unsubscribe([pattern], "b/u/2")
    assert may_unsubscribe([pattern], "$share/g/b/u/2")
    assert not may_unsubscribe([pattern], "b/v/2")
    assert not may_unsubscribe([pattern, denied], "b/u/1", by_default=True)
    assert not may_unsubscribe([subscribe], "c")
    assert may_unsubscribe([], "c", by_default=True)
