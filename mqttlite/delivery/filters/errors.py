"""What is wrong with an expression: where, what was found there, what is expected, and an example."""

from typing import Final


class FilterError(ValueError):
    """`position` counts characters from 1. What is wrong with all of an expression has no example."""

    def __init__(self, position: int, problem: str, example: str) -> None:
        super().__init__(f"position {position}: {problem}; such as {example}" if example else problem)
        self.position: Final = position
        self.problem: Final = problem
        self.example: Final = example
