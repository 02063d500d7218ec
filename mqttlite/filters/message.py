"""The input of a filter: any object with these attributes, for example the broker's message."""

from dataclasses import dataclass
from typing import Protocol

from mqttlite.wire.properties import NONE, Properties


class Filterable(Protocol):
    """A message. Its attributes are the user properties."""

    @property
    def topic(self) -> bytes: ...

    @property
    def payload(self) -> bytes: ...

    @property
    def qos(self) -> int: ...

    @property
    def retain(self) -> bool: ...

    @property
    def properties(self) -> Properties: ...


@dataclass(frozen=True, slots=True)
class Fields:
    """A plain message for filters."""

    topic: bytes = b""
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE
