"""Whether a machine that follows could serve."""

import socket
from pathlib import Path

from mqttlite.config import Config, ListenerOptions
from mqttlite.extensions.cluster.readiness import problem_of
from mqttlite.extensions.cluster.serving import IMPORTED_BEFORE, import_early
from mqttlite.security.tls import TlsOptions


async def test_a_machine_that_follows_looks_at_all_that_a_broker_needs(tmp_path: Path) -> None:
    assert (
        await problem_of(Config(listeners=(ListenerOptions(port=0), ListenerOptions(path=str(tmp_path / "s"))))) == ""
    )
    missing = TlsOptions(cert_file=str(tmp_path / "none.pem"), key_file=str(tmp_path / "none.key"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        config = Config(listeners=(ListenerOptions(port=port), ListenerOptions(port=0, tls=missing)))
        problem = await problem_of(config)
    assert f"cannot listen on 127.0.0.1:{port}" in problem
    assert "none.pem" in problem


async def test_a_look_leaves_the_port_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert await problem_of(Config(listeners=(ListenerOptions(port=port),))) == ""
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_modules_imported_early_may_be_missing_but_have_the_right_names() -> None:
    import_early(("mqttlite.extensions.taken_out.service", "no_such_library"))
    for name in IMPORTED_BEFORE:
        __import__(name)
