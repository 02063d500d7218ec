"""A broker in a thread, with certificates."""

from tests.interop.conftest import broker, certificate_files, line

__all__ = ["broker", "certificate_files", "line"]
