"""Reports about MQTT brokers and their clients, computed by Apache Spark from the dataset that brokers write.

Run it with `python -m spark_analytics report --input DIR --out DIR`. It knows the files, described in
`docs/reference/telemetry.md`, and nothing of the broker's code.

Invariant: importing this package imports neither pyspark nor the broker; a report does the former.
"""
