"""Topic names and filters, and the two tables keyed by them. Pure; topics are UTF-8 bytes whose encoding is checked."""
