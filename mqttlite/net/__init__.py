"""Sockets on one side, the core on the other. Nothing in here knows what an MQTT packet means."""
