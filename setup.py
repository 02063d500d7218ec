"""Compiles `wire`, `topics`, `log` and `core` with mypyc when the package is built and a C compiler is there, and with
them the modules above through which every byte passes (docs/design/008).

Otherwise, or with MQTTLITE_PURE=1, the same files are installed as they are: they are ordinary Python. Each step prints
a line that begins with "mqttlite: "; pip shows them with -v.
"""

import ast
import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
MANIFESTS = "mqttlite/extensions/*/manifest.py"
"""Each names the modules of its extension that are compiled."""

COMPILED_ADAPTERS = (
    "mqttlite/client/connection.py",
    "mqttlite/client/keep_alive.py",
    "mqttlite/extensions/dedup.py",
    "mqttlite/net/commits.py",
    "mqttlite/net/deferred_links.py",
    "mqttlite/net/held_links.py",
    "mqttlite/net/link.py",
    "mqttlite/net/local_link.py",
    "mqttlite/net/loop_driver.py",
    "mqttlite/net/outbox_writer.py",
    "mqttlite/net/reading_turns.py",
    "mqttlite/net/shedding.py",
    "mqttlite/security/default_rules.py",
    "mqttlite/store/sqlite/mirror.py",
    "mqttlite/store/sqlite/reader.py",
    "mqttlite/store/sqlite/records.py",
    "mqttlite/store/sqlite/rests.py",
    "mqttlite/store/sqlite/runs.py",
    "mqttlite/store/sqlite/writer.py",
)

CALLS_ARE_DIRECT = ["-fvisibility=hidden", "-fno-plt"] if sys.platform == "linux" else []
"""Only `PyInit_...` is called from outside, so calls between the modules need no table of addresses."""

BUILDING = {"bdist_wheel", "build", "build_ext", "develop", "editable_wheel", "install"}
"""The commands that compile. pip also runs others, for the metadata, and those need no extensions."""

SIGN_OF_LIFE_S = 15.0
"""The interval between two lines that say that the C compiler is at work."""

AT_ONCE = min(4, os.cpu_count() or 1)
"""How many files are compiled side by side; each compiler takes some hundred megabytes."""


def say(text: str) -> None:
    print(f"mqttlite: {text}", file=sys.stderr, flush=True)


def why_pure() -> str:
    """Why nothing is compiled; empty where something is."""
    compiler = os.environ.get("CC", "cc").split()[0]
    if os.environ.get("MQTTLITE_PURE") == "1":
        return "MQTTLITE_PURE=1: nothing is compiled"
    if sys.platform != "win32" and shutil.which(compiler) is None:  # on Windows setuptools finds the compiler
        return f"there is no C compiler ({compiler}): nothing is compiled, and the broker will be several times slower"
    return ""


def modules_of_extensions() -> list[str]:
    """What the manifests name. They are read and not imported, for what they import need not be installed here."""
    found: list[str] = []
    for path in sorted(Path().glob(MANIFESTS)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "compiled":
                found += [path.with_name(f"{name}.py").as_posix() for name in ast.literal_eval(node.value).split()]
    return found


def core_extensions() -> list[Extension]:
    if not BUILDING & set(sys.argv):
        return []
    reason = why_pure()
    if reason:
        say(reason)
        return []
    from mypyc.build import mypycify

    os.chdir(HERE)
    files = sorted(
        str(path) for package in ("wire", "topics", "log", "core") for path in Path("mqttlite", package).rglob("*.py")
    )
    files += [*COMPILED_ADAPTERS, *modules_of_extensions()]
    say(f"translating {len(files)} modules to C")
    # mypyc looks at the other modules only for their types, and what they import need not be installed here.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    try:
        # A C file for each module takes a third of the compiler's time and a tenth of its memory.
        extensions: list[Extension] = mypycify(
            [*options, *files], opt_level="3", debug_level="0", group_name="mqttlite", multi_file=True
        )
    except SystemExit as error:  # how mypyc says that it cannot
        say(f"mypyc cannot translate them, so nothing is compiled: {error}")
        return []
    for extension in extensions:
        extension.optional = True  # a compiler that fails leaves the Python files
        extension.extra_compile_args += CALLS_ARE_DIRECT
    return extensions


class BuildExtensions(build_ext):
    """Compiles all extensions or none, and prints which one it compiles."""

    def build_extensions(self) -> None:
        began = time.monotonic()
        compile_some = self.compiler.compile

        def compile_side_by_side(sources: Sequence[str], **options: object) -> list[str]:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found = pool.map(lambda source: compile_some([source], **options), sources)
                return [each for objects in found for each in objects]

        self.compiler.compile = compile_side_by_side
        super().build_extensions()
        outputs = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        if all(output.exists() for output in outputs):
            say(f"compiled in {time.monotonic() - began:.0f} s")
            return
        for output in outputs:  # the first extension has the code of all modules: the others need it
            output.unlink(missing_ok=True)
        say("the C compiler failed, see above: nothing is compiled, and the broker will be several times slower")

    def build_extension(self, ext: Extension) -> None:
        number = self.extensions.index(ext) + 1
        lines = sum(Path(source).read_bytes().count(b"\n") for source in ext.sources)
        minutes = ", which takes a minute or two" if number == 1 else ""
        say(f"compiling {number} of {len(self.extensions)}: {ext.name}, {lines} lines of C{minutes}")
        done = threading.Event()
        reporter = threading.Thread(target=report_time, args=(done,), daemon=True)
        reporter.start()
        try:
            super().build_extension(ext)
        finally:
            done.set()
            reporter.join()


def report_time(done: threading.Event) -> None:
    """Print from time to time that the compiler is at work."""
    began = time.monotonic()
    while not done.wait(SIGN_OF_LIFE_S):
        say(f"still compiling after {time.monotonic() - began:.0f} s")


setup(ext_modules=core_extensions(), cmdclass={"build_ext": BuildExtensions})
