"""Quotas, and what happens when the broker has more work than time."""
