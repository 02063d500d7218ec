"""How much is on its way between two nodes."""

import pytest

from mqttlite.extensions.nodes.window import ANSWER_BYTES, NEWS_UNDER_WAY, UNDER_WAY_BYTES, Receipt, Window


@pytest.mark.parametrize(("size", "has_room"), [(UNDER_WAY_BYTES - 1, True), (UNDER_WAY_BYTES, False)])
def test_packets_have_room_up_to_a_limit_and_again_when_they_are_handled(size: int, has_room: bool) -> None:
    window = Window()
    assert window.send(size, 0) == 1
    assert window.has_room is has_room
    window.on_answer(0, 1)
    assert (window.has_room, window.packet_bytes) == (True, 0)


@pytest.mark.parametrize(("news", "has_room"), [(NEWS_UNDER_WAY - 1, True), (NEWS_UNDER_WAY, False)])
def test_news_have_room_up_to_a_limit_and_again_when_they_are_kept(news: int, has_room: bool) -> None:
    window = Window()
    window.send(0, news)
    assert window.has_room_for_news is has_room
    window.on_answer(0, 1)
    assert window.has_room_for_news is has_room, "they are handled, and not on disk"
    window.on_answer(1, 1)
    assert (window.has_room_for_news, window.news_kept) == (True, news)


def test_packets_do_not_wait_for_news() -> None:
    window = Window()
    window.send(10, 1)
    window.send(UNDER_WAY_BYTES, 1)
    window.on_answer(0, 2)
    assert (window.packet_bytes, window.news_kept) == (0, 0)


def test_an_answer_of_an_earlier_release_frees_what_is_kept() -> None:
    window = Window()
    for _ in range(2):
        window.send(10, 0)
    window.on_answer(1, 0)
    assert window.packet_bytes == 10


def test_a_new_connection_begins_with_nothing() -> None:
    window, receipt = Window(), Receipt()
    window.send(10, 2)
    receipt.take(1, ANSWER_BYTES, True)
    receipt.on_handled(1)
    window.begin()
    receipt.begin()
    assert (window.send(0, 0), window.packet_bytes, window.news_kept) == (1, 0, 0)
    assert receipt.take(1, 0, False)
    assert (receipt.kept, receipt.handled, receipt.owes) == (0, 0, False)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_blob_that_is_not_the_next_one_is_noticed(number: int) -> None:
    receipt = Receipt()
    assert receipt.take(1, 0, False)
    assert not receipt.take(number, 0, False)


@pytest.mark.parametrize(("size", "has_news", "owes"), [(0, True, True), (ANSWER_BYTES - 1, False, False)])
def test_news_are_answered_at_once_and_packets_when_they_are_many(size: int, has_news: bool, owes: bool) -> None:
    receipt = Receipt()
    receipt.take(1, size, has_news)
    assert not receipt.owes, "nothing is handled"
    receipt.on_handled(1)
    assert receipt.owes is owes
    receipt.take(2, 1, False)
    receipt.on_handled(2)
    assert receipt.owes
    receipt.told()
    assert not receipt.owes


def test_a_receipt_answers_handled_and_kept_blobs_apart() -> None:
    receipt = Receipt()
    receipt.take(1, 0, True)
    assert receipt.on_handled(0)
    assert receipt.owes
    receipt.told()
    assert not receipt.on_handled(0)
    assert receipt.on_handled(1)
    assert receipt.owes
