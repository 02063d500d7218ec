"""A subscription as it was made: who, which filter, with which options (5.0 §3.8.3.1)."""

from typing import Final, final

from mqttlite.topics.namespaces import SHARED, parse_filter

_NO_LOCAL: Final = 4
_RETAIN_AS_PUBLISHED: Final = 8
_IDENTIFIER_SHIFT: Final = 4


@final
class Subscription:
    """Compared by identity: subscribing again makes another. `identifier` is 0 where none was given.

    There may be millions: all that is small is in one number.
    """

    __slots__ = ("_options", "client_id", "share_name", "topic_filter")

    def __init__(
        self,
        client_id: str,
        topic_filter: bytes,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        identifier: int = 0,
    ) -> None:
        self.client_id: Final = client_id
        self.topic_filter: Final = topic_filter
        options = qos | identifier << _IDENTIFIER_SHIFT
        if no_local:
            options |= _NO_LOCAL
        if retain_as_published:
            options |= _RETAIN_AS_PUBLISHED
        self._options: Final = options
        parsed = parse_filter(topic_filter)
        self.share_name: Final = parsed.name if parsed.namespace == SHARED else b""
        """Of a shared subscription; empty for any other."""

    @property
    def filter(self) -> bytes:
        """The filter that topic names are compared with: of a shared subscription what is behind its share name."""
        return self.topic_filter[len(b"$share//") + len(self.share_name) :] if self.share_name else self.topic_filter

    @property
    def qos(self) -> int:
        return self._options & 3

    @property
    def no_local(self) -> bool:
        return self._options & _NO_LOCAL != 0

    @property
    def retain_as_published(self) -> bool:
        return self._options & _RETAIN_AS_PUBLISHED != 0

    @property
    def identifier(self) -> int:
        return self._options >> _IDENTIFIER_SHIFT
