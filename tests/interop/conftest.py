"""A broker for each test, and each test over TCP and over TLS where it takes a `line`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mqttlite.security import certificates
from tests.interop.support import Line, RunningBroker


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
