"""How long hypothesis searches: `--hypothesis-profile=quick` is what tools/check says. Signals that reach children, and
a data directory that a test shares with nobody. The garbage collector leaves out what thousands of tests are made of,
and seldom looks at all that is left: that took a tenth of the time. A busy machine is no overload. A test that fails
takes no other test with it.

A shell lets what it runs in the background ignore SIGINT, and children would go on ignoring it.
"""

import gc
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from mqttlite.assembly import runtime
from mqttlite.operations import certificate_watch
from mqttlite.security import live_rules, passwords
from mqttlite.telemetry.timing import LoopLag
from tests.support.examples import register
from tests.support.never_quick import NEVER_QUICK, is_left_out
from tests.support.parts import CORE, is_in

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadFileScheduling

    from tests.support.browser import Browser

FAILED: Final = pytest.StashKey[bool]()

NUMBERS: Final = count()

FIRST: Final = ("spark", "e2e", "faults", "documents", "packaging")
"""Folders whose files take minutes. They begin first: no process is left alone with one of them at the end."""

SECOND_SPARK: Final = "tests/spark/test_planted"
"""The first file of the second half of the tests of Spark, by the time that they take."""

TESTS: Final = Path(__file__).parent

register()
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if is_left_out(collection_path, config.getoption("markexpr")) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of `NEVER_QUICK` as long, and long tests as slow, so that `-m "not slow"` leaves them out, and
    those of the core. Put the folders of `FIRST` in front.

    A test that is slow already is not long.
    """
    ranks = {folder: rank for rank, folder in enumerate(FIRST)}
    files = {item.path for item in items}
    core = {path for path in files if is_in(path, CORE)}
    never_quick = {path for path in files if str(path).startswith(NEVER_QUICK)}
    rank_of = {path: ranks.get(path.relative_to(TESTS).parts[0], len(FIRST)) for path in files}
    for item in items:
        if item.path in core:
            item.add_marker(pytest.mark.core)
        if item.path in never_quick:
            item.add_marker(pytest.mark.long)
        if item.get_closest_marker("long") is None:
            continue
        if item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.slow)
        else:
            item.own_markers[:] = [each for each in item.own_markers if each.name != "long"]
    items.sort(key=lambda item: rank_of[item.path])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: "Producer") -> "LoadFileScheduling | None":
    """With `--dist loadfile` two processes have all tests of Spark: each Java machine takes half a minute of processor
    time until it is warm, and one alone would still be at work when all other tests are done."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler.loadfile import LoadFileScheduling

    class TwoSparks(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if not nodeid.startswith("tests/spark/"):
                return super()._split_scope(nodeid)
            return f"tests/spark, {'first' if nodeid < SECOND_SPARK else 'second'} half"

    return TwoSparks(config, log)


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(2_000, 10, 50)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A report of a failure parses sources, and Python 3.11 gives that up with a SystemError, which ends the whole run,
    where the garbage collector finds something meanwhile whose end is a warning."""
    if call.excinfo is None:
        return (yield)
    item.stash[FAILED] = True
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """What a test that failed left open is closed here, without a word: else it would be an error of the next one."""
    try:
        return (yield)
    finally:
        if item.stash.get(FAILED, False):
            for name in ("last_exc", "last_type", "last_value", "last_traceback"):
                sys.__dict__.pop(name, None)
            hook, sys.unraisablehook = sys.unraisablehook, lambda _unraisable: None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    gc.collect()
            finally:
                sys.unraisablehook = hook


@pytest.fixture(autouse=True, scope="session")
def busy_machine_is_no_overload() -> Iterator[None]:
    """A broker does not count as overloaded because its event loop is late, which on a busy machine it is: it would
    refuse connections. What the lag does, tests of `OverloadWatch` and of the core show with numbers."""

    def on_time(on_measured: Callable[[float], bool]) -> LoopLag:
        return LoopLag(lambda _late_s: on_measured(0.0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runtime, "LoopLag", on_time)
        yield


@pytest.fixture(autouse=True, scope="session")
def files_are_looked_at_often() -> Iterator[None]:
    """Tests that change a file of passwords, rules or a certificate wait for less."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (certificate_watch, live_rules, passwords):
            patch.setattr(module, "POLL_S", 0.05)
        yield


@pytest.fixture(scope="session")
def data_dirs() -> Iterator[Path]:
    """Where `mqttlite serve` keeps what it keeps without --data-dir. Its path is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="mqttlite-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    from tests.support.browser import Browser

    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture(autouse=True)
def own_data_dir(data_dirs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds what another one left. Few tests need the directory, and those make it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(data_dirs / str(next(NUMBERS))))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
