"""Converts CloudEvents between HTTP and MQTT 5.0, in both modes of both bindings (CloudEvents 1.0.2).

In binary mode the payload is the event's data and the attributes are headers `ce-…`, and user properties of MQTT; in
structured mode the payload is the whole event in JSON. The mode stays what it was. Invariant: an event that comes in
over HTTP has the attributes that every event has.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from mqttlite.gateway.problems import Code, Problem
from mqttlite.wire.properties import Properties

STRUCTURED: Final = "application/cloudevents+json"

REQUIRED: Final = ("specversion", "id", "source", "type")

MAX_ATTRIBUTES: Final = 100
"""Of one event; those of the specification are ten."""

_PREFIX: Final = "ce-"


def is_event(headers: Mapping[str, str]) -> bool:
    """Whether a request holds an event."""
    return "ce-specversion" in headers or is_structured(headers.get("content-type"))


def is_structured(content_type: str | None) -> bool:
    return content_type is not None and content_type.partition(";")[0].strip().lower() == STRUCTURED


def properties_of(headers: Mapping[str, str], body: bytes) -> Properties:
    """The properties of the message for an event whose payload is the body. Raises `Problem`."""
    content_type = headers.get("content-type")
    if is_structured(content_type):
        try:
            event: dict[str, Any] = msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.ValidationError as error:
            raise Problem(Code.INVALID_VALUE, f"the CloudEvent is no JSON object: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(Code.BAD_REQUEST, f"the CloudEvent is no JSON: {error}") from None
        _check(event)
        return Properties(content_type=content_type)
    attributes = [
        (name[len(_PREFIX) :], unquote(value, errors="replace"))
        for name, value in headers.items()
        if name.startswith(_PREFIX)
    ]
    if len(attributes) > MAX_ATTRIBUTES:
        raise Problem(Code.INVALID_VALUE, f"a CloudEvent with {len(attributes)} attributes: {MAX_ATTRIBUTES} at most")
    _check(dict(attributes))
    return Properties(content_type=content_type, user_properties=attributes)


def headers_of(properties: Properties) -> Iterable[tuple[str, str]]:
    """The headers `ce-…` of a message that is an event in binary mode; none for another."""
    names = {name for name, _ in properties.user_properties}
    if is_structured(properties.content_type) or not names.issuperset(REQUIRED):
        return ()
    return [
        (f"{_PREFIX}{name}", quote(value, safe=_UNQUOTED))
        for name, value in properties.user_properties
        if name.isascii() and name.isalnum()
    ]


_UNQUOTED: Final = "!#$&'()*+,-./:;<=>?@[]^_`{|}~"
"""Printable characters that the HTTP binding does not percent-encode: all but space, quotes and percent signs."""


def _check(event: Mapping[str, Any]) -> None:
    missing = [name for name in REQUIRED if not isinstance(event.get(name), str) or not event[name]]
    if missing:
        raise Problem(Code.INVALID_VALUE, f"the CloudEvent has no {', '.join(missing)}")
