"""Single parts of the broker under pytest-benchmark, and one message's way through a real one.

Run by `python -m pytest bench/micro`; not part of the tests, which never judge a time. docs/howto/benchmark.md tells
how to read it.
"""
