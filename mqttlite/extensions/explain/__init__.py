"""Explanations: what would become of a message or a subscription, and why. Nothing is published to find out."""
