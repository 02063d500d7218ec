"""Stores for sessions, queues and retained messages. Every store passes the same behaviour test and knows no MQTT."""
