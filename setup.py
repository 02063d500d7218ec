"""Compiles the ground floor (`wire`, `topics`, `core`) with mypyc when the package is built and a C compiler is there,
and with it the modules above it through which every byte passes (docs/design/008).

Otherwise, or with MQTTLITE_PURE=1, the same files are installed as they are: they are ordinary Python.
"""

import os
import shutil
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
COMPILED_ADAPTERS = (
    "mqttlite/net/deferred_links.py",
    "mqttlite/net/link.py",
    "mqttlite/net/local_link.py",
    "mqttlite/net/loop_driver.py",
)


def core_extensions() -> list[Extension]:
    if os.environ.get("MQTTLITE_PURE") == "1" or shutil.which(os.environ.get("CC", "cc")) is None:
        return []
    from mypyc.build import mypycify

    os.chdir(HERE)
    files = sorted(str(path) for room in ("wire", "topics", "core") for path in Path("mqttlite", room).glob("*.py"))
    # The rooms above are only looked at for their types, and what they import need not be installed here.
    options = ["--config-file=", "--ignore-missing-imports", "--follow-imports=silent"]
    try:
        extensions: list[Extension] = mypycify([*options, *files, *COMPILED_ADAPTERS], opt_level="3")
    except SystemExit as error:  # how mypyc says that it cannot
        print(f"mqttlite is not compiled: {error}")
        return []
    for extension in extensions:
        extension.optional = True  # a compiler that fails leaves the plain files
    return extensions


setup(ext_modules=core_extensions())
