"""A broker for each test, and each test over TCP and over TLS where it takes a `line`; and Node for MQTT.js."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttlite.security import certificates
from tests.interop.peers import Agent
from tests.interop.support import JS, Line, RunningBroker, tool
from tests.support.npm import install


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Other people's programs take their time, however little there is to say."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def certificate_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server certificate, and clients `device` and `sensor`."""
    directory = tmp_path_factory.mktemp("certificates")
    certificates.init(directory, clients=("device", "sensor"))
    return directory


@pytest.fixture
def broker(certificate_files: Path) -> Iterator[RunningBroker]:
    with RunningBroker(certificate_files) as running:
        yield running


@pytest.fixture(params=["tcp", "tls"])
def line(request: pytest.FixtureRequest, broker: RunningBroker) -> Line:
    found: Line = getattr(broker, request.param)
    return found


@pytest.fixture(scope="session")
def mqttjs() -> Path:
    """The packages of package-lock.json, installed where they are not."""
    install(JS, JS / "node_modules" / ".package-lock.json")
    return JS / "node_modules" / "mqtt"


@pytest.fixture(scope="session")
def node(mqttjs: Path) -> str:
    """Where Node is, beside which MQTT.js is."""
    return tool("node", package="nodejs")


@pytest.fixture(scope="session")
def agent(node: str) -> Iterator[Agent]:
    """MQTT.js in a Node that starts once."""
    agent = Agent(node)
    yield agent
    agent.close()
