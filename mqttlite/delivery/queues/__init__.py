"""Queues (`$queue/<name>`): each message is acknowledged, dead-lettered, expired or purged, exactly once."""
