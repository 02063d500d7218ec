"""The system tests of Google's client for Pub/Sub, which it publishes with its source, against our gateway.

They are run as they are, by a pytest of their own with the plugin `google_rest`. Invariant: all tests run that its REST
transport can run; `CANNOT` says which cannot.
"""

import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.config.options import Limits
from mqttlite.security.api_keys import FILE_NAME, KeyRole, add
from mqttlite.server import Broker
from tests.interop import google_rest
from tests.support.gateway import nobody_without_credentials

pytestmark = pytest.mark.slow

CANNOT: Final = ("subscribe", "streaming")
"""In the names of tests that need gRPC: all that open a streaming pull, and one that closes a `SubscriberClient`, which
asks its transport for a gRPC channel."""

ACCOUNTS: Final[dict[str, KeyRole]] = {
    "publisher": "user",
    "subscriber": "user",
    "viewer": "viewer",
    "editor": "admin",
}
"""The service accounts of the tests, and the role with which each may do what it is tested for."""

INSTALL_S: Final = 300.0


def _pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_S, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    """A folder with the tests of the installed version, and the packages that they import."""
    packages = tmp_path / "packages"
    _pip("install", "--quiet", "--no-deps", f"--target={packages}", "google-cloud-testutils", "flaky")
    wanted = f"google-cloud-pubsub=={version('google-cloud-pubsub')}"
    _pip("download", "--quiet", "--no-deps", "--no-binary=:all:", f"--dest={tmp_path}", wanted)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as source:
        (name,) = (each for each in source.getnames() if each.endswith("/tests/system.py"))
        file = source.extractfile(name)
        assert file is not None
        (packages / "google_system.py").write_bytes(file.read())
    return packages


def test_googles_own_tests_pass(tests: Path, tmp_path: Path) -> None:
    keys = tmp_path / "data" / FILE_NAME
    for account, role in ACCOUNTS.items():
        (tests / f"pubsub-{account}-service-account.json").write_text(add(keys, role, account, None)[0])
    config = Config(
        listeners=(ListenerOptions(port=0),),
        http=HttpOptions(port=0, requests_per_s=0, max_body_bytes=16_777_216),
        limits=Limits(max_packet_bytes=10_485_760),  # for messages of 2 MB, five in a request
        data_dir=str(tmp_path / "data"),
        **nobody_without_credentials(tmp_path),
    )
    chosen = " and ".join(f"not {each}" for each in ("grpc", *CANNOT))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.interop.google_rest", "-p", "no:cacheprovider"]
    with Broker(config) as broker:
        assert broker.gateway is not None
        environment = {
            google_rest.URL: f"http://127.0.0.1:{broker.gateway.port}",
            google_rest.KEY: add(keys, "admin", "ann", None)[0],
            "KOKORO_GFILE_DIR": str(tests),
            "PYTHONPATH": f"{Path(__file__).parents[2]}{os.pathsep}{tests}",
        }
        done = subprocess.run(
            [*command, f"--rootdir={tests}", "-k", chosen, "google_system.py"],
            cwd=tests,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            timeout=INSTALL_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^1[2-9] passed, \d+ deselected", done.stdout, re.MULTILINE), done.stdout
