"""How long hypothesis searches: `--hypothesis-profile=quick` is what tools/check says. Signals that reach children, and
a data directory that a test shares with nobody. The garbage collector leaves out what thousands of tests are made of,
and seldom looks at all that is left: that took a tenth of the time.

A shell lets what it runs in the background ignore SIGINT, and children would go on ignoring it.
"""

import gc
import signal
import tempfile
from collections.abc import Iterator

import pytest

from tests.support.examples import register

register()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 50)


@pytest.fixture(autouse=True)
def own_data_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `mqttlite serve` keeps without --data-dir is gone with the test. Its path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="mqttlite-", ignore_cleanup_errors=True) as directory:
        monkeypatch.setenv("XDG_STATE_HOME", directory)
        monkeypatch.delenv("STATE_DIRECTORY", raising=False)
        yield
