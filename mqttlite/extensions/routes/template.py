"""A topic with fields of a message in braces, such as `regions/{payload.region}/{topic[1]}`.

Fields are those of filters (docs/reference/filters.md). Invariant: what `fill` returns is a topic name, and no value
makes more than one level of it.
"""

import re
from typing import Final

from mqttlite.filters.json_payload import at_path
from mqttlite.topics.names import check_name
from mqttlite.wire.errors import TopicNameInvalid
from mqttlite.wire.properties import Properties

_FIELD: Final = re.compile(r"\{([^{}]*)\}")
_TOPIC: Final = re.compile(r"topic(?:\[(\d{1,4})\])?")
_ATTRIBUTE: Final = re.compile(r"attributes\.([\w-]+)")
_PAYLOAD: Final = re.compile(r"payload(?:\.[^\W\d][\w-]*|\[\d{1,6}\])+")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class Unfilled(ValueError):
    """A message does not have what the template needs; says what."""


class Template:
    """Raises `ValueError` for a text that is none."""

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self._parts: Final[list[str | _Field]] = []
        end = 0
        for found in _FIELD.finditer(text):
            self._parts.extend((text[end : found.start()], _Field(found[1])))
            end = found.end()
        self._parts.append(text[end:])
        plain = "".join(each for each in self._parts if isinstance(each, str))
        if "{" in plain or "}" in plain:
            raise ValueError(f"{text!r} has a brace without its other one")
        try:
            check_name(_FIELD.sub("x", text).encode())
        except (TopicNameInvalid, UnicodeEncodeError) as error:
            raise ValueError(f"{text!r} is no topic to publish to: {error}") from None
        if text.startswith("$"):
            raise ValueError(f"{text!r} begins with $: routes send to plain topics")

    def fill(self, topic: str, payload: bytes, properties: Properties) -> str:
        """The topic for a message. Raises `Unfilled`."""
        filled = "".join(
            each if isinstance(each, str) else each.value(topic, payload, properties) for each in self._parts
        )
        try:
            check_name(filled.encode())
        except TopicNameInvalid as error:
            raise Unfilled(f"{filled[:200]!r} is no topic: {error}") from None
        if filled.startswith("$"):
            raise Unfilled(f"{filled[:200]!r} begins with $")
        return filled


class _Field:
    """One field. Raises `ValueError` for text that names none."""

    def __init__(self, text: str) -> None:
        self._text: Final = text
        self._level: int | None = None
        self._attribute = ""
        self._path: tuple[str | int, ...] = ()
        self._is_topic = False
        if (topic := _TOPIC.fullmatch(text)) is not None:
            self._is_topic = True
            self._level = None if topic[1] is None else int(topic[1])
        elif (attribute := _ATTRIBUTE.fullmatch(text)) is not None:
            self._attribute = attribute[1]
        elif _PAYLOAD.fullmatch(text) is not None:
            self._path = tuple([name or int(index) for name, index in _STEP.findall(text)])
        else:
            example = "{topic}, {topic[0]}, {payload.region}, {payload.items[0].id} or {attributes.region}"
            raise ValueError(f"{{{text}}} is no field of a message: write {example}")

    def value(self, topic: str, payload: bytes, properties: Properties) -> str:
        """Its text for a message. Raises `Unfilled`."""
        if self._is_topic:
            if self._level is None:
                return topic
            levels = topic.split("/")
            if self._level >= len(levels):
                raise Unfilled(f"there is no {self._text}: the topic has {len(levels)} levels")
            return self._one_level(levels[self._level])
        if self._attribute:
            for name, value in properties.user_properties:
                if name == self._attribute:
                    return self._one_level(value)
            raise Unfilled(f"there is no {self._text}")
        found = at_path(payload, self._path)
        if isinstance(found, bool):
            return "true" if found else "false"
        if isinstance(found, str | int | float):
            return self._one_level(str(found))
        raise Unfilled(f"there is no {self._text} that is text or a number")

    def _one_level(self, value: str) -> str:
        if not value or any(each in value for each in "/+#\0"):
            raise Unfilled(f"{self._text} is {value[:100]!r}, which is no level of a topic")
        return value
