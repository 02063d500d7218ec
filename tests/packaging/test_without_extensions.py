"""An extension is its folder and its line: without both the rest runs, and no longer names it.

Each test works on one copy of the package, whose sources run uncompiled.
"""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from mqttlite.config.options import OWNERS
from mqttlite.extensions.built_in import BUILT_IN
from tests.support.rounds import todays
from tests.test_architecture import ROOT

pytestmark = pytest.mark.slow

LIMIT_S: Final = 60.0

_SECONDS = itertools.count(1_000_000_000)

LOOK: Final = """
import asyncio, json, pathlib, sys, tomllib, urllib.request

import mqttlite
assert pathlib.Path(mqttlite.__file__).is_relative_to(sys.argv[1]), mqttlite.__file__

from click.testing import CliRunner

from mqttlite import Broker, Client, ListenerOptions
from mqttlite.cli.main import COMMANDS, main
from mqttlite.config import ConfigError
from mqttlite.config.default_file import default_file
from mqttlite.config.file import parse_config
from mqttlite.wire.errors import TopicNameInvalid

def read_now(url):
    try:
        return urllib.request.urlopen(url, timeout=30).read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()

async def read(url):
    return await asyncio.to_thread(read_now, url)

async def look():
    raw = {"listeners": [{"port": 0}], "http": {"port": 0}, "metrics": {"port": 0}, "data_dir": sys.argv[2]}
    async with Broker(parse_config(raw)) as broker:
        async with Client("127.0.0.1", broker.port) as client:
            await client.subscribe("a", qos=1)
            await client.publish("a", b"hello", qos=1)
            received = (await anext(client.messages)).payload.decode()
        document = json.loads(await read(broker.gateway.urls[0] + "/openapi.json"))
        url = broker.gateway.urls[0]
        pages = {path: await read(url + path) for path in ("/", "/ui/clients", "/ui/assets/page.css")}
        metrics = await read(f"http://{broker.monitor.addresses[0]}/metrics")
        refused = []
        for topic in ("$delayed/1/a", "$stream/a", "$queue/q", "$dlq/q"):
            try:
                await broker.publish(topic, "x")
            except TopicNameInvalid:
                refused.append(topic)
    found = {"refused": refused, "received": received, "metrics": metrics, "pages": pages}
    return {**found, "routes": list(document["paths"])}

def refusal(text):
    try:
        parse_config(tomllib.loads(text))
    except ConfigError as error:
        return str(error)
    return ""

flags = CliRunner().invoke(main, ["serve", "--help"]).output
found = {"commands": list(COMMANDS), "flags": flags, "default": default_file(), **asyncio.run(look())}
print(json.dumps({**found, "refusals": [refusal(each) for each in sys.argv[3:]]}))
"""

FLAGS: Final = {"cluster": "--cluster", "dataset": "--telemetry"}
"""Those of `mqttlite serve` that belong to an extension."""

SECTIONS: Final[Mapping[str, str]] = {
    "delivery": "[delivery]\nmax_queues = 3",
    "bridges": "[[bridges]]\nname = 'b'\naddresses = ['a']\ntopics = [{pattern = 'a'}]",
    "cluster": "data_dir = 'a'\n[cluster]\nservers = ['nats://127.0.0.1:4222']",
    "nodes": "[nodes]\nservers = ['nats://127.0.0.1:4222']",
    "push": "[push]\nallowed_hosts = ['a']",
    "queues": "[[queues]]\nname = 'q'",
    "queues.push": "[[queues]]\nname = 'q'\npush = {url = 'https://a.example/', secret = 'whsec_" + "A" * 43 + "='}",
    "routes": "[[routes]]\nname = 'r'\nfilters = ['a']\nto = 'b'",
    "sparkplug": "sparkplug = true",
    "stream_archive": "[stream_archive]\ndirectory = 'a'",
    "streams": "[[streams]]\nname = 's'",
    "telemetry": "[telemetry]\ndirectory = 'a'",
    "topic_policies.schema": '[[topic_policies]]\nfilter = "a"\nschema = "s"',
    "topic_policies.schema_violation": '[[topic_policies]]\nfilter = "a"\nschema = "s"\nschema_violation = "count"',
    "topic_policies.presence": '[[topic_policies]]\nfilter = "a"\npresence = true',
}
"""An example of each option that belongs to an extension."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    left_out = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(ROOT / "mqttlite", folder / "mqttlite", ignore=left_out)
    return folder


def put(module: Path, text: str) -> None:
    """Write it with a time of its own: of the same second and length, Python would run what it compiled before."""
    module.write_text(text, encoding="utf-8")
    seconds = next(_SECONDS)
    os.utime(module, (seconds, seconds))


def look(copy: Path, data_dir: Path, options: list[str]) -> dict[str, Any]:
    """What a broker of the copy says of itself, and how it refuses some options."""
    done = subprocess.run(
        [sys.executable, "-c", LOOK, copy, data_dir, *(SECTIONS[each] for each in options)],
        env={**os.environ, "PYTHONPATH": str(copy)},
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["received"] == "hello"
    return found


def named(name: str, text: str) -> int:
    """How often a configuration file has an option or a section of a name."""
    return len(re.findall(rf"(?m)^#+(?:{name} =|\[+(?:\w+\.)*{name}\]+$)", text))


@pytest.fixture(scope="module")
def whole(copy: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With all extensions."""
    found = look(copy, tmp_path_factory.mktemp("data"), list(OWNERS))
    assert found["refusals"] == [""] * len(OWNERS)
    return found


def test_each_option_of_an_extension_has_an_example() -> None:
    assert SECTIONS.keys() == OWNERS.keys()
    assert set(OWNERS.values()) <= BUILT_IN.keys()


def gone_with(name: str) -> set[str]:
    """The extension, and those that need it."""
    gone = {name}
    while more := {each for each, manifest in BUILT_IN.items() if gone.intersection(manifest.needs)} - gone:
        gone |= more
    return gone


@pytest.mark.parametrize("name", todays(list(BUILT_IN), 2))
def test_an_extension_goes_with_its_folder_and_its_line(
    name: str, copy: Path, whole: dict[str, Any], tmp_path: Path
) -> None:
    gone = gone_with(name)
    manifests = [BUILT_IN[each] for each in gone]
    options = [path for path, owner in OWNERS.items() if owner in gone]
    folders, listed = copy / "mqttlite" / "extensions", copy / "mqttlite" / "extensions" / "built_in.py"
    text = listed.read_text(encoding="utf-8")
    left = text
    for each in gone:
        assert left.count(f'    "{each}",\n') == 1
        left = left.replace(f'    "{each}",\n', "")
        shutil.move(folders / each, tmp_path / each)
    put(listed, left)
    try:
        found = look(copy, tmp_path / "data", options)
    finally:
        for each in gone:
            shutil.move(tmp_path / each, folders / each)
        put(listed, text)
    assert set(whole["commands"]) - set(found["commands"]) == {each for one in manifests for each in one.commands}
    documented = [BUILT_IN[each] for each in gone - {"cluster", "dashboard"}]
    has_routes = any(each.routes or each.gateway_routes for each in documented)
    # A cluster's routes are there only where there is a cluster, and the document has no pages.
    assert bool(set(whole["routes"]) - set(found["routes"])) == has_routes
    figures = [each.name for one in manifests for each in one.figures]
    assert [each for each in figures if f"mqttlite_{each} " in found["metrics"]] == []
    assert [address for one in manifests for address, _ in one.menu if f'{address}"' in found["pages"]["/"]] == []
    shown = {each for each, page in found["pages"].items() if "there is nothing at this path" not in page}
    assert shown == (set() if name == "dashboard" else set(whole["pages"]))
    assert [each for each, flag in FLAGS.items() if flag not in found["flags"]] == [
        each for each in FLAGS if each in gone
    ]
    assert ("$delayed/1/a" in found["refused"]) == (name == "delayed")
    assert ({"$queue/q", "$dlq/q"} <= set(found["refused"])) == (name == "queues")
    names = [each.rpartition(".")[2] for each in options]
    for each in set(names):
        assert named(each, whole["default"]) - named(each, found["default"]) >= names.count(each)
    owners = "|".join(gone)
    said = re.compile(rf" belongs to the extension ({owners}), which this broker does not have")
    assert [each for each in found["refusals"] if not said.search(each)] == []


@pytest.mark.parametrize("name", sorted({needed for each in BUILT_IN.values() for needed in each.needs}))
def test_an_extension_that_others_need_does_not_go_alone(name: str, copy: Path) -> None:
    listed = copy / "mqttlite" / "extensions" / "built_in.py"
    text = listed.read_text(encoding="utf-8")
    put(listed, text.replace(f'    "{name}",\n', ""))
    try:
        done = subprocess.run(
            [sys.executable, "-c", "import mqttlite.extensions.built_in"],
            env={**os.environ, "PYTHONPATH": str(copy)},
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        put(listed, text)
    assert f"needs {name}: take both away, or none" in done.stderr
