"""Shortens the reasons of refusals: a file may hold lines of any length and characters that a terminal obeys."""

from typing import Final

MAX_SHOWN: Final = 1_000
"""The most characters of a reason. Sentences have some hundred; the rest quotes a file."""


def one_line(reason: str) -> str:
    """A reason that is safe to print: without the end of a long one, and with control characters as escapes."""
    if len(reason) > MAX_SHOWN:
        half = MAX_SHOWN // 2  # the end of a sentence is often its advice
        reason = f"{reason[:half]}…{reason[-half:]}"
    return printable(reason)


def printable(text: str) -> str:
    """A text of any length with control characters as escapes, so that it neither steers the terminal nor ends a
    line."""
    return text if text.isprintable() else "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)
