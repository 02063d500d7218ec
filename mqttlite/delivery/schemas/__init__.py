"""The schema registry: JSON Schema and Avro schemas by subject and version, and checks of payloads against them.

`registry` says what is kept and which schema may follow which, `service` keeps it on disk, `api` is its HTTP interface
in the shape of Confluent's Schema Registry, and `topic_schema` checks messages. The libraries of the extra `schemas`
are imported in `json_schema` and `avro_schema` alone.
"""
