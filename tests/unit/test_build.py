"""The version of the package."""

import importlib.metadata
from collections.abc import Iterator

import pytest

from mqttlite import build


@pytest.fixture
def read_again() -> Iterator[None]:
    build.version.cache_clear()
    yield
    build.version.cache_clear()


@pytest.mark.usefixtures("read_again")
def test_a_program_that_is_not_installed_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_name: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(build, "_version_of", unknown)
    assert build.version() == "unknown"
