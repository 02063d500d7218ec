"""The namespaces of topics of all extensions."""

from typing import Final

from mqttlite.extensions.built_in import BUILT_IN, resolve
from mqttlite.topics.names import check_filter
from mqttlite.topics.namespaces import ORDINARY, Namespaces, unavailable
from mqttlite.wire.errors import TopicFilterInvalid

_RESERVED: Final = {
    b"$delayed": "$delayed/…: this broker has no delayed messages",
    b"$dlq": "$dlq/…: this broker has no queues",
    b"$queue": "$queue/…: this broker has no queues",
    b"$stream": "$stream/…: this broker has no streams",
}
"""The refusals of namespaces that no extension serves. They are never treated as ordinary topics."""


def _made() -> Namespaces:
    served = [resolve(each) for manifest in BUILT_IN.values() for each in manifest.namespaces]
    known = {syntax.first_level for syntax in served}.union(*(each.first_levels for each in BUILT_IN.values()))
    return Namespaces(
        [*served, *(unavailable(level, refusal) for level, refusal in _RESERVED.items() if level not in known)]
    )


NAMESPACES: Final = _made()


def check_plain_filter(topic_filter: str, rule: str) -> None:
    """Raises `ValueError` for an invalid filter, and with `rule` for one whose first level is reserved."""
    raw = topic_filter.encode()
    try:
        check_filter(raw)
        is_ordinary = NAMESPACES.parse_filter(raw).namespace == ORDINARY
    except TopicFilterInvalid as error:
        raise ValueError(f"filters: {error}") from None
    if not is_ordinary:
        raise ValueError(f"filters: {topic_filter!r} begins with a reserved name; {rule}")
