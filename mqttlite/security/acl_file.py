"""The ACL file: which topics users, groups and anonymous clients may read and write, in Mosquitto's syntax.

    topic read news/#                      for anonymous clients, before the first user or group
    user alice
    topic readwrite plant/hall-1/#
    topic deny plant/hall-1/secret
    group operators
    topic read plant/#
    pattern write sensors/%u/%c/data       for all clients, wherever it stands

This module only parses the text; `rules` decides with it. Invariant: a file with one wrong line gives no rules at all.
"""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, final

from mqttlite.security.one_line import one_line
from mqttlite.security.rule_tree import DENY, READ, WRITE, Rule
from mqttlite.topics.names import check_filter
from mqttlite.wire.errors import TopicFilterInvalid

MAX_RULES: Final = 250_000
"""A rule takes some 800 bytes, and 100,000 load in a second. Use groups and patterns instead of more rules."""

MAX_FILE_BYTES: Final = 64 * 1_048_576
"""More than `MAX_RULES` rules of usual length. Protects the memory from a wrong file."""

MAX_PROBLEMS: Final = 20
"""The most wrong lines to report: in a file of another kind all lines are wrong."""

_ACCESS: Final = {"read": READ, "write": WRITE, "readwrite": READ | WRITE, "deny": DENY}
_WORDS: Final = ("topic", "pattern", "user", "group")
_BLANKS: Final = " \t\r\n\v\f"
_GAP: Final = re.compile("[ \t]+")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class AclFileError(ValueError):
    """An unusable ACL file. Each of `problems` names the line and says what would be right."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems: Final = problems


class AclFileUnreadable(AclFileError):
    """The file cannot be read, so its content is unknown. Another attempt may succeed."""


@final
class AclFile:
    """The rules of a file, in its order."""

    __slots__ = ("anonymous", "groups", "path", "patterns", "users")

    def __init__(self, path: str) -> None:
        self.path: Final = path
        self.anonymous: Final[list[Rule]] = []
        self.users: Final[dict[str, list[Rule]]] = {}
        self.groups: Final[dict[str, list[Rule]]] = {}
        self.patterns: Final[list[Rule]] = []

    def __len__(self) -> int:
        sections = (self.anonymous, self.patterns, *self.users.values(), *self.groups.values())
        return sum(len(rules) for rules in sections)


def load(path: str | Path) -> AclFile:
    """The rules in a file. Raises `AclFileError`."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise AclFileUnreadable(f"{path}: cannot be read: {reason}") from None
    if len(content) > MAX_FILE_BYTES:
        raise AclFileError(f"{path}: it has more than {MAX_FILE_BYTES} bytes; is it an ACL file?")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = content.count(b"\n", 0, error.start) + 1
        raise AclFileError(f"{path}:{number}: it is not UTF-8") from None
    return parse(text.split("\n"), str(path))


def parse(lines: Iterable[str], path: str) -> AclFile:
    """The rules in the lines of a file. Raises `AclFileError`."""
    found = AclFile(path)
    section = found.anonymous
    problems: list[str] = []
    count = 0
    for number, line in enumerate(lines, 1):
        if line.startswith("#"):
            continue
        line = line.strip(_BLANKS)
        if not line:
            continue
        word, rest = _split(line)
        try:
            if word == "topic":
                section.append(_rule(number, word, rest))
                count += 1
            elif word == "pattern":
                found.patterns.append(_rule(number, word, rest))
                count += 1
            elif word == "user":
                section = found.users.setdefault(_name(word, rest), [])
            elif word == "group":
                section = found.groups.setdefault(_name(word, rest), [])
            else:
                raise _Wrong(_unknown(word, line))
            if count > MAX_RULES:
                raise AclFileError(f"{path}:{number}: there are more than {MAX_RULES} rules; use groups and patterns")
        except _Wrong as error:
            problems.append(f"{path}:{number}: {one_line(str(error))}")
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        raise AclFileError(*problems)
    return found


class _Wrong(ValueError):
    """The error in a line, with advice."""


def _split(text: str) -> tuple[str, str]:
    """The first word, and the rest after blanks."""
    word, *rest = _GAP.split(text, 1)
    return word, rest[0] if rest else ""


def _rule(number: int, word: str, rest: str) -> Rule:
    if not rest:
        raise _Wrong(f"{word} without a topic; write {word} [read|write|readwrite|deny] <topic filter>")
    first, topic = _split(rest)
    if not topic:
        _check_blanks(first)
        first, topic = "readwrite", first  # Mosquitto, too, takes `topic read` as a topic of that name
    access = _ACCESS.get(first)
    if access is None:
        raise _Wrong(
            f"{first!r} is no access; it is one of {', '.join(_ACCESS)}, and a topic with a blank in it needs one: "
            f"{word} readwrite {rest}"
        )
    topic_filter = topic.encode()
    if topic_filter.startswith(b"$share/"):
        raise _Wrong("$share/… is no topic; name the filter behind the share name, for rules hold for it, too")
    _check_controls("topic", topic)
    try:
        check_filter(topic_filter)
    except TopicFilterInvalid as error:
        raise _Wrong(f"{error}") from None
    return Rule(number, access, topic_filter)


def _name(word: str, rest: str) -> str:
    if not rest:
        raise _Wrong(f"{word} without a name; write {word} <name>")
    _check_controls(word, rest)
    return rest


def _check_blanks(word: str) -> None:
    """Refuse non-ASCII blanks, as editors and web pages insert them: they would make `deny` a part of the topic."""
    found = re.search(r"\s", word)
    if found is not None:
        raise _Wrong(f"{word[:80]!r} has a blank U+{ord(found[0]):04X}: write an ordinary blank or a tab")


def _check_controls(word: str, text: str) -> None:
    """Refuse control characters: some editors show one as a line end, and so could hide a rule."""
    found = _CONTROL.search(text)
    if found is not None:
        raise _Wrong(f"the {word} has a control character U+{ord(found[0]):04X}: {text[:80]!r}")


def _unknown(word: str, line: str) -> str:
    near = difflib.get_close_matches(word.lower(), _WORDS, 1)
    if near:
        remedy = f"did you mean {near[0]}?"
    elif word in _ACCESS:
        remedy = f"write topic {line[:80]}"
    else:
        remedy = "a line begins with topic, pattern, user or group, and a comment with # as its first character"
    return f"{word[:80]!r} begins no rule; {remedy}"
