"""What can go wrong in a way the user can mend: a sentence to print and the exit code that goes with it.

Anything else is a bug of ours or of Spark's and keeps its traceback.
"""

from typing import ClassVar


class AnalyticsError(Exception):
    """Its text is a sentence for the user."""

    exit_code: ClassVar[int] = 1


class EnvironmentMissing(AnalyticsError):
    """Java or pyspark is not there, is too old, or does not start."""

    exit_code = 3


class InputUnusable(AnalyticsError):
    """No rows, rows of a version we do not know, or files that cannot be read."""

    exit_code = 4


class OutputRefused(AnalyticsError):
    """There is something at the output that we must not touch, or that we may not write."""

    exit_code = 5
