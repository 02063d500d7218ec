"""Who wrote a retained message, so that the rules can be asked again when it is to be sent.

A session that subscribes gets only retained messages whose writers may still publish to their topics, as with
`check_retain_source` of Mosquitto. Invariant: a client has one writer as long as its user stays the same, so that its
messages share it.
"""

from typing import Final, final

from mqttlite.core.memory import WRITER_BYTES, Holdable, text_bytes


@final
class Writer(Holdable):
    """The identity of a client. `role` and `rules` are those of `Source`."""

    __slots__ = ("client_id", "role", "rules", "username")

    def __init__(self, client_id: str, username: str | None) -> None:
        super().__init__(WRITER_BYTES + text_bytes(client_id) + (0 if username is None else text_bytes(username)))
        self.client_id: Final = client_id
        self.username: Final = username
        self.role: int = 0
        self.rules: int = 0
