"""The file of API keys: what is kept of a key, who may have one for how long, and what a broken file does."""

import logging
import stat
from pathlib import Path

import pytest

from mqttlite.security import api_keys
from mqttlite.security.api_keys import PREFIX, ApiKeyFileError, ApiKeys, add, load, revoke


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def keys_of(path: Path | None, clock: Clock, wall: float = 2_000_000_000.0) -> ApiKeys:
    return ApiKeys(path, clock=clock, wall=lambda: wall)


def test_the_file_holds_no_key_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "data" / "keys.json"
    secret, entry = add(path, "admin", "ann", None, "for tests")
    assert secret.startswith(PREFIX)
    assert secret[len(PREFIX) :] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load(path) == [entry]
    assert keys_of(path, Clock()).find(secret) == entry
    assert keys_of(path, Clock()).find(secret + "x") is None


def test_without_a_file_there_are_no_keys(tmp_path: Path) -> None:
    assert keys_of(None, Clock()).find("mqk_x") is None
    assert keys_of(tmp_path / "none", Clock()).find("mqk_x") is None
    assert not revoke(tmp_path / "none", "x")


def test_a_change_is_seen_after_half_a_second(tmp_path: Path) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    secret, entry = add(path, "viewer", None, None)
    keys = keys_of(path, clock)
    assert len(keys) == 1
    assert revoke(path, entry.id)
    assert keys.find(secret) == entry
    clock.now += api_keys.LOOK_S
    assert keys.find(secret) is None


@pytest.mark.parametrize(("wall", "is_good"), [(99.0, True), (100.0, False)])
def test_a_key_expires(tmp_path: Path, wall: float, is_good: bool) -> None:
    secret, _ = add(tmp_path / "keys.json", "viewer", None, 100)
    assert (keys_of(tmp_path / "keys.json", Clock(), wall).find(secret) is not None) is is_good


def test_a_file_that_breaks_is_logged_and_the_former_keys_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, clock = tmp_path / "keys.json", Clock()
    secret, entry = add(path, "viewer", None, None)
    keys = keys_of(path, clock)
    path.write_text("{")
    clock.now += 1
    with caplog.at_level(logging.ERROR):
        assert keys.find(secret) == entry
    assert "the API keys stay as they were" in caplog.text


@pytest.mark.parametrize("content", ["{", '{"version":2,"keys":[]}', '{"keys":[{}]}', "\xff"])
def test_a_broken_file_is_an_error_and_is_not_written_over(tmp_path: Path, content: str) -> None:
    path = tmp_path / "keys.json"
    path.write_text(content, encoding="latin-1")
    for act in (lambda: load(path), lambda: add(path, "user", None, None), lambda: revoke(path, "x")):
        with pytest.raises(ApiKeyFileError, match=r"keys\.json"):
            act()
    assert path.read_text(encoding="latin-1") == content


def test_a_file_has_so_many_keys_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MAX_KEYS", 1)
    add(tmp_path / "keys.json", "user", None, None)
    with pytest.raises(ApiKeyFileError, match="revoke some"):
        add(tmp_path / "keys.json", "user", None, None)


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "MAX_FILE_BYTES", 10)
    (tmp_path / "keys.json").write_text(" " * 11)
    with pytest.raises(ApiKeyFileError, match="larger than 10 bytes"):
        load(tmp_path / "keys.json")
