"""Something that fails, and is tried again and again: the log says when that begins and when it ends, and no more."""

import logging
from typing import Final


class Trouble:
    """`begun` and `ended` are what the log says."""

    def __init__(self, log: logging.Logger, begun: str, ended: str) -> None:
        self._log: Final = log
        self._begun: Final = begun
        self._ended: Final = ended
        self._is_on = False

    def failed(self, error: Exception) -> None:
        """It has failed, perhaps again."""
        if not self._is_on:
            self._is_on = True
            self._log.warning("%s, trying again: %s", self._begun, error)

    def worked(self) -> None:
        """It was done."""
        if self._is_on:
            self._is_on = False
            self._log.info("%s", self._ended)
