"""The schema registry: JSON Schema and Avro schemas by subject and version, and payload checks.

`registry` holds the schemas and their compatibility rules, `service` persists it, `api` is the HTTP interface in the
form of Confluent's Schema Registry, and `topic_schema` checks messages. Only `json_schema` and `avro_schema` import the
libraries of the extra `schemas`.
"""
