"""A subscription as it was made: who, which filter, with which options (5.0 §3.8.3.1)."""

from typing import Final, final


@final
class Subscription:
    """Compared by identity: subscribing again makes another. `identifier` is 0 where none was given."""

    __slots__ = ("client_id", "identifier", "no_local", "qos", "retain_as_published", "topic_filter")

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
        self.qos: Final = qos
        self.no_local: Final = no_local
        self.retain_as_published: Final = retain_as_published
        self.identifier: Final = identifier
