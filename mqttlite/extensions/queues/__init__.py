"""Queues, `$queue/<name>`: each message is delivered until a consumer acknowledges it."""
