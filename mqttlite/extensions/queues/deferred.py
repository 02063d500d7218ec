"""Tracks messages that are only in the store because too many others with their ordering key wait before them.

A message whose key is busy waits in the lane of that key. If the lane is full, the message is *deferred*: only its
sequence stays here, and the message is read again when the lane has room. So a stuck key does not block other keys.
Invariants: the deferred sequences of a key rise and come after those in its lane; none is below the floor of
`Retention`, so the store keeps their messages; `flush` is called before the changes are committed.
"""

from collections import deque
from typing import Final, final

from mqttlite.core.effects import Effects
from mqttlite.core.log_changes import LOG_MARK, RemoveRecord, SaveRecord
from mqttlite.extensions.queues.deferred_record import decoded, encoded

DEFERRED_MARK: Final = f"{LOG_MARK}$deferred/"
"""The prefix of record names in the store."""

_BLOCK_SHIFT: Final = 10
"""A record covers 1,024 sequences and takes some kilobytes. It is rewritten when they change."""

_DENSE: Final = 8
"""Messages are read in one page if at least one of this many sequences is wanted."""


@final
class _Block:
    """The deferred sequences of a block, by ordering key."""

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
        """By number, in order."""
        self._blocks_of: Final[dict[str, deque[int]]] = {}
        """For each key the blocks with its messages, in order."""
        self._dirty: Final[set[int]] = set()
        self._saved: Final[set[int]] = set()
        """The changed blocks, and the blocks in the store."""
        self.count: int = 0
        self.size_bytes: int = 0
        """The memory that the messages would take."""

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
        """How many messages of a key are deferred."""
        total = 0
        for number in self._blocks_of.get(key, ()):
            total += len(self._blocks[number].keys[key])
        return total

    def count_from(self, first: int) -> int:
        """How many are deferred from sequence `first` on."""
        total = 0
        for number, block in self._blocks.items():
            if number << _BLOCK_SHIFT >= first:
                total += block.count
            elif (number + 1) << _BLOCK_SHIFT > first:
                for sequences in block.keys.values():
                    total += sum(sequence >= first for sequence in sequences)
        return total

    def sequences(self) -> list[int]:
        """All deferred sequences, in order."""
        found: list[int] = []
        for block in self._blocks.values():
            found += sorted(sequence for sequences in block.keys.values() for sequence in sequences)
        return found

    def next_of(self, key: str, most: int) -> list[int]:
        """The first sequences of a key that lie close together."""
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
        """Defer a message, after all others of its key."""
        self._put(key, sequence)
        block = self._blocks[sequence >> _BLOCK_SHIFT]
        block.size_bytes += size
        self.size_bytes += size
        self._dirty.add(sequence >> _BLOCK_SHIFT)

    def take(self, key: str, sequence: int) -> bool:
        """Remove the first deferred message of a key. False if that is another one, or there is none."""
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
        """Remove these sequences, given in order."""
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
        """Remove all sequences."""
        for number in self._saved:
            self._effects.record(RemoveRecord(f"{DEFERRED_MARK}{self._name}/{number}"))
        self._saved.clear()
        self._dirty.clear()
        self._blocks.clear()
        self._blocks_of.clear()
        self.count = self.size_bytes = 0

    # ------------------------------------------------------------------ the store

    def flush(self) -> None:
        """Record the changed blocks for the store."""
        if not self._dirty:
            return
        for number in sorted(self._dirty):
            block = self._blocks.get(number)
            key = f"{DEFERRED_MARK}{self._name}/{number}"
            if block is not None:
                self._saved.add(number)
                self._effects.record(SaveRecord(key, encoded(block.keys, block.size_bytes)))
            elif number in self._saved:
                self._saved.discard(number)
                self._effects.record(RemoveRecord(key))
        self._dirty.clear()

    def restore(self, number: int, data: bytes) -> None:
        """Restore a block. Call it in the order of blocks."""
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
