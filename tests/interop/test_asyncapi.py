"""AsyncAPI's own parser reads our document."""

import json
import subprocess

import pytest

from mqttlite.catalogue.asyncapi import document, servers_of
from mqttlite.catalogue.entries import catalogue
from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.schemas.registry import Registry
from tests.interop.support import JS
from tests.unit.catalogue.test_catalogue import ANCHORED, AVRO, MADE, NEWER, ORDER, POLICIES, registry_of

pytestmark = pytest.mark.slow

WARNING = 1
"""Below it is an error."""


def parsed(node: str, text: str) -> dict[str, object]:
    done = subprocess.run(
        [node, str(JS / "asyncapi.mjs")], input=text, capture_output=True, text=True, timeout=60, check=True
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_it_finds_no_errors(node: str) -> None:
    registry = registry_of(orders=ORDER, newer=NEWER, anchored=ANCHORED, avro=AVRO)
    names = [name for name in registry.subjects if name != "orders"]
    policies = [*POLICIES, *(type(POLICIES[0])(prefix=name, schema=name) for name in names)]
    config = Config(listeners=(ListenerOptions(), ListenerOptions(port=8083, websocket=True)))
    entries = catalogue(policies, [MADE], registry)
    found = document(entries, registry, servers_of(config), title="Shop", version="1.0.0")
    answer = parsed(node, json.dumps(found))
    assert answer["valid"], answer["found"]
    errors = [each for each in answer["found"] if each["severity"] < WARNING]  # type: ignore[attr-defined]
    assert errors == []
    assert answer["channels"] == [each["address"] for each in found["channels"].values()]


def test_it_notices_a_fault(node: str) -> None:
    found = document((), Registry(), (), title="Shop", version="1.0.0")
    found["channels"] = {"a": {"address": 3}}
    assert not parsed(node, json.dumps(found))["valid"]
