"""Delivery features beyond MQTT: filters, queues, push, schemas. These packages do not import each other."""
