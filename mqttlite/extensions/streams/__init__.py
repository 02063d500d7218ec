"""Streams, `$stream/<name>`: what was published to their topics, kept by age and size, and read from any place by any
number of readers."""
