"""Connects sockets with the core. Nothing in this package knows what an MQTT packet means."""
