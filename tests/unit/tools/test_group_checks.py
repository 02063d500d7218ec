"""The judge of `tools/torture --stream` sees each kind of fault that it looks for."""

from dataclasses import replace

import pytest

from tools.torture_group_checks import KILL, Fault, Got, Verdict, judge

WINDOW = 2


def got(offset: int, *, member: str = "m0", connection: int = 1, partition: int = 0, at: float = 0.0) -> Got:
    """A message whose number is its offset, read 10 ms after it was published."""
    read_at = at or 100.0 + offset
    return Got(member, connection, partition, offset, offset, read_at - 0.01, read_at - 0.02, read_at)


GROUP = [got(offset) for offset in range(6)]
ALONE = [each._replace(member="alone") for each in GROUP]
LEAVE = Fault("leaves", 102.5, 102.7, 2, moves=1, went=frozenset(("m0",)))


def judged(group: list[Got], faults: list[Fault] | None = None, alone: list[Got] | None = None) -> Verdict:
    return judge(set(range(6)), group, ALONE if alone is None else alone, faults or [], 2, WINDOW)


def test_a_run_without_a_fault_is_good() -> None:
    verdict = judged(GROUP)
    assert verdict.is_good, str(verdict)
    assert (verdict.acknowledged, verdict.deliveries) == (6, 6)
    assert not judge(set(), [], [], [], 1, 1).is_good, "nothing was published"


def test_a_message_that_no_member_or_reader_had_is_lost() -> None:
    assert judged(GROUP[:-1]).lost == 1
    assert judged(GROUP, alone=ALONE[1:]).lost == 1


def test_two_messages_at_an_offset_disagree() -> None:
    assert judged([*GROUP[:-1], GROUP[-1]._replace(offset=4, number=5)]).disagreements == 1


@pytest.mark.parametrize("is_group", [True, False])
def test_a_connection_gets_the_offsets_of_a_partition_in_order(is_group: bool) -> None:
    swapped = [*GROUP[:2], GROUP[3], GROUP[2], *GROUP[4:]]
    twice = [*GROUP, GROUP[5]]
    for wrong, backward, skipped in ((swapped, 1, 2), (twice, 1, 0), ([*GROUP[:2], *GROUP[3:]], 0, 1)):
        verdict = judged(wrong) if is_group else judged(GROUP, alone=wrong)
        assert (verdict.backward, verdict.skipped) == (backward, skipped)


def test_a_partition_may_be_elsewhere_while_members_come_and_go() -> None:
    away = [*GROUP[:3], got(3, member="m1", connection=2, at=102.6), got(4, at=102.65), got(5)]
    assert judged(away, [LEAVE]).is_good
    assert judged(away).skipped == 1


def test_one_member_at_a_time_reads_a_partition() -> None:
    other = [*GROUP[:3], *(got(offset, member="m1", connection=2) for offset in (3, 4)), got(5)]
    faults = [LEAVE, replace(LEAVE, since=110.0, settled=110.1)]
    assert judged(other, faults).two_owners == 1
    late = [each._replace(sent_after=90.0) if each.offset == 5 else each for each in other]
    assert judged(late, faults).two_owners == 0, "it may have been sent before"


def test_no_more_come_twice_than_the_window_of_those_that_went() -> None:
    for count, beyond in ((2, 0), (3, 1)):
        again = [got(offset, member="m1", connection=2, at=102.6 + offset / 100) for offset in range(3 - count, 3)]
        group = sorted([*GROUP, *again], key=lambda each: each.read_at)
        verdict = judged(group, [LEAVE])
        assert (verdict.twice, verdict.over_window) == (count, beyond)
        assert judged(group, [replace(LEAVE, went=frozenset())]).over_window == count
        killed = judged(group, [replace(LEAVE, kind=KILL)])
        assert (killed.over_window, killed.twice_after_kills) == (0, count)


def test_a_member_that_goes_moves_its_partitions_and_one_more_at_most() -> None:
    assert judged(GROUP, [replace(LEAVE, moves=2)]).too_many_moves == 0
    assert judged(GROUP, [replace(LEAVE, moves=3)]).too_many_moves == 1
    assert judged(GROUP, [replace(LEAVE, moves=1, changes=0)]).too_many_moves == 1


def test_a_pause_is_that_of_partitions_whose_reader_stayed() -> None:
    stayed = [got(at, member="m1", partition=1, at=102.4 + at / 5)._replace(number=0) for at in range(3)]
    slow = stayed[-1]._replace(published_at=102.55)
    verdict = judged([*GROUP, *stayed[:-1], slow], [LEAVE])
    assert verdict.pauses_s == [pytest.approx(slow.read_at - 102.55)]
    assert not judged(GROUP, [LEAVE]).pauses_s, "its only reader went"
    assert "too many" in str(verdict)


def test_a_pause_is_not_that_of_another_fault() -> None:
    stayed = [got(at, member="m1", partition=1, at=102.4 + at / 5)._replace(number=0) for at in range(3)]
    group = [*GROUP, *stayed[:-1], stayed[-1]._replace(published_at=102.55)]
    stop = Fault("short stops", 103.2, 103.9, 2, changes=0, went=frozenset(("m1",)))
    assert not judged(group, [LEAVE, stop]).pauses_s, "the reader was stopped soon after"
    assert judged(group, [LEAVE, replace(stop, since=110.0, settled=110.1)]).pauses_s
    killed = replace(stop, kind=KILL, went=frozenset(), since=101.0, settled=102.0)
    assert not judged(group, [killed, LEAVE]).pauses_s, "all were behind"
