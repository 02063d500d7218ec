"""The error in an expression: its position, what was found, what was expected, and an example."""

from typing import Final


class FilterError(ValueError):
    """`position` counts characters from 1. An error of the whole expression has no example."""

    def __init__(self, position: int, problem: str, example: str) -> None:
        super().__init__(f"position {position}: {problem}; such as {example}" if example else problem)
        self.position: Final = position
        self.problem: Final = problem
        self.example: Final = example
