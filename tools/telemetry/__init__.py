"""Telemetry of a fleet that never was, with troubles that are known.

It knows the broker's files (`docs/reference/telemetry.md`), not its code. Invariant: the same arguments give the same
rows, and the rows of all tables tell of one and the same fleet.
"""
