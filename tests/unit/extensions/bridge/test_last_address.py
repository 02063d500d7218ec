"""The latest address of a bridge is known after a restart."""

from pathlib import Path

import pytest

from mqttlite.extensions.bridge.last_address import LastAddress
from mqttlite.extensions.bridge.options import Endpoint

ENDPOINTS = (Endpoint("a", 1883, False, ""), Endpoint("a", 1883, False, "/mqtt"))


def test_the_latest_of_several_addresses_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "address"
    last = LastAddress(ENDPOINTS, path)
    assert last.endpoint is None
    last.endpoint = ENDPOINTS[1]
    assert LastAddress(ENDPOINTS, path).endpoint is None
    last.keep()
    assert LastAddress(ENDPOINTS, path).endpoint == ENDPOINTS[1]
    assert LastAddress((*ENDPOINTS[:1], Endpoint("c", 1, False, "")), path).endpoint is None


def test_one_address_is_known_without_a_file() -> None:
    last = LastAddress(ENDPOINTS[:1], None)
    assert last.endpoint == ENDPOINTS[0]
    last.keep()


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    last = LastAddress(ENDPOINTS, tmp_path / "no folder" / "address")
    last.endpoint = ENDPOINTS[0]
    last.keep()
    assert "cannot be written, so QoS 2 may repeat" in caplog.text
