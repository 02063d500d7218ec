"""Requests of one node to the application of another: in pieces, each answered once, within limits."""

import asyncio
from collections.abc import Callable

import pytest

from mqttlite.extensions.nodes import calls as calls_module
from mqttlite.extensions.nodes.blobs import More, Note, Part
from mqttlite.extensions.nodes.calls import (
    MAX_ALL_ANSWERS,
    MAX_ANSWERS,
    MAX_BYTES,
    MAX_CALLS,
    MAX_WAITING,
    PIECE_BYTES,
    REFUSED,
    Answering,
    Calls,
    NoAnswer,
)

LONG_S = 10.0


class Way:
    """Carries the notes of a node to another one, later, and keeps them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_connected = True
        self.notes: list[Note] = []
        self.hears: Callable[[Note], None] = lambda _note: None

    def note(self, note: Note) -> None:
        if self.is_connected:
            self.notes.append(note)
            asyncio.get_running_loop().call_soon(self.hears, note)


class Two:
    """Nodes `a` and `b`, which hear each other."""

    def __init__(self) -> None:
        self.to_b, self.to_a = Way("b"), Way("a")
        self.a, self.b = Calls({"b": self.to_b}), Calls({"a": self.to_a})
        self.to_b.hears = lambda note: self.b.on_note(self.to_a, note)
        self.to_a.hears = lambda note: self.a.on_note(self.to_b, note)

    def answer(self, answer: Answering) -> None:
        """How `b` answers."""
        self.b.answer = answer


async def reversed_(node: str, request: bytes) -> bytes:
    assert node == "a"
    return request[::-1]


async def never(_node: str, _request: bytes) -> bytes:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


@pytest.mark.parametrize("size", [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 5 * PIECE_BYTES + 7, MAX_BYTES])
async def test_a_request_and_its_answer_arrive_whole_in_small_pieces_one_after_the_other(size: int) -> None:
    two = Two()
    two.answer(reversed_)
    request = bytes(range(256)) * (size // 256 + 1)
    assert await two.a.ask("b", request[:size], LONG_S) == request[:size][::-1]
    for notes in (two.to_a.notes, two.to_b.notes):
        pieces = [len(note.data) for note in notes if isinstance(note, Part)]
        assert sum(pieces) == size
        assert max(pieces) <= PIECE_BYTES
    assert sum(isinstance(note, More) for note in two.to_a.notes) == -(-size // PIECE_BYTES) - 1


async def test_the_next_piece_waits_until_the_one_before_was_taken() -> None:
    two = Two()
    two.to_b.hears = lambda _note: None
    asked = asyncio.create_task(two.a.ask("b", bytes(3 * PIECE_BYTES), LONG_S))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(two.to_b.notes) == 1
    two.a.on_note(two.to_b, More(1, False))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(two.to_b.notes) == 2
    asked.cancel()


async def test_several_requests_are_answered_each_with_its_own_answer() -> None:
    two = Two()

    async def later(_node: str, request: bytes) -> bytes:
        await asyncio.sleep(0.01 if request == b"0" else 0)
        return request * PIECE_BYTES * 2

    two.answer(later)
    requests = [b"%d" % number for number in range(MAX_CALLS)]
    answers = await asyncio.gather(*(two.a.ask("b", each, LONG_S) for each in requests))
    assert answers == [each * PIECE_BYTES * 2 for each in requests]


async def test_a_node_that_is_away_or_unknown_is_said_so() -> None:
    two = Two()
    two.to_b.is_connected = False
    for name in ("b", "c"):
        with pytest.raises(NoAnswer, match=r"^is away$"):
            await two.a.ask(name, b"x", LONG_S)


async def test_a_node_that_hangs_is_waited_for_only_so_long_and_then_answers_again() -> None:
    two = Two()
    two.answer(never)
    with pytest.raises(NoAnswer, match=r"^did not answer within 0\.01 s$"):
        await two.a.ask("b", b"x", 0.01)
    two.answer(reversed_)
    assert await two.a.ask("b", b"ab", LONG_S) == b"ba"
    await two.b.stop()


async def test_an_answer_that_comes_too_late_is_left_alone() -> None:
    two = Two()
    for late in (Part(7, True, b"late", True), Part(7, True, b"late", False), More(7, True)):
        two.a.on_note(two.to_b, late)
    await asyncio.sleep(0)
    assert two.to_b.notes == []


async def test_requests_and_answers_end_when_the_node_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "MAX_ANSWERS", 1)
    two = Two()
    two.answer(never)
    asked = asyncio.create_task(two.a.ask("b", b"x", LONG_S))
    await asyncio.sleep(0.01)
    two.a.on_away("c")
    await asyncio.sleep(0)
    assert not asked.done()
    two.a.on_away("b")
    two.b.on_away("a")
    with pytest.raises(NoAnswer, match=r"^went away before it answered$"):
        await asked
    two.answer(reversed_)
    assert await two.a.ask("b", b"ab", LONG_S) == b"ba"


async def test_a_request_waits_for_a_place_and_then_is_answered() -> None:
    two = Two()
    under_way = 0
    most = 0

    async def slowly(_node: str, request: bytes) -> bytes:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.005)
        under_way -= 1
        return request

    two.answer(slowly)
    requests = [b"%d" % number for number in range(5 * MAX_CALLS)]
    assert await asyncio.gather(*(two.a.ask("b", each, LONG_S) for each in requests)) == requests
    assert most == MAX_CALLS


async def test_a_request_waits_for_a_place_no_longer_than_for_its_answer_and_was_not_sent() -> None:
    two = Two()
    two.answer(never)
    asked = [asyncio.create_task(two.a.ask("b", b"x", LONG_S)) for _ in range(MAX_CALLS)]
    await asyncio.sleep(0)
    with pytest.raises(NoAnswer, match=rf"^did not answer {MAX_CALLS} other requests within 0\.01 s$") as found:
        await two.a.ask("b", b"x", 0.01)
    assert not found.value.was_sent
    assert len(two.to_b.notes) == MAX_CALLS
    asked[0].cancel()
    await asyncio.gather(asked[0], return_exceptions=True)
    with pytest.raises(NoAnswer, match=r"^did not answer within 0\.02 s$") as found:
        await two.a.ask("b", b"x", 0.02)
    assert found.value.was_sent
    for each in asked:
        each.cancel()
    await two.b.stop()


async def test_a_call_that_waits_for_a_place_has_less_time_for_its_answer() -> None:
    two = Two()
    two.answer(never)
    first = [asyncio.create_task(two.a.ask("b", b"x", 0.4)) for _ in range(MAX_CALLS)]
    await asyncio.sleep(0)
    last = asyncio.create_task(two.a.ask("b", b"x", 1.4))
    await asyncio.gather(*first, last, return_exceptions=True)
    given = [note.within_ms for note in two.to_b.notes if isinstance(note, Part)]
    assert given[:MAX_CALLS] == pytest.approx([400] * MAX_CALLS, abs=200)
    assert given[MAX_CALLS] <= 1_200


async def test_more_requests_than_may_wait_for_a_node_are_refused() -> None:
    two = Two()
    two.answer(never)
    asked = [asyncio.create_task(two.a.ask("b", b"x", LONG_S)) for _ in range(MAX_CALLS + MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(NoAnswer, match=f"^has not answered the {MAX_CALLS + MAX_WAITING} requests before$"):
        await two.a.ask("b", b"x", LONG_S)
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await two.b.stop()


async def test_requests_that_wait_for_a_node_end_when_it_goes_away() -> None:
    two = Two()
    two.answer(never)
    asked = [asyncio.create_task(two.a.ask("b", b"x", LONG_S)) for _ in range(MAX_CALLS + 2)]
    await asyncio.sleep(0)
    two.to_b.is_connected = False
    two.a.on_away("b")
    said = [str(each) for each in await asyncio.gather(*asked, return_exceptions=True)]
    assert said == ["went away before it answered"] * MAX_CALLS + ["is away"] * 2
    await two.b.stop()


async def test_a_request_that_was_given_up_has_no_place_at_the_other_node() -> None:
    two = Two()
    two.answer(never)
    for _ in range(3):
        asked = [two.a.ask("b", b"x", 0.02) for _ in range(MAX_CALLS)]
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert {str(each) for each in found} == {"did not answer within 0.02 s"}
        async with asyncio.timeout(60):
            while two.b._answers:
                await asyncio.sleep(0.001)
    two.answer(reversed_)
    assert await two.a.ask("b", b"ab", LONG_S) == b"ba"


async def test_an_answer_of_which_nobody_takes_the_rest_has_no_place_after_the_request_was_given_up() -> None:
    two = Two()

    async def much(_node: str, _request: bytes) -> bytes:
        return bytes(3 * PIECE_BYTES)

    two.answer(much)
    two.to_a.hears = lambda _note: None
    for _ in range(MAX_ANSWERS + 1):
        with pytest.raises(NoAnswer, match=r"^did not answer"):
            await two.a.ask("b", b"x", 0.005)
    assert not [note for note in two.to_a.notes if isinstance(note, Part) and note.data == b""]
    await two.b.stop()


async def test_more_requests_of_a_node_than_are_answered_at_a_time_are_refused_and_those_of_others_are_not() -> None:
    two = Two()
    two.answer(never)
    for number in range(MAX_ANSWERS):
        two.b.on_note(two.to_a, Part(1_000 + number, False, b"x", True))
    await asyncio.sleep(0.01)
    with pytest.raises(NoAnswer, match=f"answers {MAX_ANSWERS} requests of this node") as found:
        await two.a.ask("b", bytes(2 * PIECE_BYTES), LONG_S)
    assert not found.value.was_sent
    to_c = Way("c")
    two.answer(lambda _node, request: asyncio.sleep(0, request[::-1]))
    two.b.on_note(to_c, Part(1, False, b"ab", True))
    await asyncio.sleep(0.01)
    assert to_c.notes == [Part(1, True, b"ba", True)]
    await two.b.stop()


async def test_more_requests_of_all_nodes_than_are_answered_at_a_time_are_refused() -> None:
    two = Two()
    two.answer(never)
    for number in range(MAX_ALL_ANSWERS - 1):
        two.b.on_note(Way(f"n{number % 10}"), Part(number, False, b"x", True))
    last, more = Way("last"), Way("more")
    for way in (last, more):
        two.b.on_note(way, Part(1, False, b"x", True))
    await asyncio.sleep(0)
    assert (last.notes, more.notes) == ([], [Part(1, True, REFUSED, True)])
    await two.b.stop()


async def test_a_node_that_has_stopped_answers_nothing_more() -> None:
    two = Two()
    two.answer(reversed_)
    await two.b.stop()
    with pytest.raises(NoAnswer, match=r"^stops, or answers"):
        await two.a.ask("b", b"x", LONG_S)


async def test_a_request_that_is_too_large_is_not_sent_and_an_answer_that_is_ends_the_request() -> None:
    two = Two()

    async def much(_node: str, _request: bytes) -> bytes:
        return bytes(MAX_BYTES + 1)

    two.answer(much)
    with pytest.raises(NoAnswer, match=f"^takes no request of more than {MAX_BYTES} bytes$"):
        await two.a.ask("b", bytes(MAX_BYTES + 1), LONG_S)
    assert two.to_b.notes == []
    with pytest.raises(NoAnswer, match=f"^sent more than {MAX_BYTES} bytes$"):
        await two.a.ask("b", b"x", LONG_S)
    await two.b.stop()


async def test_a_request_of_which_the_rest_does_not_come_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "ANSWER_S", 0.01)
    two = Two()
    two.answer(reversed_)
    for number in range(MAX_ANSWERS):
        two.b.on_note(two.to_a, Part(1_000 + number, False, b"x", False))
    await asyncio.sleep(0.05)
    assert await two.a.ask("b", b"ab", LONG_S) == b"ba"
