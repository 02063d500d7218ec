"""Topics that credentials name: what they cover, and how they go together with rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.topic_policy import NO_POLICY, TopicPolicy
from mqttlite.security import granted_topics
from mqttlite.security.granted_topics import NO_ROLE, GrantedTopics, covers
from mqttlite.topics.names import matches


def nobody() -> list[int]:
    return []


POLICY = TopicPolicy("small")


class Rules:
    """Below `open/` everybody may do everything, and below `ann/` ann."""

    def role_of(self, client_id: str, username: str | None, grants: Grants) -> int:
        return 1 if username == "ann" else 0

    def is_open(self, topic: bytes) -> bool:
        return topic.startswith(b"open/")

    def may_publish(self, role: int, topic: bytes) -> bool:
        return role == 1 and topic.startswith(b"ann/")

    def is_readable(self, topic: bytes) -> bool:
        return topic.startswith(b"open/")

    def may_receive(self, role: int, topic: bytes) -> bool:
        return role == 1 and topic.startswith(b"ann/")

    def policy_of(self, topic: bytes) -> TopicPolicy:
        return POLICY

    def reason(self, role: int, action: str, topic: bytes) -> str:
        return f"rule of role {role} against {action}"

    def may_subscribe(self, role: int, topic_filter: bytes) -> bool:
        return topic_filter.startswith(b"open/") or (role == 1 and topic_filter.startswith(b"ann/"))


@pytest.mark.parametrize(
    ("granted", "wanted", "expected"),
    [
        (b"a/b", b"a/b", True),
        (b"a/b", b"a", False),
        (b"a", b"a/b", False),
        (b"a/+", b"a/b", True),
        (b"a/+", b"a/+", True),
        (b"a/+", b"a/#", False),
        (b"a/b", b"a/+", False),
        (b"a/#", b"a/#", True),
        (b"a/#", b"a", True),
        (b"a/#", b"a/+/c/#", True),
        (b"a/#", b"#", False),
        (b"a/#", b"+/b", False),
        (b"+/#", b"#", False),
        (b"#", b"#", True),
        (b"#", b"+/+", True),
        (b"#", b"$SYS/#", False),
        (b"+/a", b"$SYS/a", False),
        (b"$SYS/#", b"$SYS/broker/+", True),
        (b"a/", b"a", False),
        (b"a/+", b"a/", True),
    ],
)
def test_a_filter_covers_another(granted: bytes, wanted: bytes, expected: bool) -> None:
    assert covers(granted, wanted) == expected


levels = st.sampled_from(["", "a", "b", "$x"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool).map(str.encode)
filters = (
    st.tuples(st.lists(levels | st.just("+"), max_size=3), st.booleans())
    .map(lambda made: "/".join([*made[0], *["#"] * made[1]]))
    .filter(bool)
    .map(str.encode)
)


@pytest.mark.long
@given(filters, filters, topics)
def test_a_covered_filter_matches_nothing_more(granted: bytes, wanted: bytes, topic: bytes) -> None:
    if covers(granted, wanted) and matches(wanted, topic):
        assert matches(granted, topic)


@given(filters, topics)
def test_a_topic_is_covered_by_a_filter_that_matches_it(granted: bytes, topic: bytes) -> None:
    assert covers(granted, topic) == matches(granted, topic)


def test_credentials_that_name_topics_allow_only_these() -> None:
    authorizer = GrantedTopics(None, nobody)
    role = authorizer.role_of("c", "ann", Grants(publish=(b"a/+", b"b"), subscribe=(b"c/#",)))
    assert [authorizer.may_publish(role, each) for each in (b"a/x", b"b", b"c", b"a/x/y")] == [True, True, False, False]
    wanted = (b"c/#", b"c/x", b"$share/g/c/+", b"#", b"a/x", b"$share/g/#")
    assert [authorizer.may_subscribe(role, each) for each in wanted] == [True, True, True, False, False, False]


def test_the_roles_of_the_rules_are_known_by_those_of_both() -> None:
    authorizer = GrantedTopics(Rules(), nobody)
    roles = [authorizer.role_of("c", name, Grants(publish=(b"a",))) for name in ("ann", "bob", "ann")]
    assert authorizer.rules_roles([*roles, 99]) == {Rules().role_of("c", name, NO_GRANTS) for name in ("ann", "bob")}


def test_credentials_may_name_no_topic_at_all() -> None:
    authorizer = GrantedTopics(None, nobody)
    role = authorizer.role_of("c", "ann", Grants(publish=(), subscribe=()))
    assert not authorizer.may_publish(role, b"a")
    assert not authorizer.may_receive(role, b"a")
    assert not authorizer.may_subscribe(role, b"a")


def test_credentials_that_do_not_say_limit_nothing() -> None:
    authorizer = GrantedTopics(None, nobody)
    role = authorizer.role_of("c", None, NO_GRANTS)
    assert authorizer.may_publish(role, b"a")
    assert authorizer.may_subscribe(role, b"#")
    assert authorizer.may_receive(role, b"a")
    assert not authorizer.is_open(b"a")
    assert not authorizer.is_readable(b"a")
    assert authorizer.policy_of(b"a") is NO_POLICY
    assert GrantedTopics(Rules(), nobody).policy_of(b"a") is POLICY


@pytest.mark.parametrize(
    ("username", "publish", "topic", "expected"),
    [
        ("ann", None, b"ann/x", True),
        ("bob", None, b"ann/x", False),
        ("bob", None, b"open/x", True),
        ("ann", (b"ann/x",), b"ann/x", True),
        ("ann", (b"ann/x",), b"ann/y", False),
        ("ann", (b"ann/x",), b"open/x", False),
        ("bob", (b"ann/x",), b"ann/x", False),
        ("bob", (b"#",), b"elsewhere", False),
    ],
)
def test_rules_and_credentials_both_have_to_allow_it(
    username: str, publish: tuple[bytes, ...] | None, topic: bytes, expected: bool
) -> None:
    authorizer = GrantedTopics(Rules(), nobody)
    role = authorizer.role_of("c", username, Grants(publish=publish, subscribe=publish))
    assert authorizer.may_publish(role, topic) == expected
    assert authorizer.may_receive(role, topic) == expected
    assert authorizer.may_subscribe(role, topic) == expected


def test_a_denial_has_its_reason() -> None:
    authorizer = GrantedTopics(Rules(), nobody)
    role = authorizer.role_of("c", "bob", Grants(publish=(b"a/#",), subscribe=(b"b/+",)))
    credentials = "denied: the client's credentials do not name this topic"
    assert authorizer.reason(role, "publish", b"b/x") == credentials
    assert authorizer.reason(role, "receive", b"a/x") == credentials
    assert authorizer.reason(role, "subscribe", b"b/#") == credentials
    assert authorizer.reason(role, "publish", b"a/x") == "rule of role 0 against publish"
    assert authorizer.reason(role, "receive", b"b/x") == "rule of role 0 against receive"
    assert authorizer.reason(role, "subscribe", b"$share/g/b/+") == "rule of role 0 against subscribe"
    assert GrantedTopics(None, nobody).reason(0, "publish", b"a") == ""


def test_equal_permissions_have_equal_roles_and_others_have_not() -> None:
    authorizer = GrantedTopics(Rules(), nobody)
    given = [
        authorizer.role_of("1", "ann", Grants(publish=(b"a",))),
        authorizer.role_of("2", "ann", Grants(frozenset({"g"}), publish=(b"a",), expires_at=5.0)),
        authorizer.role_of("3", "bob", Grants(publish=(b"a",))),
        authorizer.role_of("4", "ann", Grants(subscribe=(b"a",))),
        authorizer.role_of("5", "ann", NO_GRANTS),
        authorizer.role_of("6", "bob", NO_GRANTS),
    ]
    assert given[0] == given[1]
    assert len(set(given)) == 5
    assert given[5] == 0, "as a session has that came from the store"
    assert NO_ROLE not in given


def test_roles_that_no_session_has_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(granted_topics, "MAX_ROLES", 4)
    used: list[int] = []
    authorizer = GrantedTopics(None, lambda: used)

    def role(name: str) -> int:
        return authorizer.role_of("c", None, Grants(publish=(name.encode(),)))

    first = role("a")
    used.append(first)
    others = [role("b"), role("c")]
    fourth = role("d")
    assert len({first, *others, fourth}) == 4, "no number is used twice"
    assert authorizer.may_publish(first, b"a")
    assert authorizer.may_publish(fourth, b"d")
    assert not authorizer.may_publish(others[0], b"b"), "it is forgotten"
    used += [fourth, role("e")]
    assert role("f") == NO_ROLE
    assert not authorizer.may_publish(NO_ROLE, b"f")
    assert not authorizer.may_receive(NO_ROLE, b"f")
    assert not authorizer.may_subscribe(NO_ROLE, b"f")
    assert "4 sets of permissions" in authorizer.reason(NO_ROLE, "publish", b"f")
    assert role("a") == first
    used.remove(fourth)
    assert authorizer.may_publish(role("f"), b"f")
