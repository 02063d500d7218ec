"""Which cases a command line chooses, and what load each of them is."""

import pytest

from bench.cases import CASES, GROUPS, compared, names, select


def test_the_groups_are_the_modes_of_the_load_generator() -> None:
    assert GROUPS == ("fleet", "stream", "fanout", "fanin", "wild", "pingpong", "slow", "connect", "durable")


def test_every_case_belongs_to_one_group() -> None:
    grouped = [case.name for group in GROUPS for case in select(group)]
    assert sorted(grouped) == sorted(CASES)
    assert select(None) == [case for case in CASES.values() if not case.durable]


def test_a_quick_restart_stores_what_it_takes() -> None:
    case = CASES["restart-1M"]
    assert case.load_before(quick=True)[-2:] == case.load((), quick=True)[-2:] == ("--count", "10000")
    assert "1000000" in case.load_before(quick=False)
    assert all(case.fresh for case in select("durable"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [("", ()), ("q0", ("q0",)), ("q0,x50", ("q0", "x50")), (" q0 ,, x50,", ("q0", "x50"))],
)
def test_parts_of_names_are_separated_by_commas(text: str, parts: tuple[str, ...]) -> None:
    assert names(text) == parts


def test_a_case_is_chosen_by_any_wanted_part_and_dropped_by_any_unwanted_one() -> None:
    chosen = select("stream", wanted=("q1", "flood"), unwanted=("x50", "4096B"))
    assert [case.name for case in chosen] == ["stream-q1-16B-x1", "stream-q1-256B-x1", "flood-16B-x1"]


def test_no_case_bears_an_unknown_name() -> None:
    assert select("pingpong", wanted=("stream",)) == []


def test_later_arguments_win_so_extra_ones_come_last() -> None:
    load = CASES["pingpong"].load(("--secs", "9"), quick=True)
    assert load == ("--mode", "pingpong", "--size", "16", "--secs", "1", "--secs", "0.3", "--drain", "1", "--secs", "9")


def test_a_quick_connect_opens_fewer_connections_and_keeps_its_time_limit() -> None:
    load = CASES["connect-5000"].load((), quick=True)
    assert load.count("--secs") == 1
    assert load[-4:] == ("--conns", "500", "--hold", "0.1")


def test_only_qos_0_without_wildcards_can_do_without_a_broker() -> None:
    raw = {case.group for case in CASES.values() if case.raw}
    assert raw == {"stream", "fanout", "fanin", "pingpong"}
    assert not any(case.raw for case in CASES.values() if "-q1-" in case.name or "-q2-" in case.name)


def test_unbounded_qos_0_is_called_a_flood() -> None:
    unbounded = {
        case.name
        for case in select("stream") + select("fanout")
        if not {"--lag", "--rate"} & set(case.arguments) and "-q1-" not in case.name and "-q2-" not in case.name
    }
    assert unbounded == {name for name in CASES if "flood" in name}


def test_the_comparison_has_every_kind_of_work_and_no_flood() -> None:
    chosen = compared()
    assert {case.table for case in chosen} == {case.table for case in select(None)} - {"flooded: no bound but TCP"}
    assert [case.name for case in compared(wanted=("pingpong", "flood"))] == ["pingpong"]


def test_titles_tell_the_cases_of_a_table_apart() -> None:
    told = [(case.table, case.title) for case in CASES.values()]
    assert len(told) == len(set(told))


def test_a_case_is_over_tls_if_its_load_is() -> None:
    assert {name for name, case in CASES.items() if case.tls} == {name for name in CASES if name.startswith("tls-")}
