"""The file of topics: what is written is loaded, a change writes one topic, and what a crash left does not count."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mqttlite.security import topic_file
from mqttlite.security.topic_file import TopicFile, line_of, line_without, load, save
from mqttlite.security.topic_records import TopicFileError, TopicRecord


def topic(number: int, **values: Any) -> TopicRecord:
    return TopicRecord(topic_id=f"t-{number}", name=f"a/{number}", created_at=1.0, **values)


def test_a_change_writes_one_topic(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    topics = {f"t-{number}": topic(number) for number in range(1_000)}
    file = TopicFile(path)
    file.write(line_of(topics["t-999"]), list(topics.values()))
    before = path.stat()
    assert before.st_mode & 0o777 == 0o600
    for number, text in enumerate(("one", "two", "three")):
        topics[f"t-{number}"] = changed = topic(number, description=text)
        file.write(line_of(changed), list(topics.values()))
    del topics["t-7"]
    file.write(line_without("t-7"), list(topics.values()))
    after = path.stat()
    assert after.st_ino == before.st_ino, "it was not replaced"
    assert after.st_size - before.st_size < 1_000
    assert load(path) == list(topics.values())


def test_a_file_that_has_grown_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_file, "MAX_OUTDATED_BYTES", 1_000)
    path = tmp_path / "topics.json"
    file = TopicFile(path)
    for number in range(200):
        changed = topic(1, description=str(number))
        file.write(line_of(changed), [changed])
        assert load(path) == [changed]
        assert path.stat().st_size < 1_500


@pytest.mark.long
def test_half_a_line_does_not_count_and_is_gone_with_the_next_change(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    save(path, [topic(1)])
    whole = path.read_bytes()
    second = line_of(topic(2))
    for cut in range(len(second)):
        path.write_bytes(whole + second[:cut])
        assert load(path) == [topic(1)], cut
        TopicFile(path).write(line_of(topic(3)), [topic(1), topic(3)])
        assert load(path) == [topic(1), topic(3)], cut


def test_a_line_that_the_disk_does_not_take_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "topics.json"
    file = TopicFile(path)
    file.write(line_of(topic(1)), [topic(1)])
    with monkeypatch.context() as patch:

        def fail(descriptor: int) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="Input"):
            file.write(line_of(topic(2)), [topic(1), topic(2)])
    assert load(path) == [topic(1)]
    file.write(line_of(topic(3)), [topic(1), topic(3)])
    assert load(path) == [topic(1), topic(3)]


def test_a_file_of_another_writer_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    file = TopicFile(path)
    file.write(line_of(topic(1)), [topic(1)])
    path.write_text("other")
    file.write(line_of(topic(2)), [topic(1), topic(2)])
    assert load(path) == [topic(1), topic(2)]
    path.unlink()
    file.write(line_of(topic(3)), [topic(3)])
    assert load(path) == [topic(3)]


def test_a_file_of_an_earlier_version_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    content = msgspec.json.encode({"version": 1, "topics": [topic(1), topic(2)]})
    for text in (content, content + b"\n", msgspec.json.format(content, indent=2)):
        path.write_bytes(text)
        assert load(path) == [topic(1), topic(2)]
    assert load(tmp_path / "none") == load(None) == []


BROKEN = (
    b"{",
    b"",
    b"[" * 100_000,
    b'{"version":3}\n',
    b'{"topics":[{"topic_id":"t","name":"#","created_at":0}]}',
    b'{"version":1,"topics":[{"topic_id":"t","name":"#","created_at":0}]}',
    b'{"version":2}\n{"topic":{"topic_id":"t","name":"#","created_at":0}}\n',
    b'{"version":2}\n\n',
    b'{"version":2}\n' + b"[" * 100_000 + b"\n",
    b"\xff",
)


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_the_error_of_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "topics.json"
    path.write_bytes(content)
    with pytest.raises(TopicFileError, match="is no file of topics"):
        load(path)


def test_topics_that_are_there_twice_and_files_that_are_too_large_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"
    twins = [topic(1), msgspec.structs.replace(topic(2), name="a/1")]
    path.write_bytes(b'{"version":2}\n' + b"".join(map(line_of, twins)))
    with pytest.raises(TopicFileError, match="the topic a/1 2 times"):
        load(path)
    monkeypatch.setattr(topic_file, "MAX_FILE_BYTES", 10)
    with pytest.raises(TopicFileError, match="larger than 10 bytes"):
        load(path)
