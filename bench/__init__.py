"""How fast is the broker, and beside what: `python -m bench --help`; docs/howto/benchmark.md tells how to read it.

`loadgen/` puts the load on a broker, the modules here choose cases, start brokers, measure in turn and print tables.
"""
