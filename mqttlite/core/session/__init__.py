"""Sessions: their subscriptions, queues, windows and wills."""
