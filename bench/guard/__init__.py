"""What the core costs in instructions, which do not depend on how busy the machine is: `python -m bench guard`.

`driver` runs fixed work on the core inside valgrind, `counting` runs the driver and reads the counts, `judge` compares
them with `kept.json`. Counts are shares of a fixed loop's (`calibration`), so that what the interpreter itself costs
cancels out as far as it can.
"""
