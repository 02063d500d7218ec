"""Who moves how much."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_analytics.schema import CLIENT_ID, DURATION_S


def traffic_by_client(sessions: DataFrame) -> DataFrame:
    """One row per client: PUBLISH packets by QoS and MQTT bytes, both ways as the broker sees them."""
    counters = [f"{way}_{what}" for way in ("received", "sent") for what in ("qos0", "qos1", "qos2")]
    return (
        sessions.groupBy(CLIENT_ID)
        .agg(
            F.count("*").alias("sessions"),
            F.sum(DURATION_S).alias("connected_s"),
            *(F.sum(name).alias(name) for name in counters),
            F.sum("bytes_received").alias("bytes_received"),
            F.sum("bytes_sent").alias("bytes_sent"),
        )
        .select(
            CLIENT_ID,
            "sessions",
            "connected_s",
            F.expr("received_qos0 + received_qos1 + received_qos2").alias("messages_received"),
            F.expr("sent_qos0 + sent_qos1 + sent_qos2").alias("messages_sent"),
            "bytes_received",
            "bytes_sent",
            *counters,
        )
    )
