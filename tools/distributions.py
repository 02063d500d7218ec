"""tools/wheels: builds the distributions and checks them.

The wheels are built from the sdist, so an incomplete sdist is noticed, and no old build/ folder gets into them.
Invariant: nothing is installed into the environment that runs this; each wheel is unpacked into a folder of its own.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

LIMIT_S: Final = 1_800.0
"""The compiled wheel takes minutes, on a slow machine many."""

TYPES: Final = ("pyright", "--verifytypes", "mqttlite", "--ignoreexternal", "--outputjson")
"""pyright takes the Python that it finds first in PATH."""

IDENTIFIERS: Final[Mapping[str, int]] = {"linux": 16, "macos": 8, "windows": 4}
"""How many compiled wheels cibuildwheel makes on each platform."""


class CheckFailed(Exception):
    """A distribution is not as it should be; the text has what the tool printed."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="tools/wheels")
    parser.add_argument("--pure", action="store_true", help="leave the compiled wheel out")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", metavar="DIR")
    options = parser.parse_args()
    out = options.out.resolve()
    kinds = ("pure",) if options.pure else ("pure", "compiled")
    try:
        with tempfile.TemporaryDirectory() as folder:
            make(out, Path(folder), kinds)
    except CheckFailed as error:
        sys.exit(f"tools/wheels: {error}")


def make(out: Path, scratch: Path, kinds: tuple[str, ...]) -> None:
    """Build into `out`, and check what was built. Raises `CheckFailed`."""
    out.mkdir(parents=True, exist_ok=True)
    sdist = build("sdist", ROOT, scratch / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch, filter="data")
    sources = scratch / sdist.name.removesuffix(".tar.gz")
    built = [sdist]
    for kind in kinds:
        wheel = build("wheel", sources, scratch / kind, MQTTLITE_PURE="1" if kind == "pure" else "0")
        shutil.rmtree(sources / "build", ignore_errors=True)
        check_wheel(wheel, kind, scratch / f"installed-{kind}")
        built.append(wheel)
    report("twine check --strict", run("twine", "check", "--strict", *map(str, built)))
    check_cibuildwheel()
    for path in built:
        shutil.copy2(path, out)
        print(f"built {out / path.name}, {path.stat().st_size // 1024} KiB", flush=True)


def build(kind: str, sources: Path, out: Path, **environment: str) -> Path:
    """The one distribution that is built into an empty folder."""
    print(f"building: {kind}{' ' * bool(environment)}{environment or ''}", flush=True)
    run("build", f"--{kind}", "--no-isolation", "--outdir", str(out), str(sources), environment=environment, shows=True)
    (path,) = out.iterdir()
    return path


def check_wheel(wheel: Path, kind: str, installed: Path) -> None:
    """What can be said about one wheel. Raises `CheckFailed`."""
    if (kind == "pure") is not wheel.name.endswith("-py3-none-any.whl"):
        raise CheckFailed(f"{wheel.name} is not the {kind} wheel")
    report("check-wheel-contents", run("check_wheel_contents", f"--config={ROOT / 'pyproject.toml'}", str(wheel)))
    if kind == "compiled" and sys.platform == "linux":
        report("auditwheel show", run("auditwheel", "show", str(wheel)))
    run("pip", "install", "--quiet", "--no-deps", "--no-index", f"--target={installed}", str(wheel))
    missing = files_of(ROOT, "mqttlite", "spark_analytics") - files_of(installed, "mqttlite", "spark_analytics")
    if missing:
        raise CheckFailed(f"{wheel.name} has not {', '.join(sorted(missing))}")
    found = {"PYTHONPATH": str(installed), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    report("smoke.py", run(str(ROOT / "packaging" / "smoke.py"), kind, environment=found, is_script=True))
    report("--version", run("mqttlite", "--version", environment=found))
    report("pyright --verifytypes", run(*TYPES, environment=found, understands=completeness))


def files_of(root: Path, *packages: str) -> set[str]:
    """The sources and the data of some packages."""
    return {
        str(path.relative_to(root))
        for package in packages
        for path in (root / package).rglob("*")
        if path.is_file() and path.suffix not in (".so", ".pyd", ".pyc", ".toml")
    }


def check_cibuildwheel() -> None:
    """That its configuration can be read, and makes the wheels it should. Raises `CheckFailed`."""
    for platform, count in IDENTIFIERS.items():
        told = run("cibuildwheel", "--print-build-identifiers", f"--platform={platform}", str(ROOT)).split()
        if len(told) != count:
            raise CheckFailed(f"cibuildwheel makes {len(told)} wheels on {platform}, not {count}: {', '.join(told)}")
        print(f"cibuildwheel: {count} wheels on {platform}", flush=True)


def completeness(text: str) -> str:
    """What pyright's report says in short. Raises `CheckFailed`."""
    types = json.loads(text)["typeCompleteness"]
    if types["completenessScore"] != 1:
        symbols = types["symbols"]
        unclear = [symbol["name"] for symbol in symbols if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]]
        raise CheckFailed(f"pyright --verifytypes: these need a declared type: {', '.join(unclear)}")
    return "100 % of the types are known"


def run(
    *command: str,
    environment: Mapping[str, str] | None = None,
    shows: bool = False,
    is_script: bool = False,
    understands: Callable[[str], str] | None = None,
) -> str:
    """What a Python module prints that is run as a program, outside the sources. Raises `CheckFailed` if it fails."""
    done = subprocess.run(
        [sys.executable, *([] if is_script else ["-m"]), *command],
        env={**os.environ, **(environment or {})},
        cwd=tempfile.gettempdir(),
        stdout=subprocess.PIPE,
        stderr=None if shows else subprocess.STDOUT if understands is None else subprocess.PIPE,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    if understands is not None:
        return understands(done.stdout)
    if done.returncode != 0:
        raise CheckFailed(f"{' '.join(command)} failed:\n{done.stdout}")
    return done.stdout


def report(name: str, output: str) -> None:
    """Print a check's own words, on one line."""
    print(f"{name}: {' '.join(output.split())}", flush=True)


if __name__ == "__main__":
    main()
