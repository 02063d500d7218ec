"""The catalogue as an AsyncAPI 3.0 document: channels, messages with their schemas, and the servers.

The application that it describes is the broker: it receives what clients publish, and sends it to subscribers.
Invariant: every `$ref` in it leads to a place in it.
"""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple

from mqttlite.catalogue.entries import Entry, Lookup, SchemaEntry
from mqttlite.config import Config

ASYNCAPI: Final = "3.0.0"

DRAFT_7: Final = ("http://json-schema.org/draft-07/schema", "https://json-schema.org/draft-07/schema")
"""The draft that AsyncAPI assumes of schemas; so does this package of schemas that name none."""

AVRO_FORMAT: Final = "application/vnd.apache.avro;version=1.9.0"

_PROTOCOLS: Final = {"tcp": "mqtt", "tls": "secure-mqtt", "ws": "ws", "wss": "wss"}

_CONTENT_TYPES: Final = {"JSON": "application/json", "AVRO": "application/vnd.apache.avro"}

Json = Any


class Server(NamedTuple):
    """Where clients connect."""

    name: str
    host: str
    """With its port."""
    protocol: str
    path: str = ""


def servers_of(config: Config) -> list[Server]:
    """The listeners, but those on Unix sockets. A listener on all addresses is named as `localhost`."""
    found = []
    for name, listener in zip(config.listener_names(), config.listeners, strict=True):
        if listener.path is not None:
            continue
        host = "localhost" if listener.host in ("", "0.0.0.0", "::") else listener.host
        shown = f"[{host}]" if ":" in host else host
        websocket = listener.websocket_options()
        path = "" if websocket is None else str(PurePosixPath("/", websocket.path))
        found.append(Server(name, f"{shown}:{listener.port}", _PROTOCOLS[listener.transport()], path))
    return found


def document(entries: Sequence[Entry], schemas: Lookup, servers: Iterable[Server], *, title: str, version: str) -> Json:
    """The document, to be written as JSON."""
    made = _Document(schemas)
    for entry in entries:
        made.add(entry)
    found: dict[str, Json] = {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": title,
            "version": version,
            "description": "An MQTT broker, which receives what clients publish and sends it to subscribers.",
        },
        "defaultContentType": "application/octet-stream",
        "servers": _servers(servers),
        "channels": made.channels,
        "operations": made.operations,
        "components": {"messages": made.messages, "schemas": made.schemas},
    }
    return found


def _servers(servers: Iterable[Server]) -> dict[str, Json]:
    found: dict[str, Json] = {}
    for each in servers:
        server = {"host": each.host, "protocol": each.protocol, "protocolVersion": "5.0"}
        if each.path:
            server["pathname"] = each.path
        found[_key(each.name, found)] = server
    return found


class _Document:
    """The parts of a document, as far as they are made."""

    def __init__(self, schemas: Lookup) -> None:
        self._text: Final = schemas.text
        self.channels: Final[dict[str, Json]] = {}
        self.operations: Final[dict[str, Json]] = {}
        self.messages: Final[dict[str, Json]] = {}
        self.schemas: Final[dict[str, Json]] = {}

    def add(self, entry: Entry) -> None:
        key = _key(entry.topics, self.channels)
        address, parameters = _address(entry.topics)
        message = self._message(entry, key)
        channel: dict[str, Json] = {
            "address": address,
            "title": entry.topics,
            "messages": {message: {"$ref": f"#/components/messages/{message}"}},
            "x-mqtt-topic-filter": entry.topics,
            "x-mqttlite": {
                "access": entry.access,
                "class": entry.topic_class,
                "max_payload_bytes": entry.max_payload_bytes,
                "owner": entry.owner,
                "schema": entry.schema,
            },
        }
        if entry.description:
            channel["description"] = entry.description
        if parameters:
            channel["parameters"] = parameters
        if entry.owner:
            channel["tags"] = [{"name": f"owner:{entry.owner}"}]
        self.channels[key] = channel
        bindings: dict[str, Json] = {"qos": entry.max_qos, "bindingVersion": "0.2.0"}
        if entry.ttl_s:
            bindings["messageExpiryInterval"] = entry.ttl_s
        for action, verb in (("receive", "publish"), ("send", "subscribe")):
            self.operations[f"{verb}-{key}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{key}"},
                "title": f"Clients {verb} to {entry.topics}",
                "messages": [{"$ref": f"#/channels/{key}/messages/{message}"}],
                "bindings": {"mqtt": bindings},
            }

    def _message(self, entry: Entry, key: str) -> str:
        """The name of the message of an entry: topics with one schema have one."""
        used = entry.schema_in_use
        if used is None:
            self.messages[key] = {"name": key, "title": f"A message of {entry.topics}"}
            return key
        name = f"schema-{used.id}"
        if name not in self.messages:
            self.messages[name] = {
                "name": name,
                "title": f"{used.subject}:{used.version}",
                "contentType": _CONTENT_TYPES[used.type],
                "payload": self._payload(used, name),
            }
        return name

    def _payload(self, schema: SchemaEntry, name: str) -> Json:
        text = self._text(schema.id)
        tree = json.loads(text)
        if schema.type == "AVRO":
            return {"schemaFormat": AVRO_FORMAT, "schema": tree}
        if not isinstance(tree, dict):
            return tree
        if str(tree.get("$schema", DRAFT_7[0])).rstrip("#") not in DRAFT_7 or not _is_local(tree):
            return {"x-json-schema": text}  # a text, for a parser would follow its references
        at = f"#/components/schemas/{name}"
        self.schemas[name] = _moved({key: value for key, value in tree.items() if key not in ("$schema", "$id")}, at)
        return {"$ref": at}


def _address(topic_filter: str) -> tuple[str, dict[str, Json]]:
    """A topic filter as an address with parameters."""
    parameters: dict[str, Json] = {}
    levels = []
    for number, level in enumerate(topic_filter.split("/"), 1):
        if level == "+":
            name = f"level{number}"
            parameters[name] = {"description": "One level of the topic."}
        elif level == "#":
            name = "rest"
            parameters[name] = {"description": "The rest of the topic: any number of levels, or none."}
        else:
            levels.append(re.sub(r"[{}]", "_", level))
            continue
        levels.append(f"{{{name}}}")
    return "/".join(levels), parameters


def _key(text: str, taken: dict[str, Json]) -> str:
    """A name for a part of the document, made of letters, digits, points and dashes."""
    words = text.replace("#", "all").replace("+", "any")
    key = plain = re.sub(r"[^A-Za-z0-9._-]+", "-", words).strip("-")[:100] or "topic"
    number = 1
    while key in taken:
        number += 1
        key = f"{plain}-{number}"
    return key


def _is_local(tree: Json) -> bool:
    """Whether all references are to places in the schema, by their path."""
    if isinstance(tree, list):
        return all(_is_local(each) for each in tree)
    if not isinstance(tree, dict):
        return True
    reference = tree.get("$ref")
    if isinstance(reference, str) and reference != "#" and not reference.startswith("#/"):
        return False
    return all(_is_local(each) for each in tree.values())


def _moved(tree: Json, at: str) -> Json:
    """A schema whose root is at another place than that of the document."""
    if isinstance(tree, list):
        return [_moved(each, at) for each in tree]
    if not isinstance(tree, dict):
        return tree
    moved = {key: _moved(value, at) for key, value in tree.items()}
    if isinstance(moved.get("$ref"), str):
        moved["$ref"] = at + moved["$ref"][1:]
    return moved
