"""Presence by topic: who subscribes to the topics whose policies ask for it."""
