"""Who of a group reads which partitions: as evenly as can be, and with as few changes as can be (Kafka's KIP-54)."""

from collections.abc import Sequence


def assigned(owners: Sequence[int], members: int) -> list[int]:
    """The owners of the partitions when there are `members` (numbered from 0): -1 is nobody, before and after.

    Each member gets the whole part of partitions by members, or one more. It keeps what it has up to that.
    """
    if not members:
        return [-1] * len(owners)
    least, more = divmod(len(owners), members)
    counts = [0] * members
    for owner in owners:
        if owner >= 0:
            counts[owner] += 1
    most = [least] * members
    for member in sorted(range(members), key=lambda each: -counts[each])[:more]:
        most[member] += 1  # those with the most keep one more
    left = most[:]
    found = [-1] * len(owners)
    free: list[int] = []
    for partition, owner in enumerate(owners):
        if owner >= 0 and left[owner] > 0:
            left[owner] -= 1
            found[partition] = owner
        else:
            free.append(partition)
    member = 0
    for partition in free:
        while left[member] == 0:
            member += 1
        left[member] -= 1
        found[partition] = member
    return found
