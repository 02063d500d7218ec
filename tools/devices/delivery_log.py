"""What one subscriber has received of each device's numbered messages: which are missing, which came twice.

Invariant: memory is proportional to what is missing, since messages mostly come in order.
"""

from collections.abc import Iterable, Sequence
from typing import Final


class DeliveryLog:
    """Devices number their messages 0, 1, 2 …; the order of arrival does not matter."""

    def __init__(self, devices: int) -> None:
        self.received = 0
        """Different messages."""
        self.duplicates = 0
        self._next: Final = [0] * devices
        self._missing: Final[dict[int, set[int]]] = {}

    def on_message(self, device: int, number: int) -> None:
        """Note an arrival."""
        expected = self._next[device]
        if number >= expected:
            if number > expected:
                self._missing.setdefault(device, set()).update(range(expected, number))
            self._next[device] = number + 1
            self.received += 1
        elif number in self._missing.get(device, ()):
            self._missing[device].discard(number)
            self.received += 1
        else:
            self.duplicates += 1

    def lost(self, sent: Sequence[int], excused: Iterable[tuple[int, int]] = ()) -> int:
        """How many of each device's first `sent` messages never came; `excused` are (device, number) pairs."""
        missing = sum(len(numbers) for numbers in self._missing.values())
        missing += sum(max(count - came, 0) for count, came in zip(sent, self._next, strict=True))
        return missing - sum(not self._has(device, number) for device, number in excused)

    def _has(self, device: int, number: int) -> bool:
        return number < self._next[device] and number not in self._missing.get(device, ())
