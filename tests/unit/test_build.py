"""The version of the package."""

from importlib.metadata import version

from mqttlite.build import VERSION


def test_the_installed_package_has_the_version_that_the_program_tells() -> None:
    assert version("mqttlite") == VERSION
