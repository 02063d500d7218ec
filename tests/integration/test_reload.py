"""Files that are read again while the broker runs: certificates for new handshakes; broken files change nothing."""

import shutil
import ssl
from pathlib import Path

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.net.http import Options as MetricsOptions
from mqttlite.security.certificate_files import ends_at
from mqttlite.security.certificates import init
from mqttlite.security.tls import TlsOptions, client_context
from mqttlite.server import Broker
from tests.integration.conftest import Rig


def files_of(source: Path, target: Path) -> None:
    for name in ("ca.crt", "server.crt", "server.key"):
        shutil.copy(source / name, target / name)


async def served(rig: Rig, at: Path) -> Broker:
    options = TlsOptions(str(at / "server.crt"), str(at / "server.key"), str(at / "ca.crt"), require_client_cert=True)
    return await rig.broker(Config(listeners=(ListenerOptions(port=0, tls=options),), metrics=MetricsOptions(port=0)))


def client(certs: Path) -> ssl.SSLContext:
    return client_context(str(certs / "ca.crt"), str(certs / "thermometer.crt"), str(certs / "thermometer.key"))


async def test_new_handshakes_see_new_certificates_and_authorities(rig: Rig, certs: Path, tmp_path: Path) -> None:
    newer, used = tmp_path / "newer", tmp_path / "used"
    init(newer, clients=["thermometer"])
    used.mkdir()
    files_of(certs, used)
    broker = await served(rig, used)
    former = await rig.device(broker.port, "former", tls=client(certs))
    files_of(newer, used)
    await broker.reload()
    await rig.device(broker.port, "later", tls=client(newer))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await rig.device(broker.port, "refused", tls=client(certs))
    await former.ping()
    assert broker.monitor is not None
    (listener,) = (await broker.monitor.report()).listeners
    assert listener.certificate_ends_at == ends_at(str(newer / "server.crt")).timestamp()


@pytest.mark.parametrize("name", ["server.crt", "server.key", "ca.crt"])
async def test_a_broken_file_is_refused_with_its_path_and_the_former_stays_in_use(
    rig: Rig, certs: Path, tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    files_of(certs, tmp_path)
    broker = await served(rig, tmp_path)
    (tmp_path / name).write_text("nothing of use")
    await broker.reload()
    (error,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert error.startswith("tls-0: the former certificates stay in use: listeners[0].tls.")
    assert str(tmp_path / name) in error
    await rig.device(broker.port, "device", tls=client(certs))
