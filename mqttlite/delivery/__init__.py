"""Delivery features beyond MQTT: the queues."""
