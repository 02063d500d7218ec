"""What a node is still to be told: all that was there, then each change, in blobs of bounded size."""

from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.interest import NOBODY
from mqttlite.core.limits import MAX_SHARES_TOLD_BYTES
from mqttlite.extensions.nodes.news import NEWS_AT_ONCE, NEWS_BYTES, NEWS_WAITING_BYTES, Beginning, News
from mqttlite.extensions.nodes.telling import MAX_FILTERS_BYTES

_FILTERS = [b"a", b"b", b"c", b"d"]


@given(
    st.dictionaries(st.sampled_from(_FILTERS), st.integers(0, 2)),
    st.lists(st.tuples(st.booleans(), st.sampled_from(_FILTERS), st.integers(NOBODY, 2)), max_size=20),
)
def test_the_other_node_knows_what_holds_when_nothing_waits(
    first: dict[bytes, int], steps: list[tuple[bool, bytes, int]]
) -> None:
    now = dict(first)
    news = News()
    news.begin(Beginning(list(now), lambda topic_filter: now.get(topic_filter, NOBODY), [(b"$share/x", 7)]))
    known: dict[bytes, int] = {}
    for takes, topic_filter, qos in steps:
        if takes:
            known.update(_one(news))
        elif now.get(topic_filter, NOBODY) != qos:
            now[topic_filter] = qos
            assert news.put([(topic_filter, qos)])
        assert news.waits == (news.sent < news.told)
    while news.waits:
        known.update(news.take())
    assert news.sent == news.told
    expected = {name: qos for name, qos in now.items() if qos != NOBODY} | {b"$share/x": 7}
    assert {name: qos for name, qos in known.items() if qos != NOBODY} == expected


def _one(news: News) -> list[tuple[bytes, int]]:
    """Of a blob with room for one."""
    return [news._next()] if news.waits else []


def test_a_blob_has_a_bounded_number_of_filters_and_of_bytes() -> None:
    news = News()
    many = [b"%d" % each for each in range(3 * NEWS_AT_ONCE)]
    news.begin(Beginning(many, lambda topic_filter: 1, []))
    assert [len(news.take()) for _ in range(4)] == [NEWS_AT_ONCE, NEWS_AT_ONCE, NEWS_AT_ONCE, 0]
    assert (news.sent, news.whole_after) == (len(many), len(many))
    long = bytes(NEWS_BYTES // 2)
    news.begin(Beginning([long + b"%d" % each for each in range(5)], lambda topic_filter: 1, []))
    assert [len(news.take()) for _ in range(4)] == [2, 2, 1, 0]


def test_the_bytes_of_changes_that_wait_are_bounded_and_those_of_the_beginning_are_not() -> None:
    news = News()
    large = [bytes(NEWS_WAITING_BYTES // 4 - 1) + b"%d" % each for each in range(5)]
    news.begin(Beginning(large, lambda topic_filter: 1, [(each, 2) for each in large]))
    assert news.put([(each, 1) for each in large[:4]])
    assert news.put([(large[0], 2)]), "it waits once"
    assert not news.put([(large[4], 1)])
    news.end()
    assert not news.waits
    assert news.put([(large[0], 1)])


def test_more_changes_may_wait_than_may_be_subscribed() -> None:
    assert NEWS_WAITING_BYTES > MAX_FILTERS_BYTES + MAX_SHARES_TOLD_BYTES


def test_of_several_changes_of_a_filter_the_last_one_is_told_once() -> None:
    news = News()
    news.put([(b"a", 1), (b"b", 0), (b"a", NOBODY)])
    assert (news.told, news.sent) == (2, 0)
    assert news.take() == [(b"a", NOBODY), (b"b", 0)]
    assert news.sent == 2


def test_a_connection_begins_without_what_waited_in_the_last_one() -> None:
    news = News()
    news.begin(Beginning([b"a", b"b"], lambda topic_filter: 0, []))
    news.put([(b"c", 1)])
    news.taken = 2
    news.begin(Beginning([b"z"], lambda topic_filter: 2, []))
    assert (news.told, news.taken, news.whole_after) == (1, 0, 1)
    assert news.take() == [(b"z", 2)]
