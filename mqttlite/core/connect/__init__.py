"""Clients that connect, log in, and leave."""
