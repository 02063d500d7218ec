"""`mqttlite schema` beside a real broker, and without one: what it prints, and how it ends."""

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.server import Broker
from tests.integration.conftest import Rig

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
WIDER = {**CLOSED, "properties": {**CLOSED["properties"], "b": {"type": "number"}}}  # type: ignore[dict-item]


@pytest.fixture
def directory() -> Iterator[Path]:
    """With a short path, and files for the schemas."""
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        path = Path(found)
        (path / "closed.json").write_text(json.dumps(CLOSED))
        (path / "wider.json").write_text(json.dumps(WIDER))
        (path / "point.avsc").write_text('{"type": "record", "name": "P", "fields": [{"name": "x", "type": "int"}]}')
        (path / "wrong.json").write_text('{"type": "strin"}')
        (path / "latin.json").write_bytes(b'{"title": "\xe9"}')
        (path / "good").write_text('{"a": "1"}')
        (path / "bad").write_text('{"a": 1}')
        yield path


@pytest.fixture
async def broker(rig: Rig, directory: Path) -> Broker:
    return await rig.broker(Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory)))


async def run(directory: Path, *words: str) -> Result:
    """In a thread, while the broker's loop goes on."""
    files = [str(directory / word) if (directory / word).is_file() else word for word in words]
    arguments = ["schema", files[0], "--data-dir", str(directory), *files[1:]]
    return await asyncio.to_thread(CliRunner().invoke, main, arguments, catch_exceptions=False)


@pytest.mark.slow
@pytest.mark.usefixtures("broker")
async def test_the_life_of_a_schema(directory: Path) -> None:
    async def said(*words: str) -> tuple[int, str]:
        result = await run(directory, *words)
        return result.exit_code, result.stdout

    assert await said("list") == (0, "")
    assert await said("check", "closed.json", "--subject", "a/b") == (0, "ok\n")
    assert await said("register", "a/b", "closed.json") == (0, "a/b:1 has the id 1.\n")
    assert await said("register", "p", "point.avsc") == (0, "p:1 has the id 2.\n")
    code, text = await said("check", "wider.json", "--subject", "a/b:1", "--payload", "bad")
    assert (code, text.splitlines()[0][-34:]) == (4, '$.a: 1 is not of type "string" (type)'[-34:])
    assert await said("level", "a/b") == (0, "BACKWARD\n")
    assert await said("level", "a/b", "--set", "FULL") == (0, "FULL\n")
    code, text = await said("check", "wider.json", "--subject", "a/b")
    assert (code, text[:39]) == (4, "not forward compatible with version 1: ")
    refused = await run(directory, "register", "a/b", "wider.json")
    assert refused.exit_code == 4
    assert "incompatible with an earlier schema" in refused.stderr
    assert await said("level") == (0, "BACKWARD\n")
    assert json.loads((await said("level", "--json"))[1]) == {"compatibilityLevel": "BACKWARD"}
    assert await said("list") == (0, "a/b\t1\t1\tJSON\tFULL\np\t1\t2\tAVRO\tBACKWARD\n")
    assert await said("show", "a/b") == (0, json.dumps(CLOSED) + "\n")
    assert json.loads((await said("show", "p:1", "--json"))[1])["id"] == 2
    assert await said("delete", "a/b:1") == (0, "1 version of a/b deleted.\n")
    assert await said("delete", "a/b", "--permanent") == (0, "1 version of a/b deleted for good.\n")
    assert json.loads((await said("delete", "p", "--json"))[1]) == [1]
    assert json.loads((await said("list", "--json"))[1]) == []


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (("show", "no"), 3, "Subject 'no' not found."),
        (("delete", "no"), 3, "Subject 'no' not found."),
        (("register", "s:1", "closed.json"), 2, "The subject 's:1' is invalid"),
        (("register", "s", "wrong.json"), 2, "Invalid schema: it is no JSON Schema at $.type"),
        (("register", "s", "latin.json"), 2, "it is not UTF-8"),
        (("register", "s", "nothing.json"), 2, "nothing.json: No such file or directory"),
        (("check", "closed.json", "--payload", "nothing"), 2, "nothing: No such file or directory"),
        (("check", "wrong.json"), 2, "it is no JSON Schema at $.type"),
        (("check", "closed.json", "--type", "avro"), 2, "it is no Avro schema"),
    ],
)
@pytest.mark.usefixtures("broker")
async def test_each_refusal_has_a_code(directory: Path, words: tuple[str, ...], code: int, error: str) -> None:
    result = await run(directory, *words)
    assert result.exit_code == code
    assert error in result.stderr


async def test_payloads_are_checked_without_a_broker(directory: Path) -> None:
    good = await run(directory, "check", "closed.json", "--payload", "good")
    assert (good.exit_code, good.stdout) == (0, "ok\n")
    both = await run(directory, "check", "closed.json", "--payload", "good", "--payload", "bad", "--json")
    assert both.exit_code == 4
    problem = f'{directory / "bad"}: $.a: 1 is not of type "string" (type)'
    assert json.loads(both.stdout) == {"ok": False, "problems": [problem]}
    assert (await run(directory, "list")).exit_code == 1
