"""Several nodes that serve at the same time: how much each does for its clients, and what crosses between them.

A node is the client `$node/<name>` of each other one, and its clients that use something there are
`$node/<name>/<client id>`. Invariant: without such clients, as of a broker alone, there is
no row.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_analytics import units
from spark_analytics.frames import INFORMATION, NOTABLE, Finding, Frames
from spark_analytics.tables import Chart, Table, Tables

PREFIX: Final = "$node/"

HOT_TIMES: Final = 1.5
HOT_MESSAGES: Final = 1_000
"""A node is hot if it has so many times an even share of the messages of clients, and so many messages."""


def is_node() -> Column:
    """Whether a client is another node, or belongs to one."""
    return F.col("client_id").startswith(PREFIX)


def names_of_nodes(frames: Frames) -> DataFrame:
    """The names of all nodes, each once: `node`."""
    clients = frames.events.select("client_id").unionByName(frames.activity.select("client_id"))
    return clients.where(is_node()).select(_name().alias("node")).distinct()


def nodes(frames: Frames) -> DataFrame:
    """One row per node. `messages_in` and `messages_out` are those of its clients, `share` is its part of those of all
    nodes. What crosses is counted where it leaves (`crossed_out`) and where it comes in (`crossed_in`)."""
    named = _nodes_of_runs(frames)
    moved = (
        frames.activity.join(named, "broker_id")
        .groupBy("node")
        .agg(
            *(
                F.sum(F.when(condition, F.col(column)).otherwise(0)).alias(name)
                for name, condition, column in (
                    ("messages_in", ~is_node(), "messages_received"),
                    ("messages_out", ~is_node(), "messages_sent"),
                    ("crossed_in", is_node(), "messages_received"),
                    ("crossed_out", is_node(), "messages_sent"),
                )
            )
        )
    )
    clients = (
        frames.events.where((F.col("event") == "connected") & ~is_node())
        .select("broker_id", "client_id")
        .join(named, "broker_id")
        .groupBy("node")
        .agg(F.countDistinct("client_id").alias("clients"))
    )
    every = named.select("node").distinct().join(moved, "node", "left").join(clients, "node", "left")
    work = F.coalesce(F.col("messages_in") + F.col("messages_out"), F.lit(0))
    total = every.agg(F.sum(work).alias("total"))
    return every.crossJoin(total).select(
        "node",
        F.coalesce("clients", F.lit(0)).alias("clients"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("messages_in", "messages_out")),
        F.coalesce(work / F.nullif("total", F.lit(0)), F.lit(0.0)).alias("share"),
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("crossed_in", "crossed_out")),
    )


def crossings(frames: Frames) -> DataFrame:
    """One row per pair of nodes of which one has sent messages to the other, or has some that wait for it."""
    return (
        frames.activity.where(is_node())
        .join(_nodes_of_runs(frames), "broker_id")
        .groupBy(F.col("node").alias("from_node"), _name().alias("to_node"))
        .agg(
            F.sum("messages_sent").alias("messages"),
            F.sum("bytes_sent").alias("bytes"),
            F.sum("dropped").alias("dropped"),
            F.max("queued").alias("waiting_max"),
        )
    )


def _name() -> Column:
    """The name of the node that a client is, or belongs to."""
    return F.split("client_id", "/")[1]


def _nodes_of_runs(frames: Frames) -> DataFrame:
    """The node of each run of a broker that had another node as its client. It is named by the broker, or by its run.
    The machines of a cluster are named apart."""
    rows = [frames.events, frames.activity]
    with_nodes = rows[0].where(is_node()).select("broker_id").union(rows[1].where(is_node()).select("broker_id"))
    named = frames.events.groupBy("broker_id").agg(F.max("node").alias("named"))
    return (
        with_nodes.distinct()
        .join(named, "broker_id", "left")
        .select("broker_id", F.coalesce("named", "broker_id").alias("node"))
    )


def findings(tables: Tables) -> list[Finding]:
    """A node that does much more than the others, and how much crosses."""
    found = tables["nodes"].orderBy(F.desc("share"), "node").collect()  # 65 at most, in each run
    if len(found) < 2:
        return []
    first = found[0]
    said = []
    if first["share"] * len(found) > HOT_TIMES and first["messages_in"] + first["messages_out"] >= HOT_MESSAGES:
        said.append(
            Finding(
                NOTABLE,
                f"Node {first['node']} moved {units.share(first['share'])} of the messages of the clients of"
                f" {len(found)} nodes.",
                "nodes",
            )
        )
    crossed, came = (sum(row[name] for row in found) for name in ("crossed_out", "messages_in"))
    if crossed and came:
        pair = tables["crossings"].orderBy(F.desc("messages"), "from_node", "to_node").first()
        assert pair is not None, "something crossed"
        said.append(
            Finding(
                INFORMATION,
                f"{units.some(crossed, 'message')} crossed from node to node, and {units.some(came, 'message')} came"
                f" from clients; most crossed from {pair['from_node']} to {pair['to_node']}.",
                "crossings",
            )
        )
    return said


TABLES: Final = (
    Table(
        "nodes",
        "Work of nodes",
        "One row for each of several nodes that serve at the same time, the busiest first. messages in and out are"
        " those of its clients, share is its part of those of all nodes: with an even spread all shares are the same."
        " crossed in and out are messages from and to other nodes: where much crosses, clients that talk to each other"
        " are at different nodes.",
        nodes,
        ("-share", "node"),
        Chart("bars", "node", ("messages_in", "messages_out"), title="Messages of clients by node"),
        empty="The broker is none of several nodes.",
    ),
    Table(
        "crossings",
        "Messages between nodes",
        "One row for each node and another one to which it sent messages, the most first, by what the sender counts."
        " waiting max is the most that waited for the other node at the end of an interval: it was away, or slow.",
        crossings,
        ("-messages", "from_node", "to_node"),
        empty="Nothing crossed from node to node.",
    ),
)
