"""Topic names and filters as a client meets them: checked before they are sent, and compared.

The broker has a tree for this; a client has one filter and one name. Invariant: what passes a check here is not
refused by a server for its form.
"""

from typing import Final

from mqttlite.wire.constants import MAX_STRING_BYTES

_SHARE: Final = "$share/"


def check_name(topic: str) -> bytes:
    """A topic name as its bytes. Raises `ValueError` for an empty one and for wildcards [MQTT-3.3.2-2]."""
    if "+" in topic or "#" in topic:
        raise ValueError(f"the topic {topic!r} has a wildcard: messages are published to one topic")
    return _check(topic, "topic")


def check_filter(topic_filter: str) -> bytes:
    """A topic filter as its bytes. Raises `ValueError` for misplaced wildcards [MQTT-4.7.1-1] [MQTT-4.7.1-2], and for
    half a shared subscription [MQTT-4.8.2-1] [MQTT-4.8.2-2]."""
    levels = topic_filter.split("/")
    if topic_filter.startswith(_SHARE):
        name, _slash, shared = topic_filter[len(_SHARE) :].partition("/")
        if not name or not shared or "+" in name or "#" in name:
            raise ValueError(f"the topic filter {topic_filter!r} is not valid: a shared one is $share/name/filter")
    for level in levels:
        if len(level) > 1 and ("+" in level or "#" in level):
            raise ValueError(f"the topic filter {topic_filter!r} is not valid: + and # stand for whole levels")
    if "#" in levels[:-1]:
        raise ValueError(f"the topic filter {topic_filter!r} is not valid: # may only be the last level")
    return _check(topic_filter, "topic filter")


def _check(text: str, what: str) -> bytes:
    if not text:
        raise ValueError(f"the {what} is empty")
    if "\0" in text:
        raise ValueError(f"the {what} {text!r} contains U+0000, which MQTT does not allow")
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the {what} {text!r} is not text that UTF-8 can hold") from None
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(f"the {what} has {len(raw)} bytes: MQTT allows {MAX_STRING_BYTES}")
    return raw


def matches(topic_filter: str, topic: str) -> bool:
    """Whether the filter takes the topic; wildcards do not reach `$` topics [MQTT-4.7.2-1].

    The share of `$share/name/filter` is ignored.
    """
    if topic_filter.startswith(_SHARE):
        topic_filter = topic_filter[len(_SHARE) :].partition("/")[2]
    if topic.startswith("$") and topic_filter[:1] in ("+", "#"):
        return False
    wanted, levels = topic_filter.split("/"), topic.split("/")
    for at, level in enumerate(wanted):
        if level == "#":
            return True
        if at == len(levels) or level not in ("+", levels[at]):
            return False
    return len(wanted) == len(levels)
