"""A broker without a cluster and without other nodes never imports NATS's client, which is an extra."""

import subprocess
import sys

import pytest

from tests.test_architecture import MODULES, ROOT, imports_of, top

ADAPTERS = ("mqttlite.engine.nats", "mqttlite.extensions.nodes.nats_carrier")

LOOK = """
import sys
import mqttlite, mqttlite.server, mqttlite.cli.main, mqttlite.assembly
print([name for name in sys.modules if name.split(".")[0] in ("nats", "nkeys")])
"""


@pytest.mark.long
def test_only_the_adapters_import_nats() -> None:
    found = [module for module, path in MODULES.items() if "nats" in map(top, imports_of(path))]
    assert found
    assert [module for module in found if not module.startswith(ADAPTERS)] == []


@pytest.mark.slow
def test_the_broker_and_its_commands_load_without_nats() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
