"""Messages that wait behind so many others of their ordering key that only the store has them.

A queue takes its messages in their order. One whose key is busy waits in the lane of that key; where the lane is full,
it is *deferred*: its sequence stays here, and the message is read again when the lane has room. So a stuck key holds up
no other. Invariants: the deferred sequences of a key rise and are all behind those in its lane; the store keeps these
messages, for none is below the floor of `Retention`; and `flush` is called before the changes are committed.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.changes import QUEUE_MARK, EndSession, SaveQueue
from mqttlite.core.effects import Effects
from mqttlite.delivery.queues.deferred_record import decoded, encoded

DEFERRED_MARK: Final = f"{QUEUE_MARK}$deferred/"
"""What the names of their records in the store begin with."""

_BLOCK_SHIFT: Final = 10
"""A record has what is deferred of 1,024 sequences: it is written again when that changes, and has some kilobytes."""

_DENSE: Final = 8
"""Messages are read together where at least one in so many is wanted."""


@final
class _Block:
    """By ordering key, the deferred sequences of a block."""

    __slots__ = ("count", "keys", "size_bytes")

    def __init__(self) -> None:
        self.keys: Final[dict[str, list[int]]] = {}
        self.count: int = 0
        self.size_bytes: int = 0


@final
class Deferred:
    """`name` is that of the queue."""

    __slots__ = ("_blocks", "_blocks_of", "_dirty", "_effects", "_name", "_saved", "count", "size_bytes")

    def __init__(self, name: str, effects: Effects) -> None:
        self._name: Final = name
        self._effects: Final[Effects] = effects
        self._blocks: Final[dict[int, _Block]] = {}
        """By number, in their order."""
        self._blocks_of: Final[dict[str, deque[int]]] = {}
        """By key, the blocks with messages of it, in their order."""
        self._dirty: Final[set[int]] = set()
        self._saved: Final[set[int]] = set()
        """Blocks that the store has to write, and those that it has."""
        self.count: int = 0
        self.size_bytes: int = 0
        """What the messages would take in memory."""

    # ------------------------------------------------------------------ look

    def __contains__(self, key: str) -> bool:
        return key in self._blocks_of

    @property
    def keys(self) -> list[str]:
        return list(self._blocks_of)

    @property
    def first(self) -> int:
        """The lowest deferred sequence, while there is one."""
        for block in self._blocks.values():
            return min(sequences[0] for sequences in block.keys.values())
        return 0

    def count_of(self, key: str) -> int:
        """How many of a key are deferred."""
        total = 0
        for number in self._blocks_of.get(key, ()):
            total += len(self._blocks[number].keys[key])
        return total

    def count_from(self, first: int) -> int:
        """How many are deferred from that sequence on."""
        total = 0
        for number, block in self._blocks.items():
            if number << _BLOCK_SHIFT >= first:
                total += block.count
            elif (number + 1) << _BLOCK_SHIFT > first:
                for sequences in block.keys.values():
                    total += sum(sequence >= first for sequence in sequences)
        return total

    def sequences(self) -> list[int]:
        """All of them, in their order."""
        found: list[int] = []
        for block in self._blocks.values():
            found += sorted(sequence for sequences in block.keys.values() for sequence in sequences)
        return found

    def next_of(self, key: str, most: int) -> list[int]:
        """The first sequences of a key, as far as they lie close together."""
        blocks = self._blocks_of.get(key)
        if blocks is None:
            return []
        found: list[int] = []
        if most <= 0:
            return found
        for sequence in self._blocks[blocks[0]].keys[key]:
            if len(found) == most or (found and sequence - found[0] >= _DENSE * (len(found) + 1)):
                break
            found.append(sequence)
        return found

    # ------------------------------------------------------------------ change

    def add(self, key: str, sequence: int, size: int) -> None:
        """A message is deferred; it comes behind all others of its key."""
        self._put(key, sequence)
        block = self._blocks[sequence >> _BLOCK_SHIFT]
        block.size_bytes += size
        self.size_bytes += size
        self._dirty.add(sequence >> _BLOCK_SHIFT)

    def take(self, key: str, sequence: int) -> bool:
        """The first deferred message of a key is deferred no longer; False: it is another, or none."""
        blocks = self._blocks_of.get(key)
        if blocks is None:
            return False
        number = blocks[0]
        block = self._blocks[number]
        sequences = block.keys[key]
        if sequences[0] != sequence:
            return False
        del sequences[0]
        if not sequences:
            del block.keys[key]
            blocks.popleft()
            if not blocks:
                del self._blocks_of[key]
        self._remove(number, block, 1)
        return True

    def drop(self, wanted: list[int]) -> None:
        """These are deferred no longer; they are in their order."""
        dropped = set(wanted)
        if not dropped:
            return
        for number, block in list(self._blocks.items()):
            for key, sequences in list(block.keys.items()):
                left = [sequence for sequence in sequences if sequence not in dropped]
                gone = len(sequences) - len(left)
                if not gone:
                    continue
                if left:
                    block.keys[key] = left
                else:
                    del block.keys[key]
                    blocks = self._blocks_of[key]
                    blocks.remove(number)
                    if not blocks:
                        del self._blocks_of[key]
                self._remove(number, block, gone)

    def clear(self) -> None:
        """None is deferred."""
        for number in self._saved:
            self._effects.record(EndSession(f"{DEFERRED_MARK}{self._name}/{number}"))
        self._saved.clear()
        self._dirty.clear()
        self._blocks.clear()
        self._blocks_of.clear()
        self.count = self.size_bytes = 0

    # ------------------------------------------------------------------ the store

    def flush(self) -> None:
        """Have the store know what has changed."""
        if not self._dirty:
            return
        for number in sorted(self._dirty):
            block = self._blocks.get(number)
            key = f"{DEFERRED_MARK}{self._name}/{number}"
            if block is not None:
                self._saved.add(number)
                self._effects.record(SaveQueue(key, encoded(block.keys, block.size_bytes)))
            elif number in self._saved:
                self._saved.discard(number)
                self._effects.record(EndSession(key))
        self._dirty.clear()

    def restore(self, number: int, data: bytes) -> None:
        """Put back a block; they come in their order."""
        keys, size_bytes = decoded(data)
        for key, sequences in keys.items():
            for sequence in sequences:
                self._put(key, sequence)
        self._blocks[number].size_bytes = size_bytes
        self.size_bytes += size_bytes
        self._saved.add(number)

    # ------------------------------------------------------------------ inside

    def _put(self, key: str, sequence: int) -> None:
        number = sequence >> _BLOCK_SHIFT
        block = self._blocks.get(number)
        if block is None:
            block = self._blocks[number] = _Block()
        sequences = block.keys.get(key)
        if sequences is None:
            sequences = block.keys[key] = []
            blocks = self._blocks_of.get(key)
            if blocks is None:
                blocks = self._blocks_of[key] = deque()
            blocks.append(number)
        sequences.append(sequence)
        block.count += 1
        self.count += 1

    def _remove(self, number: int, block: _Block, removed: int) -> None:
        size = block.size_bytes * removed // block.count
        block.count -= removed
        block.size_bytes -= size
        self.count -= removed
        self.size_bytes -= size
        self._dirty.add(number)
        if not block.count:
            del self._blocks[number]
