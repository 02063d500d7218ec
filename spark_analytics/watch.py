"""Findings while the dataset grows: Structured Streaming over its folder, with checkpoints and room for what is late.

Three queries read what brokers add. `windows` counts what each client did in five minutes; `queue_windows` what became
of the deliveries of queues; `silences` joins what a client publishes to stretches that end when it is silent for long.
All look at a stretch once, when no more rows of it are
awaited; `troubles` makes of them what begins, goes on and ends. Invariant: what a batch tells depends on its rows and
on what the batch before left, and is in one file that the batch names. So one that is repeated after a crash writes the
same file again: no line is lost, none is there twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import reduce
from threading import Event
from typing import Any, Final, Protocol

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from spark_analytics.errors import InputUnusable, OutputRefused
from spark_analytics.reports.queue_tables import ACKNOWLEDGED, AS_OTHERS, FAILS, STUCK_ATTEMPTS, STUCK_S, failed, judged
from spark_analytics.schema import TABLES, TIME_COLUMNS
from spark_analytics.troubles import GOES_ON, Silences, Trouble, Troubles

WINDOW_S: Final = 300
LATE_S: Final = 600
"""How much older than the newest row a row may be when it is read: a file is complete a minute after its first row, a
broker that was killed leaves one to the next that starts, and the clocks of several brokers differ."""

FLAPPING_CONNECTS: Final = 6
"""Connections of a client in five minutes: one that has a network loses it less often, and one that wakes to say a word
does so every few minutes at most."""

BURST_CLIENTS: Final = 10
"""Clients that fall silent in the same five minutes; one by one they do so now and then."""

BURST_DROPS: Final = 100
"""Messages for a client that are dropped in five minutes."""

STORM_CLIENTS: Final = 10
STORM_SHARE: Final = 0.3
"""So many, and so large a share of the clients that do anything in five minutes, come back without a goodbye."""

BURST_LETTERS: Final = 10
"""Messages of a queue that are given up in five minutes; one by one messages are wrong now and then."""

SILENT_S: Final = 3600
SILENT_INTERVALS: Final = 10
FEWEST_MESSAGES: Final = 20
"""A client is silent when it has said nothing for an hour, that is ten times as long as from one of its intervals with
messages to the next, which take some twenty to know."""

TRIGGER: Final = "10 seconds"

POLL_S: Final = 1.0

QUIET_S: Final = 600
"""Who reads a log wants to know now and then that there is somebody who watches."""

_ROCKS: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""Keeps what is counted on disk: as much as there is room for, not as much as the driver's memory holds."""

GOODBYES: Final = ("client_disconnected", "client_disconnected_with_will")
_LOST: Final = "no_subscribers"

Finding = dict[str, Any]
Report = Callable[[list[Finding]], None]


def watch(
    spark: SparkSession,
    source: str,
    target: str,
    checkpoint: str | None,
    report: Report,
    *,
    once: bool,
    interrupted: Event | None = None,
) -> None:
    """Read `source` until `interrupted`, or `once` what is there; write findings below `target` and `report` them.

    `report` may be told again of what it was told before a crash; the files have each line once. While there is nothing
    to tell it is called without lines, every `QUIET_S`. Raises
    InputUnusable, OutputRefused.
    """
    _require_directory(spark, source)
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKS)
    place = (checkpoint or f"{target.rstrip('/')}/checkpoint").rstrip("/")
    known = Silences()
    queries: list[StreamingQuery] = []
    try:
        # Whether a client that publishes was silent must be known before it is told that it is heard again.
        for name, frame, teller in (
            ("silences", silences(source_rows(spark, source)), SilenceTeller(known)),
            ("windows", windows(source_rows(spark, source)), WindowTeller(known)),
            ("queues", queue_windows(queue_rows(spark, source)), QueueTeller()),
        ):
            sink = Sink(spark, f"{target.rstrip('/')}/findings", f"{place}/{name}", name, teller, report)
            queries.append(_started(frame, sink, f"{place}/{name}", once=once))
            if once:
                queries[-1].awaitTermination()
        if not once:
            _wait(queries, interrupted or Event(), report)
    except StreamingQueryException as error:
        raise OutputRefused(f"Watching {source} failed: {_reason(error)}") from error
    except (PySparkException, Py4JJavaError) as error:
        raise InputUnusable(f"Cannot watch {source}: {_reason(error)}") from error
    finally:
        for query in queries:
            query.stop()


def _wait(queries: list[StreamingQuery], interrupted: Event, report: Report) -> None:
    """Until one of them fails. Here, and not in the JVM, where Ctrl-C would break off what is said to it."""
    quiet_s = 0.0
    while not interrupted.wait(POLL_S):
        for query in queries:
            failure = None if query.isActive else query.exception()
            if failure is not None:
                raise failure
        quiet_s += POLL_S
        if quiet_s >= QUIET_S:
            quiet_s = 0.0
            report([])


def _started(frame: DataFrame, sink: Sink, checkpoint: str, *, once: bool) -> StreamingQuery:
    writer = frame.writeStream.outputMode("append").option("checkpointLocation", checkpoint).foreachBatch(sink)
    return (writer.trigger(availableNow=True) if once else writer.trigger(processingTime=TRIGGER)).start()


def _require_directory(spark: SparkSession, source: str) -> None:
    jvm: Any = spark.sparkContext._jvm
    path = jvm.org.apache.hadoop.fs.Path(source)
    if not path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).exists(path):
        raise InputUnusable(f"There is no {source}: --input takes the directory that the broker's [telemetry] names.")


# ---------------------------------------------------------------------------------------------------------- the rows


def source_rows(spark: SparkSession, source: str) -> DataFrame:
    """What clients did, of all tables that tell: `time`, `client_id` and counters."""
    event, reason = F.col("event"), F.col("reason")
    events = _stream(spark, source, "events").where(F.col("client_id").isNotNull())
    ended = event.isin("disconnected", "taken_over", "keep_alive_timeout")
    rows = [
        _counted(
            events.where(ended | (event == "connected")),
            connects=event == "connected",
            timeouts=event == "keep_alive_timeout",
            goodbyes=(event == "disconnected") & reason.isin(*GOODBYES),
        ),
        _counted(_stream(spark, source, "activity"), publishes=F.col("messages_received") > 0),
        _counted(_stream(spark, source, "drops").where(F.col("client_id").isNotNull()), drops=F.col("messages")),
    ]
    return reduce(DataFrame.unionByName, rows).withWatermark("time", f"{LATE_S} seconds")


_COUNTERS: Final = ("connects", "timeouts", "goodbyes", "publishes", "drops")


def _counted(rows: DataFrame, **counters: Column) -> DataFrame:
    named = [counters.get(name, F.lit(0)).cast("long").alias(name) for name in _COUNTERS]
    return rows.select("time", "client_id", *named)


def queue_rows(spark: SparkSession, source: str) -> DataFrame:
    """What became of deliveries and messages of queues. Rows about clients come between them, without a queue: by their
    times what is over is known to be over, also where queues have nothing more to do."""
    attempts = _stream(spark, source, "attempts")
    number = F.col("one_in")
    rows = [
        _of_queue(
            attempts,
            *("queue", "consumer", "ordering_key"),
            attempts=number,
            failed=F.when(failed(), number),
            acknowledged=F.when(F.col("outcome") == ACKNOWLEDGED, number),
            tried=F.when(failed(), F.col("attempt")),
            behind=F.when(failed(), F.col("behind")),
            failing_from=F.when(failed(), F.unix_micros("delivered_at")),
            failing_to=F.when(failed(), F.unix_micros("ended_at")),
        ),
        _of_queue(_stream(spark, source, "dead_letters"), "queue", letters=number),
        *(_of_queue(_stream(spark, source, table)) for table in ("events", "activity")),
    ]
    return reduce(DataFrame.unionByName, rows).withWatermark("time", f"{LATE_S} seconds")


_OF_QUEUES: Final = ("attempts", "failed", "acknowledged", "letters")
_MOST: Final = ("tried", "behind", "failing_to")
_LEAST: Final = ("failing_from",)


def _of_queue(rows: DataFrame, *names: str, **counters: Column) -> DataFrame:
    named = [
        (F.col(name) if name in names else F.lit(None).cast("string")).alias(name)
        for name in ("queue", "consumer", "ordering_key")
    ]
    given = [counters.get(name, F.lit(None)).cast("long").alias(name) for name in (*_OF_QUEUES, *_MOST, *_LEAST)]
    return rows.select("time", *named, *given)


def _stream(spark: SparkSession, source: str, table: str) -> DataFrame:
    """A table in both formats, also where its folder is not there yet: a pattern may match nothing so far."""
    pattern = f"{source.rstrip('/')}/{{table={table}}}"
    schema = TABLES[table]
    parts = []
    for form in ("parquet", "json"):
        reader = spark.readStream.schema(schema).option("recursiveFileLookup", "true")
        reader = reader.option("pathGlobFilter", f"part-*.{'parquet' if form == 'parquet' else 'jsonl'}")
        parts.append(reader.option("ignoreCorruptFiles", "true").format(form).load(pattern))
    time = F.col(TIME_COLUMNS[table])
    # A line that is torn or no JSON has nulls.
    return parts[0].unionByName(parts[1]).where(time.isNotNull()).withColumn("time", time)


def windows(rows: DataFrame) -> DataFrame:
    """What each client did in each five minutes."""
    return (
        rows.groupBy(F.window("time", f"{WINDOW_S} seconds").alias("window"), "client_id")
        .agg(*(F.sum(name).alias(name) for name in _COUNTERS))
        .select(F.col("window.start").alias("start"), F.col("window.end").alias("end"), "client_id", *_COUNTERS)
    )


def queue_windows(rows: DataFrame) -> DataFrame:
    """What each consumer did with each ordering key of a queue in each five minutes."""
    by = ("queue", "consumer", "ordering_key")
    return (
        rows.groupBy(F.window("time", f"{WINDOW_S} seconds").alias("window"), *by)
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _OF_QUEUES), *_extremes())
        .select(
            *(F.col("window.start").alias("start"), F.col("window.end").alias("end")),
            *(*by, *_OF_QUEUES, *_MOST, *_LEAST),
        )
    )


def _extremes() -> list[Column]:
    return [*(F.max(name).alias(name) for name in _MOST), *(F.min(name).alias(name) for name in _LEAST)]


def silences(rows: DataFrame) -> DataFrame:
    """Stretches of publishing that ended with silence; `said_goodbye` if the client left in good order."""
    told = rows.where("publishes > 0 or goodbyes > 0")
    return (
        told.groupBy(F.session_window("time", f"{SILENT_S} seconds").alias("stretch"), "client_id")
        .agg(
            F.sum("publishes").alias("publishes"),
            F.min("time").alias("start"),
            F.max("time").alias("end"),
            F.max_by("goodbyes", "time").alias("said_goodbye"),
        )
        .select("start", "end", "client_id", "publishes", "said_goodbye")
    )


# ------------------------------------------------------------------------------------------------------ the findings


def window_findings(counted: DataFrame) -> DataFrame:
    """Of rows of `windows`: all of a window are in one batch, for that closes it."""
    fleet = counted.groupBy("start", "end").agg(
        F.count_if(F.col("timeouts") > 0).alias("silent"),
        F.count_if(F.col("connects") > F.col("goodbyes")).alias("came_back"),
        F.count("*").alias("clients"),
    )
    nobody = F.lit(None).cast("string")
    parts = [
        _found(
            counted.where(F.col("connects") - F.col("goodbyes") >= FLAPPING_CONNECTS), "flapping", F.col("client_id"),
            "connects", F.format_string("%s connected %d times in 5 minutes", "client_id", "connects"),
        ),
        _found(
            counted.where(F.col("drops") >= BURST_DROPS), "drop_burst", F.col("client_id"), "drops",
            F.format_string("%d messages for %s were dropped in 5 minutes", "drops", "client_id"),
        ),
        _found(
            fleet.where(F.col("silent") >= BURST_CLIENTS), "keep_alive_burst", nobody, "silent",
            F.format_string("%d clients fell silent within 5 minutes", "silent"),
        ),
        _found(
            fleet.where((F.col("came_back") >= STORM_CLIENTS) & (F.col("came_back") >= STORM_SHARE * F.col("clients"))),
            "reconnect_storm", nobody, "came_back",
            F.format_string("%d of %d clients reconnected within 5 minutes", "came_back", "clients"),
        ),
    ]  # fmt: skip
    return reduce(DataFrame.unionByName, parts)


def queue_findings(counted: DataFrame) -> DataFrame:
    """Of rows of `queue_windows`: consumers that fail, as in the report; queues that give up messages; and ordering
    keys of which a message was tried for the third time at least, with others behind it, where that took a minute or
    nothing of the key was acknowledged in the five."""
    of_queues = counted.where("queue is not null")
    consumers = (
        of_queues.where("consumer is not null")
        .groupBy("start", "end", "queue", "consumer")
        .agg(F.sum("attempts").alias("attempts"), F.sum("failed").alias("failed"))
    )
    verdicts = judged(consumers, "start").withColumn("percent", F.col("failed") / F.col("attempts") * 100)
    alike = (
        verdicts.where(F.col("verdict") == AS_OTHERS)
        .groupBy("start", "end", "queue")
        .agg(F.sum("attempts").alias("attempts"), F.sum("failed").alias("failed"))
        .withColumn("percent", F.col("failed") / F.col("attempts") * 100)
    )
    letters = of_queues.groupBy("start", "end", "queue").agg(F.sum("letters").alias("letters"))
    keys = (
        of_queues.where("ordering_key is not null")
        .groupBy("start", "end", "queue", "ordering_key")
        .agg(F.sum("acknowledged").alias("acknowledged"), *_extremes())
    )
    long = F.col("failing_to") - F.col("failing_from") >= int(STUCK_S * 1e6)
    stuck = ((F.col("acknowledged") == 0) | long) & (F.col("tried") >= STUCK_ATTEMPTS) & (F.col("behind") > 0)
    queue, nobody = F.col("queue"), F.lit(None).cast("string")
    parts = [
        _found(
            verdicts.where(F.col("verdict") == FAILS), "failing_consumer", F.col("consumer"), "failed",
            F.format_string("%s failed %d deliveries of queue %s in 5 minutes, %.0f %% of what it got",
                            "consumer", "failed", "queue", "percent"), queue,
        ),
        _found(
            alike, "failing_queue", nobody, "failed",
            F.format_string("the consumers of queue %s all fail alike: %d deliveries in 5 minutes, %.0f %% of them",
                            "queue", "failed", "percent"), queue,
        ),
        _found(
            letters.where(F.col("letters") >= BURST_LETTERS), "dead_letters", nobody, "letters",
            F.format_string("%d messages of queue %s were given up in 5 minutes", "letters", "queue"), queue,
        ),
        _found(
            keys.where(stuck), "stuck_key", nobody, "behind",
            F.format_string("key %s of queue %s is stuck: a message was tried %d times, with %d behind it",
                            "ordering_key", "queue", "tried", "behind"), queue, F.col("ordering_key"),
        ),
    ]  # fmt: skip
    return reduce(DataFrame.unionByName, parts)


def silence_findings(stretches: DataFrame) -> DataFrame:
    """Of rows of `silences`: who broke off without a goodbye, and is usually heard more often."""
    length_s = F.col("end").cast("double") - F.col("start").cast("double")
    usual_s = length_s / (F.col("publishes") - 1)
    silent = stretches.where((F.col("publishes") >= FEWEST_MESSAGES) & (F.col("said_goodbye") == 0))
    silent = silent.withColumn("usual_s", usual_s).where(F.col("usual_s") * SILENT_INTERVALS <= SILENT_S)
    sentence = F.format_string("%s is silent; it usually publishes every %.0f s", "client_id", "usual_s")
    return _found(silent, "silent", F.col("client_id"), "publishes", sentence)


def _found(
    rows: DataFrame,
    kind: str,
    client_id: Column,
    number: str,
    sentence: Column,
    queue: Column | None = None,
    ordering_key: Column | None = None,
) -> DataFrame:
    none = F.lit(None).cast("string")
    return rows.select(
        F.lit(kind).alias("kind"),
        client_id.alias("client_id"),
        F.unix_micros("start").alias("start"),
        F.unix_micros("end").alias("end"),
        F.col(number).cast("long").alias("number"),
        sentence.alias("sentence"),
        (none if queue is None else queue).alias("queue"),
        (none if ordering_key is None else ordering_key).alias("ordering_key"),
    )


# ----------------------------------------------------------------------------------------------- what there is to tell


class Teller(Protocol):
    """Makes lines of a batch. `state` is what the next batch must know, and `restore` takes it back."""

    @property
    def state(self) -> Any: ...

    def restore(self, state: Any) -> None: ...

    def tell(self, batch: DataFrame) -> list[Finding]: ...


class SilenceTeller:
    """Clients that broke off."""

    def __init__(self, silences: Silences) -> None:
        self._silences: Final = silences

    @property
    def state(self) -> list[dict[str, Any]]:
        return [asdict(silence) for silence in self._silences.began.values()]

    def restore(self, state: list[dict[str, Any]]) -> None:
        for row in state:
            self._silences.begin([Trouble(**row)])

    def tell(self, batch: DataFrame) -> list[Finding]:
        return self._silences.begin(_troubles(silence_findings(batch)))


class WindowTeller:
    """What began, goes on and is over; and which silent clients are heard again."""

    def __init__(self, silences: Silences) -> None:
        self._silences: Final = silences
        self._troubles = Troubles()

    @property
    def state(self) -> dict[str, Any]:
        return {"open": self._troubles.state, "heard": self._silences.over}

    def restore(self, state: dict[str, Any]) -> None:
        self._troubles = Troubles(state["open"])
        self._silences.over.clear()
        self._silences.over.update(state["heard"])

    def tell(self, batch: DataFrame) -> list[Finding]:
        last = batch.agg(F.unix_micros(F.max("end"))).first()
        if last is None or last[0] is None:
            return []
        return [*self._heard(batch), *self._troubles.take(_troubles(window_findings(batch)), last[0])]

    def _heard(self, batch: DataFrame) -> list[Finding]:
        silent = self._silences.open()
        if not silent:
            return []
        published = (
            batch.where((F.col("publishes") > 0) & F.col("client_id").isin(*silent))
            .select("client_id", F.unix_micros("start").alias("start"))
            .orderBy("start", "client_id")
        )
        first: dict[str, int] = {}
        for row in published.collect():
            if row["start"] > silent[row["client_id"]]:
                first.setdefault(row["client_id"], row["start"])
        return [self._silences.heard(client_id, start) for client_id, start in first.items()]


class QueueTeller:
    """What began, goes on and is over in queues."""

    def __init__(self) -> None:
        self._troubles = Troubles()

    @property
    def state(self) -> list[dict[str, Any]]:
        return self._troubles.state

    def restore(self, state: list[dict[str, Any]]) -> None:
        self._troubles = Troubles(state)

    def tell(self, batch: DataFrame) -> list[Finding]:
        last = batch.agg(F.unix_micros(F.max("end"))).first()
        if last is None or last[0] is None:
            return []
        return self._troubles.take(_troubles(queue_findings(batch)), last[0])


def _troubles(found: DataFrame) -> list[Trouble]:
    ordered = found.orderBy("start", "kind", "client_id", "queue", "ordering_key")
    return [Trouble(**row.asDict()) for row in ordered.collect()]


# ---------------------------------------------------------------------------------------------------------- the sink


class Sink:
    """Writes what each batch tells: `<query>-<checkpoint>-<batch>.jsonl`, JSON Lines, complete when it is there.

    What the next batch must know is kept beside Spark's checkpoint, by the number of the batch.
    """

    def __init__(
        self, spark: SparkSession, directory: str, checkpoint: str, name: str, teller: Teller, report: Report
    ) -> None:
        self._directory: Final = directory
        self._checkpoint: Final = checkpoint
        self._name: Final = name
        self._teller: Final = teller
        self._report: Final = report
        self._jvm: Final[Any] = spark.sparkContext._jvm
        root = self._path(directory)
        self._files: Final[Any] = root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        self._files.setWriteChecksum(False)

    def __call__(self, batch: DataFrame, number: int) -> None:
        before = self._path(self._state(number - 1))
        if self._files.exists(before):
            self._teller.restore(json.loads(self._read(before)))
        # Each look at a batch would count again, and write what is kept of it again.
        batch.persist()
        try:
            lines = self._teller.tell(batch)
        finally:
            batch.unpersist()
        kept = [line for line in lines if line["status"] != GOES_ON]
        if kept:
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in kept)
            self._write(f"{self._directory}/{self._name}-{self._query_id()}-{number:06d}.jsonl", text)
        self._write(self._state(number), json.dumps(self._teller.state))
        self._files.delete(self._path(self._state(number - 2)), False)
        if lines:
            self._report(lines)

    def _state(self, number: int) -> str:
        return f"{self._checkpoint}/troubles/{number:06d}.json"

    def _write(self, place: str, text: str) -> None:
        folder, _, name = place.rpartition("/")
        growing = self._path(f"{folder}/.{name}.open")
        stream = self._files.create(growing, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        self._files.delete(self._path(place), False)
        self._files.rename(growing, self._path(place))

    def _read(self, path: Any) -> str:
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def _query_id(self) -> str:
        """Of the checkpoint, which Spark writes before the first batch: batches of another have the same numbers."""
        return str(json.loads(self._read(self._path(f"{self._checkpoint}/metadata")))["id"])[:8]

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(name)


def _reason(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
