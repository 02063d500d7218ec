"""Queues that deliver (`$queue/<name>`): each message is acknowledged, or comes to one other end that is known."""
