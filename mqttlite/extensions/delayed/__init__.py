"""Delayed messages: messages to `$delayed/<seconds>/<topic>`, which the core keeps until they are due."""
