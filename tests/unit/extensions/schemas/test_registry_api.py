"""The registry by its HTTP interface, without HTTP: paths, bodies and error codes of Confluent's Schema Registry."""

import asyncio
import json
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from mqttlite.extensions.schemas import registry as registry_module
from mqttlite.extensions.schemas import service as service_module
from mqttlite.extensions.schemas.api import RegistryApi, is_change
from mqttlite.extensions.schemas.compare import TOO_HARD, Comparison, compare, incompatibilities
from mqttlite.extensions.schemas.registry import Schema
from mqttlite.extensions.schemas.service import FILE_NAME, RegistryFileError, SchemaRegistry

V1 = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
V2 = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "number"}}, "additionalProperties": False}
BREAKING = {"type": "object", "properties": {"a": {"type": "number"}}, "additionalProperties": False}
AVRO = '{"type": "record", "name": "R", "fields": []}'


class Registry:
    """Asks as a client does."""

    def __init__(self, service: SchemaRegistry | None = None) -> None:
        self.service = service or SchemaRegistry(compare_schemas=incompatibilities)
        self._api = RegistryApi(self.service)

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """The body of an answer, or the error code."""
        path, _, query = path.partition("?")
        parameters = dict(each.split("=") for each in query.split("&")) if query else {}
        given = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = await self._api.answer(method, path.split("/"), parameters, given)
        found = json.loads(answer.body)
        if answer.status == 200:
            return found
        code: int = found["error_code"]
        assert answer.status == (code if code < 1_000 else code // 100)
        assert found["message"]
        return code

    async def register(self, name: str, tree: Any) -> Any:
        return await self("POST", f"/subjects/{name}/versions", body(tree))


def body(tree: Any) -> dict[str, Any]:
    return {"schemaType": "JSON", "schema": json.dumps(tree)}


@pytest.fixture
def ask() -> Registry:
    return Registry()


async def test_a_schema_is_registered_once(ask: Registry) -> None:
    first = await ask.register("orders", V1)
    assert first == {"subject": "orders", "id": 1, "version": 1, "schemaType": "JSON", "schema": json.dumps(V1)}
    same = {"schemaType": "JSON", "schema": json.dumps(dict(reversed(V1.items())), indent=2)}
    assert (await ask("POST", "/subjects/orders/versions", same))["version"] == 1
    assert (await ask.register("orders", V2))["id"] == 2
    assert await ask.register("other", V1) == {**first, "subject": "other"}
    assert await ask("GET", "/subjects") == ["orders", "other"]
    assert await ask("GET", "/subjects?subjectPrefix=ot") == ["other"]
    assert await ask("GET", "/subjects/orders/versions") == [1, 2]
    assert (await ask("GET", "/subjects/orders/versions/1"))["id"] == 1
    assert (await ask("GET", "/subjects/orders/versions/latest"))["version"] == 2
    assert await ask("GET", "/subjects/orders/versions/-1/schema") == V2
    assert await ask("GET", "/subjects/orders/versions/1/referencedby") == []
    assert await ask("GET", "/schemas/ids/1") == {"schemaType": "JSON", "schema": json.dumps(V1)}
    assert await ask("GET", "/schemas/ids/1/schema") == V1
    assert await ask("GET", "/schemas/ids/1/subjects") == ["orders", "other"]
    expected = [{"subject": "orders", "version": 1}, {"subject": "other", "version": 1}]
    assert await ask("GET", "/schemas/ids/1/versions") == expected


async def test_avro_is_what_is_meant_without_a_type(ask: Registry) -> None:
    found = await ask("POST", "/subjects/a/versions", {"schema": AVRO})
    assert found == {"subject": "a", "id": 1, "version": 1, "schema": AVRO}
    assert await ask("GET", "/schemas/types") == ["JSON", "AVRO"]
    assert await ask("GET", "/") == {}


async def test_a_breaking_change_is_refused(ask: Registry) -> None:
    await ask.register("orders", V1)
    assert await ask.register("orders", BREAKING) == 409
    assert await ask("POST", "/subjects/orders/versions", {"schema": AVRO}) == 409
    assert await ask("GET", "/subjects/orders/versions") == [1]
    assert await ask("POST", "/compatibility/subjects/orders/versions/1", body(V2)) == {"is_compatible": True}
    found = await ask("POST", "/compatibility/subjects/orders/versions/latest?verbose=true", body(BREAKING))
    assert not found["is_compatible"]
    assert found["messages"][0].startswith("not backward compatible with version 1: ")


@pytest.mark.parametrize(
    ("level", "versions"),
    [  # V1 allows less than V2, and what `BREAKING` allows has little in common with both
        ("BACKWARD", [V1, V2]),
        ("FORWARD", [V2, V1]),
        ("BACKWARD_TRANSITIVE", [V1, V2]),
        ("FORWARD_TRANSITIVE", [V2, V1]),
        ("NONE", [V1, BREAKING, V2]),
        ("FULL", [V1, {**V1, "title": "x"}]),
        ("FULL_TRANSITIVE", [V1, {**V1, "title": "x"}]),
    ],
)
async def test_levels(ask: Registry, level: str, versions: list[Any]) -> None:
    assert await ask("PUT", "/config/s", {"compatibility": level}) == {"compatibility": level}
    for tree in versions:
        assert isinstance(await ask.register("s", tree), dict)
    if level == "NONE":
        return
    assert await ask.register("s", BREAKING) == 409
    if "FULL" in level:
        assert await ask.register("s", V2) == 409
    elif "BACKWARD" in level:
        assert await ask.register("s", {**V1, "title": "narrower again"}) == 409
    else:
        assert await ask.register("s", {**V2, "title": "wider again"}) == 409


@pytest.mark.parametrize(("level", "code"), [("BACKWARD", None), ("BACKWARD_TRANSITIVE", 409)])
async def test_a_transitive_level_looks_at_all_versions(ask: Registry, level: str, code: int | None) -> None:
    await ask("PUT", "/config/s", {"compatibility": "NONE"})
    for tree in (BREAKING, V1):
        await ask.register("s", tree)
    await ask("PUT", "/config/s", {"compatibility": level})
    found = await ask.register("s", V2)
    assert (found if isinstance(found, int) else None) == code
    everything = await ask("POST", "/compatibility/subjects/s/versions", body(V2))
    assert everything == {"is_compatible": code is None}


async def test_levels_of_subjects_and_of_the_registry(ask: Registry) -> None:
    assert await ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await ask("GET", "/config/s") == 40408
    assert await ask("GET", "/config/s?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    assert await ask("PUT", "/config", {"compatibility": "FULL"}) == {"compatibility": "FULL"}
    assert await ask("PUT", "/config/s", {"compatibility": "NONE"}) == {"compatibility": "NONE"}
    assert await ask("GET", "/config/s") == {"compatibilityLevel": "NONE"}
    assert await ask("GET", "/subjects") == []
    assert await ask("DELETE", "/config/s") == {"compatibilityLevel": "NONE"}
    assert await ask("GET", "/config/s") == 40408
    assert await ask("DELETE", "/config") == {"compatibilityLevel": "FULL"}
    assert await ask("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert await ask("GET", "/mode") == await ask("GET", "/mode/s") == {"mode": "READWRITE"}


async def test_the_version_of_a_schema_is_looked_up(ask: Registry) -> None:
    await ask.register("s", V1)
    assert (await ask("POST", "/subjects/s", body(V1)))["version"] == 1
    assert await ask("POST", "/subjects/s", body(V2)) == 40403
    assert await ask("POST", "/subjects/other", body(V1)) == 40401
    await ask.register("other", V2)
    assert await ask("POST", "/subjects/s", body(V2)) == 40403


async def test_deleting_is_in_two_steps(ask: Registry) -> None:
    for tree in (V1, V2):
        await ask.register("s", tree)
    assert await ask("DELETE", "/subjects/s/versions/1?permanent=true") == 40407
    assert await ask("DELETE", "/subjects/s/versions/1") == 1
    assert await ask("GET", "/subjects/s/versions/1") == 40402
    assert (await ask("GET", "/subjects/s/versions/1?deleted=true"))["id"] == 1
    assert await ask("GET", "/subjects/s/versions") == [2]
    assert await ask("GET", "/subjects/s/versions?deleted=true") == [1, 2]
    assert await ask("GET", "/schemas/ids/1/versions") == []
    assert await ask("DELETE", "/subjects/s/versions/1?permanent=true") == 1
    assert await ask("GET", "/schemas/ids/1") == 40403
    assert await ask("DELETE", "/subjects/s?permanent=true") == 40405
    assert await ask("DELETE", "/subjects/s") == [2]
    assert await ask("DELETE", "/subjects/s") == 40401
    assert await ask("GET", "/subjects") == []
    assert await ask("GET", "/subjects?deleted=true") == ["s"]
    again = await ask.register("s", V2)
    assert (again["id"], again["version"]) == (2, 3)
    assert await ask("DELETE", "/subjects/s") == [3]
    assert await ask("DELETE", "/subjects/s?permanent=true") == [2, 3]
    assert await ask("GET", "/subjects?deleted=true") == []
    assert await ask("GET", "/schemas/ids/2") == 40403
    assert (await ask.register("s", V2))["id"] == 3, "an id is given once"
    assert await ask("DELETE", "/subjects/s/versions/latest") == 1
    assert await ask("DELETE", "/subjects/s/versions/1?permanent=true") == 1
    assert await ask("GET", "/subjects?deleted=true") == []


@pytest.mark.parametrize(
    ("method", "path", "given", "code"),
    [
        ("GET", "/nothing", None, 404),
        ("PUT", "/subjects/s", None, 405),
        ("GET", "/schemas/ids/7", None, 40403),
        ("GET", "/schemas/ids/x", None, 40403),
        ("GET", "/subjects/no/versions", None, 40401),
        ("GET", "/subjects/s/versions/7", None, 40402),
        ("GET", "/subjects/s/versions/0", None, 42202),
        ("GET", "/subjects/s/versions/x", None, 42202),
        ("POST", "/subjects/s/versions", b"{", 42201),
        ("POST", "/subjects/s/versions", b"[" * 9_999, 42201),
        ("POST", "/subjects/s/versions", {"schema": 3}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "{", "schemaType": "JSON"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "{}", "schemaType": "PROTOBUF"}, 42201),
        ("POST", "/subjects/s/versions", {"schema": "{}", "schemaType": "JSON", "references": [{}]}, 42201),
        ("POST", "/subjects/s:3/versions", {"schema": "{}", "schemaType": "JSON"}, 42208),
        ("POST", f"/subjects/{'s' * 256}/versions", {"schema": "{}", "schemaType": "JSON"}, 42208),
        ("PUT", "/config", {"compatibility": "SOME"}, 42203),
        ("PUT", "/config/s:3", {"compatibility": "NONE"}, 42208),
    ],
)  # fmt: skip
async def test_each_refused_request_has_a_code(ask: Registry, method: str, path: str, given: Any, code: int) -> None:
    await ask.register("s", V1)
    before = ask.service.registry
    assert await ask(method, path, given) == code
    assert ask.service.registry is before


async def test_there_are_so_many_subjects_versions_and_bytes(ask: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "MAX_SUBJECTS", 2)
    monkeypatch.setattr(registry_module, "MAX_VERSIONS", 2)
    monkeypatch.setattr(registry_module, "MAX_BYTES", 4_000)
    await ask("PUT", "/config", {"compatibility": "NONE"})
    for tree in (V1, V2):
        await ask.register("s", tree)
    assert await ask.register("s", BREAKING) == 50702
    assert isinstance(await ask.register("t", V1), dict)
    assert await ask.register("u", V1) == 50701
    assert await ask("PUT", "/config/u", {"compatibility": "NONE"}) == 50701
    assert await ask.register("t", {"title": "x" * 4_000}) == 50703


async def test_schemas_outlive_the_process(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    ask = Registry(SchemaRegistry(path, compare_schemas=incompatibilities))
    await ask.register("s", V1)
    await ask("PUT", "/config/s", {"compatibility": "NONE"})
    await ask("PUT", "/config", {"compatibility": "FULL"})
    again = Registry(SchemaRegistry(path, compare_schemas=incompatibilities))
    assert again.service.registry == ask.service.registry
    assert path.stat().st_mode & 0o777 == 0o600
    assert await again.register("s", BREAKING) is not None


async def test_a_change_that_cannot_be_saved_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    ask = Registry(SchemaRegistry(tmp_path / FILE_NAME, full))
    assert await ask.register("s", V1) == 50001
    assert await ask("GET", "/subjects") == []
    assert "No space left on device" in caplog.text


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"schemas": {"x": {}}}', b'{"more": 1}'])
def test_a_file_that_is_something_else_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / FILE_NAME
    path.write_bytes(content)
    with pytest.raises(RegistryFileError, match=r"schemas\.json: it is no file of a schema registry"):
        SchemaRegistry(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(RegistryFileError, match="cannot be read"):
        SchemaRegistry(path)


async def test_changes_are_logged(ask: Registry, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await ask.register("s", V1)
    await ask("DELETE", "/subjects/s")
    assert caplog.messages == ["schema s:1 is registered, with the id 1", "subject s is deleted"]


@pytest.mark.parametrize(
    ("method", "path", "changes"),
    [
        ("GET", "subjects", False),
        ("HEAD", "subjects", False),
        ("POST", "subjects/s", False),
        ("POST", "compatibility/subjects/s/versions/1", False),
        ("POST", "subjects/s/versions", True),
        ("DELETE", "subjects/s", True),
        ("PUT", "config", True),
    ],
)
def test_commands_that_change_something(method: str, path: str, changes: bool) -> None:
    assert is_change(method, path.split("/")) == changes


@pytest.mark.slow
def test_a_comparison_has_a_process_and_an_end() -> None:
    first, second = Schema("JSON", json.dumps(V1)), Schema("JSON", json.dumps(V2))
    assert compare(Comparison(second, "BACKWARD", [(1, first)])) == []
    [reason] = compare(Comparison(first, "BACKWARD", [(2, second)]))
    assert reason.startswith("not backward compatible with version 2: ")
    hard = {"not": {"allOf": [{"not": {"properties": {f"p{n}": {"enum": [1, 2, 3]}}}} for n in range(200)]}}
    harder = {"not": {"anyOf": [{"properties": {f"p{n}": {"enum": [1, 2]}}} for n in range(200)]}}
    versions = [(1, Schema("JSON", json.dumps(hard)))]
    assert compare(Comparison(Schema("JSON", json.dumps(harder)), "BACKWARD", versions), 1.0) == [TOO_HARD]


async def test_so_many_comparisons_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def waiting(_: Comparison) -> list[str]:
        go_on.wait(5)
        return []

    monkeypatch.setattr(service_module, "MAX_COMPARISONS", 2)
    ask = Registry(SchemaRegistry(compare_schemas=waiting))
    await ask.register("s", V1)
    path = "/compatibility/subjects/s/versions/1"
    tasks = [asyncio.create_task(ask("POST", path, body(V2))) for _ in range(3)]
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=5)
    assert [task.result() for task in done] == [50301]
    go_on.set()
    answers = await asyncio.gather(*tasks)
    assert answers.count({"is_compatible": True}) == 2
