"""The text of an ACL file: what Mosquitto's manual says of it, and what is said of wrong lines."""

from pathlib import Path

import pytest

from mqttlite.security import acl_file
from mqttlite.security.acl_file import AclFile, AclFileError, AclFileUnreadable, load, parse
from mqttlite.security.rule_tree import DENY, READ, WRITE, Rule

BOTH = READ | WRITE


def read(text: str) -> AclFile:
    return parse(text.split("\n"), "acl.conf")


@pytest.mark.parametrize(
    ("line", "access", "topic_filter"),
    [
        ("topic a/b", BOTH, b"a/b"),
        ("topic read a/b", READ, b"a/b"),
        ("topic write a/+/b", WRITE, b"a/+/b"),
        ("topic readwrite #", BOTH, b"#"),
        ("topic deny a/#", DENY, b"a/#"),
        ("  topic   read   a  ", READ, b"a"),
        ("topic\tread\ta", READ, b"a"),
        ("topic read a b/c d", READ, b"a b/c d"),
        ("topic read", BOTH, b"read"),
        ("topic read é/ü", READ, "é/ü".encode()),
        ("topic read a # no comment/b", None, b""),
        ("topic read $SYS/#", READ, b"$SYS/#"),
        ("topic read a\r", READ, b"a"),
    ],
)
def test_a_topic_line_has_an_access_and_a_filter(line: str, access: int | None, topic_filter: bytes) -> None:
    if access is None:
        with pytest.raises(AclFileError, match="'#' in"):
            read(line)
    else:
        assert read(line).anonymous == [Rule(1, access, topic_filter)]


def test_sections_and_patterns() -> None:
    found = read(
        "# a comment\n"
        "topic read news\n"
        "\n"
        "user bob the builder\n"
        "topic a\n"
        "pattern write s/%u/%c\n"
        "group staff\n"
        "topic b\n"
        "user ann\n"
        "topic c\n"
        "user bob the builder\n"
        "topic d"
    )
    assert found.anonymous == [Rule(2, READ, b"news")]
    assert found.users == {
        "bob the builder": [Rule(5, BOTH, b"a"), Rule(12, BOTH, b"d")],
        "ann": [Rule(10, BOTH, b"c")],
    }
    assert found.groups == {"staff": [Rule(8, BOTH, b"b")]}
    assert found.patterns == [Rule(6, WRITE, b"s/%u/%c")]
    assert len(found) == 6


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("topics read a", "'topics' begins no rule; did you mean topic?"),
        ("User ann", "'User' begins no rule; did you mean user?"),
        ("read a/b", "'read' begins no rule; write topic read a/b"),
        ("allow all", "a line begins with topic, pattern, user or group"),
        (" # a comment", "a comment with # as its first character"),
        ("topic", "topic without a topic; write topic [read|write|readwrite|deny] <topic filter>"),
        ("pattern", "pattern without a topic"),
        ("user", "user without a name; write user <name>"),
        ("group  ", "group without a name"),
        ("topic reed a", "'reed' is no access; it is one of read, write, readwrite, deny"),
        ("topic my room/1", "needs one: topic readwrite my room/1"),
        ("topic read a/#/b", "'#' in 'a/#/b' is not a whole last level"),
        ("topic read a+", "'+' in 'a+' is not a whole level"),
        ("topic read $share/g/a", "name the filter behind the share name"),
        ("topic read a\0b", "the topic has a control character U+0000"),
        ("topic read a\rtopic deny b", "U+000D"),
        ("user ann\u2028topic deny a", "the user has a control character U+2028"),
        ("user ann\x0ctopic deny a", "U+000C"),
        ("topic deny\u00a0a/b", "'deny\\xa0a/b' has a blank U+00A0: write an ordinary blank or a tab"),
    ],
)
def test_a_wrong_line_is_named_and_mended(line: str, said: str) -> None:
    with pytest.raises(AclFileError) as caught:
        read(f"user ann\n{line}\ntopic a")
    [problem] = caught.value.problems
    assert problem.startswith("acl.conf:2: ")
    assert said in problem


@pytest.mark.parametrize("line", ["topic reed \x1b[2J", "\x1b[2J", "read \x1b[2J a"])
def test_a_wrong_line_is_named_without_its_control_characters(line: str) -> None:
    with pytest.raises(AclFileError, match=r"x1b\[2J") as caught:
        read(line)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("line", ["topic reed " + "x" * 60_000, "topic " + "y" * 60_000 + " a", "topic " + "a/" * 9000])
def test_a_long_wrong_line_is_named_in_short(line: str) -> None:
    with pytest.raises(AclFileError) as caught:
        read(line)
    assert len(str(caught.value)) < 1_200


def test_all_wrong_lines_are_told_of_up_to_a_limit() -> None:
    with pytest.raises(AclFileError) as caught:
        read("a\n" * 50)
    assert len(caught.value.problems) == acl_file.MAX_PROBLEMS


@pytest.mark.parametrize(("limit", "is_right"), [(3, True), (2, False)])
def test_the_number_of_rules_is_limited(monkeypatch: pytest.MonkeyPatch, limit: int, is_right: bool) -> None:
    monkeypatch.setattr(acl_file, "MAX_RULES", limit)
    text = "topic a\nuser b\ntopic c\npattern %u"
    if is_right:
        assert len(read(text)) == 3
    else:
        with pytest.raises(AclFileError, match=r"acl\.conf:4: there are more than 2 rules"):
            read(text)


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "acl.conf"
    path.write_bytes(b"\xef\xbb\xbftopic read a\r\nuser ann\r\ntopic b\r\n")
    found = load(path)
    assert found.anonymous == [Rule(1, READ, b"a")]
    assert found.users == {"ann": [Rule(3, BOTH, b"b")]}


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "acl.conf"
    with pytest.raises(AclFileUnreadable, match="No such file"):
        load(path)
    path.write_bytes(b"topic a\ntopic \xff\n")
    with pytest.raises(AclFileError, match=r"acl\.conf:2: it is not UTF-8"):
        load(path)
    monkeypatch.setattr(acl_file, "MAX_FILE_BYTES", 3)
    with pytest.raises(AclFileError, match="more than 3 bytes"):
        load(path)
