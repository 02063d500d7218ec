"""What is counted at the allocator."""

import pytest

from bench.micro.allocations import allocations


@pytest.mark.long
def test_contents_of_the_result_are_made_and_not_kept() -> None:
    counted = allocations(lambda: [bytes([1, number % 200]) for number in range(100)], 100)
    assert 0.95 <= counted["blocks_made"] <= 1.1
    assert abs(counted["blocks_kept"]) <= 0.05


@pytest.mark.long
def test_remaining_entries_are_kept() -> None:
    heap: list[bytes] = []
    counted = allocations(lambda: heap.extend([bytes([1, number % 200]) for number in range(100)]), 100)
    assert 1.0 <= counted["blocks_kept"] <= 1.1


@pytest.mark.long
def test_memory_that_is_released_again_is_in_the_peak() -> None:
    counted = allocations(lambda: len(bytes(100_000)), 10)
    assert 10_000 <= counted["peak_bytes"] <= 11_000
    assert abs(counted["blocks_made"]) <= 0.5
