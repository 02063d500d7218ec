"""One file per report. A report is a function from frames to a frame; it knows no files and starts nothing.

Invariant: the last `select` of a report names every column it promises, in order.
"""
