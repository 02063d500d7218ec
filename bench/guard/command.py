"""`python -m bench guard`: count, compare, say it; `--accept` keeps what was counted."""

import filecmp
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from bench.build import BUILD
from bench.guard import counting, judge

NATIVE: Final = counting.ROOT / "build" / "native"
"""Where `tools/native` leaves the compiled build; `compare` and `profile` leave one in BUILD."""
PACKAGES: Final = ("wire", "topics", "log", "core", "net", "client", "extensions/bridge")


def run(*, accept: bool, kept: Path = judge.KEPT) -> int:
    """Judge the pure core and, if there is one of the same sources, the compiled one; 1 if either got dearer."""
    dearer = False
    sources = tuple(_builds())
    try:
        with ThreadPoolExecutor(len(sources)) as pool:  # valgrind runs on one processor
            counted = tuple(pool.map(counting.shares, sources))
    except counting.CannotCount as trouble:
        print(f"Instructions were not counted: {trouble}", file=sys.stderr)
        return 1 if accept else 0
    for name, shares in zip(map(counting.interpreter, sources), counted, strict=True):
        if accept:
            judge.accept(name, shares, kept)
            print(f"{name}: kept {len(shares)} figures in {kept}")
            continue
        verdict = judge.judge(name, shares, judge.load(kept))
        dearer |= verdict.dearer
        print("\n".join(f"{name}: {sentence}" for sentence in verdict.sentences))
    return 1 if dearer else 0


def _builds() -> Iterator[Path]:
    yield counting.ROOT
    for copy in (NATIVE, *BUILD.glob("native-*")):
        if counting.build(copy) == "compiled" and same_sources(counting.ROOT, copy):
            yield copy
            return
    print("The compiled build was not looked at: tools/native makes it.", file=sys.stderr)


def same_sources(one: Path, other: Path) -> bool:
    """Whether what is compiled there was made of what lies here."""
    files = [path.relative_to(one) for room in PACKAGES for path in sorted((one / "mqttlite" / room).rglob("*.py"))]
    _match, mismatch, errors = filecmp.cmpfiles(one, other, [str(path) for path in files], shallow=False)
    return not mismatch and not errors
