"""Java, pyspark, plotly and a quiet Spark session.

Invariant: nothing here imports pyspark before `require` has said that it, and a Java it can use, are there.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from spark_analytics.errors import EnvironmentMissing

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_GET_JAVA: Final = "on Debian and Ubuntu: apt-get install openjdk-17-jre-headless"
_GET_PACKAGES: Final = "pip install 'mqttlite[spark]'"

# Enough that a part of twenty million rows sorts in memory; where there are few rows Spark joins the parts again.
# Spark's 200 would spend their time on starting tasks.
_LOCAL_SHUFFLE_PARTITIONS: Final = "16"

# Spark's 1 GB makes sorts of that size spill over and over. It is a bound: what does not fit goes to disk.
_LOCAL_MEMORY: Final = "2g"

_COMMON: Final = {
    "spark.app.name": "mqttlite reports",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # Spark would note for each column of a query which line of Python made it, for errors that a report does not show.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # The plan of each query as text is for the pages of Spark, which a report does not have.
    "spark.sql.ui.explainMode": "simple",
}
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": _LOCAL_SHUFFLE_PARTITIONS,
    "spark.driver.memory": _LOCAL_MEMORY,
    # Files are named one by one; on a local disk it takes longer to start a job than to look at thousands of them.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}

SMALL_BYTES: Final = 4 << 20
"""Of less there is a report in half the time if nothing is made faster that is soon over: no plan is compiled, no loop
of the virtual machine optimised, and all rows stay in one part."""

LARGE: Final[Mapping[str, str]] = {}
"""More settings of a session that reads much."""

SMALL: Final[Mapping[str, str]] = {
    # With one compiler Java keeps 48 MB for compiled code, which a report fills: the rest of it would be interpreted.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
"""More settings of a session for what `is_small`."""

STREAMING: Final[Mapping[str, str]] = {"spark.sql.shuffle.partitions": "4"}
"""More settings of a session that watches. Each query keeps a database for each part, and saves all of them with each
batch: of 16 that took most of the time, and a broker adds little between two batches."""


def require() -> None:
    """Raise EnvironmentMissing, saying what to install, unless pyspark, plotly and a Java that suits are there."""
    versions = {}
    for package in ("pyspark", "plotly"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            raise EnvironmentMissing(f"Reports need {package}: {_GET_PACKAGES}") from None
    pyspark_version = versions["pyspark"]
    needed = 17 if int(pyspark_version.split(".")[0]) >= 4 else 8
    java = _find_java()
    if java is None:
        raise EnvironmentMissing(f"Reports need Java {needed} or newer, and there is none ({_GET_JAVA}).")
    found = _java_version(java)
    if found is not None and found < needed:
        raise EnvironmentMissing(
            f"pyspark {pyspark_version} needs Java {needed} or newer; {java} is Java {found} ({_GET_JAVA})."
        )


@contextmanager
def spark_session(master: str | None, local: Mapping[str, str] = LARGE) -> Iterator[SparkSession]:
    """A session on `master`; None means `local[*]`, or what spark-submit was told. Stopped at the end.

    Where it is local it has the settings `local`: one with `SMALL` is soon at work, and slow with much to read.

    What the JVM prints is held back. If Spark cannot start, its complaint is in the error.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    conf = _configure(SparkConf(loadDefaults=False), master, submitted, local)
    with tempfile.TemporaryFile("w+", errors="replace") as jvm_says:
        try:
            gateway = None
            if not submitted:
                gateway = launch_gateway(conf, popen_kwargs={"stderr": jvm_says})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
        except (PySparkException, Py4JError, OSError) as error:
            raise EnvironmentMissing(f"Spark does not start: {_complaint(jvm_says) or _first_line(error)}") from error
        session = SparkSession(context)
        try:
            yield session
        finally:
            session.stop()


def is_small(directory: str) -> bool:
    """Whether it is a local directory with less than `SMALL_BYTES` in it."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(OSError):  # a broker renames and removes files meanwhile
                total += Path(folder, name).stat().st_size
            if total >= SMALL_BYTES:
                return False
    return Path(directory).is_dir()


def _configure(conf: SparkConf, master: str | None, submitted: bool, local: Mapping[str, str]) -> SparkConf:
    settings = dict(_COMMON)
    if master is None and not submitted:
        master = "local[*]"
    if master is not None:
        settings["spark.master"] = master
        if master.startswith("local"):
            settings |= {**_LOCAL, **local}
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return conf.setAll(list(settings.items()))


def _find_java() -> str | None:
    """The Java that pyspark would start."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        return str(java) if java.exists() else None
    return shutil.which("java")


def _java_version(java: str) -> int | None:
    """17 for "17.0.15", 8 for "1.8.0_412"; None if it does not say."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None


def _complaint(jvm_says: IO[str]) -> str:
    """The last thing the JVM said that is not a line of a stack trace."""
    jvm_says.seek(0)
    said = [line.strip() for line in jvm_says if line.strip() and not line.startswith(("\t", " "))]
    return said[-1] if said else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
