"""Bridges to other brokers: topics of one broker are published at the other, in one direction or both."""
