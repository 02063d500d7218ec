"""The load generator is compiled when its source is new, and only then."""

import shutil
from pathlib import Path

import pytest

from bench.build import BuildError, compiled

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.c"
    path.write_text("int main(void) { return 0; }\n")
    return path


@pytest.fixture
def build(tmp_path: Path) -> Path:
    return tmp_path / "build"


@pytest.mark.long
@needs_cc
def test_a_source_is_compiled_once(source: Path, build: Path) -> None:
    binary = compiled(source, build)
    first = binary.stat().st_mtime_ns
    assert compiled(source, build) == binary
    assert binary.stat().st_mtime_ns == first
    assert list(build.iterdir()) == [binary]


@pytest.mark.long
@needs_cc
def test_a_changed_source_is_compiled_again_and_the_old_binary_goes(source: Path, build: Path) -> None:
    old = compiled(source, build)
    source.write_text("int main(void) { return 1; }\n")
    new = compiled(source, build)
    assert new != old
    assert list(build.iterdir()) == [new]


@pytest.mark.long
def test_an_up_to_date_binary_needs_no_compiler(source: Path, build: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match="no C compiler: `no-such-cc` is not on PATH"):
        compiled(source, build, compiler="no-such-cc")
    if shutil.which("cc"):
        binary = compiled(source, build)
        assert compiled(source, build, compiler="no-such-cc") == binary


@needs_cc
def test_a_broken_source_is_reported_in_the_words_of_the_compiler(source: Path, build: Path) -> None:
    source.write_text("int main(void) { return nowhere; }\n")
    with pytest.raises(BuildError, match=r"tiny\.c does not compile:\n(.|\n)*nowhere"):
        compiled(source, build)
    assert list(build.iterdir()) == []
