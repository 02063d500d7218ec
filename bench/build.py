"""Binaries of the C here: compiled on first use, and again when their source has changed.

The binary's name holds a hash of the source, so a stale one is never run, whatever the clocks say.
"""

import hashlib
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
SOURCE: Final = HERE / "loadgen" / "loadgen.c"
BUILD: Final = HERE / ".build"


class BuildError(Exception):
    """A source could not be compiled; the message says what to do."""


def loadgen() -> Path:
    """The load generator; one that can do TLS where OpenSSL's headers are."""
    try:
        return compiled(SOURCE, flags=("-O2", "-DTLS"), libraries=("-lssl", "-lcrypto"))
    except BuildError:
        return compiled(SOURCE)


def can_tls(binary: Path) -> bool:
    """Whether this load generator can: without, it says so before it does anything."""
    done = subprocess.run([binary, "--tls", "--mode", "none"], capture_output=True, text=True, timeout=30)
    return "built without" not in done.stdout


def compiled(
    source: Path,
    build: Path = BUILD,
    *,
    flags: Sequence[str] = ("-O2",),
    libraries: Sequence[str] = (),
    compiler: str = "cc",
) -> Path:
    """Return the binary of this very source, compiling it if it is not there yet."""
    digest = hashlib.sha256(source.read_bytes() + " ".join((*flags, *libraries)).encode()).hexdigest()[:16]
    binary = build / f"{source.stem}-{digest}"
    if not binary.exists():
        _compile(source, binary, flags, libraries, compiler)
    return binary


def _compile(source: Path, binary: Path, flags: Sequence[str], libraries: Sequence[str], compiler: str) -> None:
    found = shutil.which(compiler)
    if found is None:
        raise BuildError(f"no C compiler: `{compiler}` is not on PATH (Debian, Ubuntu: apt-get install gcc libc6-dev)")
    binary.parent.mkdir(parents=True, exist_ok=True)
    unfinished = binary.with_name(f"{binary.name}.{os.getpid()}-{threading.get_ident()}")
    done = subprocess.run(
        [found, *flags, "-o", unfinished, source, *libraries], capture_output=True, text=True, timeout=120
    )
    if done.returncode:
        raise BuildError(f"{source.name} does not compile:\n{done.stderr[-2000:].strip()}")
    unfinished.replace(binary)  # at once, so that two builders do not meet half a file
    for stale in binary.parent.glob(f"{source.stem}-*"):
        if stale != binary and "." not in stale.name:  # a dot: another builder's unfinished one
            stale.unlink(missing_ok=True)
