"""Imports point down, the core layers stay pure, and every module can be imported alone.

What the modules do is tested elsewhere. The tests read the sources, so they find every import, executed or not.
"""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Final

import pytest

import mqttlite
from mqttlite.build import is_compiled
from mqttlite.extensions.built_in import BUILT_IN

ROOT = Path(__file__).resolve().parent.parent

# Each package or top-level module with those it may import. Those of one layer do not import each other.
PURE: Final = {"wire": set(), "topics": {"wire"}, "filters": {"wire"}, "log": set(), "core": {"topics", "wire"}}
ADAPTER_PACKAGES: Final = {"net", "store", "security", "telemetry", "testing"}
FEATURES: Final = {f"extensions.{each.parent.name}" for each in ROOT.glob("mqttlite/extensions/*/manifest.py")}
"""The features that are a folder each. Only `assembly` imports them, and those whose manifest says that they need
them; what others know of them is in `manifests`."""
BELOW: Final[dict[str, set[str]]] = {
    **PURE,
    "build": set(),
    "files": set(),
    "engine": set(),
    "event_hub": set(PURE),
    **{each: {*PURE, "event_hub", "files"} for each in ADAPTER_PACKAGES},
    "telemetry": {*PURE, "build", "event_hub", "files"},
    "security": {*PURE, "event_hub", "files", "manifests"},
    "client": {"filters", "wire"},  # the broker and the client compile the same expressions
    "config": {*ADAPTER_PACKAGES, *PURE, "files", "manifests"},
    "manifests": {*PURE, "engine", "filters", "telemetry"},
    "operations": {*ADAPTER_PACKAGES, *PURE, "build", "config", "event_hub", "files"},
    "catalogue": {*PURE, "config", "security"},
    "gateway": {*ADAPTER_PACKAGES, *PURE, "build", "catalogue", "config", "event_hub", "files"}
    | {"manifests", "operations"},
    "extensions": {*PURE, "client", "config", "event_hub", "files", "net"},
    **{
        each: {*ADAPTER_PACKAGES, *PURE, "build", "catalogue", "cli", "client", "config", "engine", "event_hub"}
        | {"extensions", "files", "gateway", "manifests", "operations"}
        | {f"extensions.{needed}" for needed in BUILT_IN[each.split(".")[1]].needs}
        for each in FEATURES
    },
    "assembly": {*ADAPTER_PACKAGES, *PURE, "catalogue", "config", "engine", "event_hub", "extensions", "gateway"}
    | {"manifests", "files", "operations", *FEATURES},
    "server": {*ADAPTER_PACKAGES, *PURE, "assembly", "config", "event_hub", "extensions", "gateway", "operations"},
    "cli": {*ADAPTER_PACKAGES, *PURE, "build", "catalogue", "client", "config", "extensions", "manifests"}
    | {"operations", "server"},
    "__main__": {"cli"},
    "": {*ADAPTER_PACKAGES, *PURE, "client", "config", "extensions", "manifests", "server"},
    # mqttlite/__init__.py, the public names
}

PAGES: Final = {each.partition(":")[0] for manifest in BUILT_IN.values() for each in manifest.pages}
"""The modules of pages. They import the dashboard, and only the dashboard imports them."""

MANIFESTS: Final = {
    "manifest", "options", "archive_options", "shared_options", "template", "push_target", "push_addresses", "built_in",
    "namespaces",
}  # fmt: skip
"""The modules of `extensions` and its folders that are read without a broker."""

# Clocks, event loops, threads, files, random numbers: whatever makes two runs differ.
IMPURE: Final = {
    "asyncio", "concurrent", "fcntl", "glob", "http", "logging", "mmap", "multiprocessing", "os", "pathlib", "platform",
    "queue", "random", "secrets", "select", "selectors", "shutil", "signal", "socket", "socketserver", "sqlite3", "ssl",
    "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
THIRD_PARTY_IN_PURE_LAYERS: Final = {
    "mqttlite.filters.build": {"lark"},
    "mqttlite.filters.grammar": {"lark"},
    "mqttlite.filters.json_payload": {"msgspec"},
}


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES: Final = {module_name(path): path for folder in ("mqttlite", "spark_analytics") for path in sources(folder)}


def package_of(module: str) -> str:
    """The part of a name after "mqttlite."; empty for the package itself. The parts of `extensions` are apart."""
    parts = module.split(".")[1:]
    if parts[:1] == ["extensions"]:
        if parts[-1] in MANIFESTS:
            return "manifests"
        if ".".join(parts[:2]) in FEATURES:
            return ".".join(parts[:2])
    return parts[0] if parts else ""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Every module a file names in an import, wherever the import stands; `from package import module` too."""
    return _imports_in(path, _statements(tree_of(path).body))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, also those inside of others: a tenth of the nodes of a module."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, name, []))
        for each in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            yield from _statements(each.body)


@cache
def imports_for_types(path: Path) -> frozenset[str]:
    """Those that only the type checker sees."""
    guards = [
        each for each in tree_of(path).body if isinstance(each, ast.If) and "TYPE_CHECKING" in ast.unparse(each.test)
    ]
    return _imports_in(path, _statements([*guards]))


def _imports_in(path: Path, nodes: Iterator[ast.AST]) -> frozenset[str]:
    package = module_name(path).split(".") if path.name == "__init__.py" else module_name(path).split(".")[:-1]
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*start, *([node.module] if node.module else [])])
            below = {f"{base}.{alias.name}" for alias in node.names}
            modules_below = below & MODULES.keys()
            found |= modules_below
            if modules_below != below:
                found.add(base)
    return frozenset(found)


def top(name: str) -> str:
    return name.split(".")[0]


def offences() -> Iterator[str]:
    """Every import inside mqttlite that does not point down. Anybody may name the types of a feature."""
    for module, path in MODULES.items():
        if top(module) != "mqttlite":
            continue
        package = package_of(module)
        types = {each for each in imports_for_types(path) if package_of(each) in FEATURES}
        allowed = BELOW.get(package, set()) | ({"extensions.dashboard"} if module in PAGES else set())
        for name in imports_of(path) - types:
            if name in PAGES or (top(name) == "mqttlite" and package_of(name) not in {package, *allowed}):
                yield f"{module} imports {name}"


def test_every_package_has_its_layer() -> None:
    assert {package_of(module) for module in MODULES if top(module) == "mqttlite"} <= BELOW.keys()


def test_modules_beside_the_packages_are_public_or_start_the_program() -> None:
    assert {path.stem for path in (ROOT / "mqttlite").glob("*.py")} == {
        *("__init__", "__main__", "build", "event_hub", "server")
    }


def test_imports_point_down() -> None:
    assert sorted(offences()) == []


def names_in(path: Path) -> Iterator[str]:
    """Every identifier and every literal topic of a module."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, bytes):
            yield node.value.decode(errors="replace")


OF_FEATURES: Final = re.compile(
    r"QUEUE|_?QUEUES|QUEUE_MARK|SaveQueue|is_to_queue|serve_queues|in_queues|_?queues|(en|de)code_queue|"
    r".*(schema|presence|dashboard|push_|Push).*|\$(queue|dlq|stream).*"
)
"""What a feature is called. A session has a `queue` too; `QUEUE_FULL` and `QUEUED` are about that."""


@pytest.mark.long
def test_the_core_names_no_feature() -> None:
    found = {
        f"{module}: {name}"
        for module, path in MODULES.items()
        if package_of(module) in {"core", "log", "topics", "net", "store"}
        for name in names_in(path)
        if OF_FEATURES.fullmatch(name)
    }
    assert sorted(found) == []


def test_the_pure_layers_import_nothing_that_makes_two_runs_differ() -> None:
    impure = {
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if top(module) == "mqttlite" and package_of(module) in PURE
        for name in imports_of(path)
        if top(name) in IMPURE
    }
    assert impure == set()


def test_the_pure_layers_need_only_the_standard_library() -> None:
    foreign = {
        f"{module} imports {name}"
        for module, path in MODULES.items()
        if top(module) == "mqttlite" and package_of(module) in PURE
        for name in imports_of(path)
        if top(name) not in {"mqttlite", *sys.stdlib_module_names, *THIRD_PARTY_IN_PURE_LAYERS.get(module, ())}
    }
    assert foreign == set()


@pytest.mark.parametrize(
    ("folder", "other"),
    [
        ("mqttlite", "spark_analytics"),
        ("mqttlite", "pyspark"),
        ("tools", "pyspark"),
        ("mqttlite", "tests"),
        ("mqttlite", "bench"),
    ],
)
def test_some_parts_know_nothing_of_each_other(folder: str, other: str) -> None:
    assert [module_name(path) for path in sources(folder) if other in map(top, imports_of(path))] == []


def test_of_mqttlite_the_analytics_know_the_public_client_and_only_to_send_alerts() -> None:
    known = {
        (module_name(path), name)
        for path in sources("spark_analytics")
        for name in imports_of(path)
        if name.split(".")[0] == "mqttlite"
    }
    assert known == {("spark_analytics.alerts", "mqttlite.client")}


def test_no_modules_import_each_other_in_a_cycle() -> None:
    graph = {module: imports_of(path) & MODULES.keys() for module, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


IMPORT_EACH_ALONE = """
import importlib, os, sys, traceback
for name in "asyncio click cryptography.x509 msgspec ssl uvloop pyspark.sql pyspark.sql.functions".split():
    try:
        importlib.import_module(name)  # shared by the children, which makes them quick
    except ImportError:
        pass
for name in sys.argv[1:]:
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(name)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        print(name)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.slow
def test_every_module_that_no_other_imports_can_be_imported_alone() -> None:
    """The others come with them. No order of imports matters, for there are no cycles."""
    imported = {name for path in MODULES.values() for name in imports_of(path)}
    alone = [module for module in MODULES if module not in imported]
    result = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_ALONE, *alone], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.stdout.split() == [], result.stderr
    assert result.returncode == 0, result.stderr


def test_public_names_exist() -> None:
    assert mqttlite.__all__
    assert [name for name in mqttlite.__all__ if not hasattr(mqttlite, name)] == []


def test_modules_open_by_saying_what_lives_in_them() -> None:
    trees = {module: tree_of(path) for module, path in MODULES.items()}
    assert [module for module, tree in trees.items() if tree.body and ast.get_docstring(tree) is None] == []


def meant_to_be_compiled() -> set[Path]:
    """All modules of `wire`, `topics` and `core`, and those above that setup.py and the manifests name."""
    named = {ROOT / name for name in re.findall(r'"(mqttlite/[\w/]+\.py)"', (ROOT / "setup.py").read_text())}
    for name, manifest in BUILT_IN.items():
        named |= {ROOT / "mqttlite" / "extensions" / name / f"{module}.py" for module in manifest.compiled.split()}
    assert [path for path in named if not path.exists()] == []
    return named | {path for layer in ("wire", "topics", "log", "core") for path in sources(f"mqttlite/{layer}")}


def test_a_compiled_build_has_exactly_the_modules_that_are_meant() -> None:
    compiled = {
        path
        for path in MODULES.values()
        if any(path.with_name(path.stem + suffix).exists() for suffix in EXTENSION_SUFFIXES)
    }
    assert compiled == (meant_to_be_compiled() if is_compiled() else set())


@pytest.mark.long
def test_no_class_that_is_not_compiled_inherits_from_one_that_is() -> None:
    """mypyc allows it only for protocols and exceptions, and says so when the first object is made."""
    compiled = meant_to_be_compiled()
    native: set[str] = set()
    for path in compiled:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and not _is_open(node):
                native.add(f"{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}.{node.name}")
    wrong = []
    for path in (ROOT / "mqttlite").rglob("*.py"):
        if path in compiled:
            continue
        tree = ast.parse(path.read_text())
        imported = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases = {imported.get(ast.unparse(base), "") for base in node.bases}
                wrong += [f"{path.relative_to(ROOT)}: {node.name}({base})" for base in bases & native]
    assert wrong == []


def _is_open(node: ast.ClassDef) -> bool:
    """Whether interpreted classes may inherit from it."""
    bases = {ast.unparse(base).split("[")[0] for base in node.bases}
    return bool(bases & {"Protocol", "Exception", "ValueError", "Enum", "IntEnum", "NamedTuple"})


def test_the_architecture_page_names_places_that_exist() -> None:
    page = (ROOT / "docs/explanation/architecture.md").read_text()
    table = page.partition("## Where it is decided")[2].partition("## ")[0]
    found = 0
    for row in table.splitlines():
        source = ""
        for span in re.findall(r"`([^`]+)`", row):
            if span.endswith(".py"):
                source = (ROOT / "mqttlite" / span).read_text()
                continue
            *owner, name = span.split(".")
            assert re.search(rf"^\s*(class|def|async def) {name}\b", source, re.MULTILINE), span
            assert all(f"class {each}" in source for each in owner), span
            found += 1
    assert found > 15
