"""What is said about odd rules; the line that a sentence is about, and words of it."""

import pytest

from mqttlite.security import rule_findings
from mqttlite.security.acl_file import parse
from mqttlite.security.rule_findings import acl_findings, policy_findings, queue_findings, unkept_findings
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.security.topic_records import Access


def about(text: str, groups: tuple[str, ...] = (), users: tuple[str, ...] | None = None) -> list[tuple[int, str]]:
    """The members of each group are the user `x`."""
    known = dict.fromkeys(groups, ("x",))
    return [tuple(each) for each in acl_findings(parse(text.split("\n"), "acl.conf"), known, users)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 0, "it has no rule"),
        ("# only a comment", 0, "it has no rule"),
        ("topic read a/#\ntopic read a/b", 2, "a/b says nothing that line 1 does not say (anonymous clients)"),
        ("topic read a/b\ntopic read a/#", 1, "a/b says nothing that line 2 does not say"),
        ("topic read a/#\ntopic read a/b/#", 2, "a/b/# says nothing"),
        ("topic read a/+\ntopic read a/b", 2, "a/b says nothing"),
        ("topic readwrite a\ntopic read a", 2, "a says nothing"),
        ("topic read a\ntopic read a", 2, "a says nothing"),
        ("user x\ntopic deny a/#\ntopic read a/b", 3, "a/b is never allowed: line 2 denies all of it (user x)"),
        ("user x\ntopic read a/b\ntopic deny a/+", 2, "a/b is never allowed: line 3"),
        ("topic read #\ntopic deny a/#\ntopic deny a/b", 3, "deny a/b says nothing that line 2 does not say"),
        (
            "topic read a/#\ntopic deny a/b",
            2,
            "leaves the topics below it to line 1, which allows them; write deny a/b/",
        ),
        ("topic read $SYS/#\ntopic deny #", 2, "deny # does not reach topics that begin with $, and line 1 allows"),
        ("topic read", 1, "a topic named read: is the topic missing?"),
        ("pattern read a", 1, "has neither %u nor %c: it is for every client"),
        ("group g\ntopic a", 2, "group g has no users in [groups]"),
        ("user x\ntopic read #\npattern deny own/%u", 3, "pattern deny own/%u does not hold for user x"),
        ("group known\ntopic read own/+\npattern deny own/%u", 3, "does not hold for group known"),
    ],
)
def test_an_odd_rule_is_found(text: str, line: int, said: str) -> None:
    [(found, sentence)] = about(text, ("known",))
    assert found == line
    assert said in sentence


@pytest.mark.parametrize(
    "text",
    [
        "topic read a",
        "topic read a\ntopic write a",
        "topic read a/b\ntopic write a/#",
        "topic read a/+\ntopic read +/b",
        "topic read a\ntopic read a/+/#",
        "topic read #\ntopic deny a/#",
        "topic read #\ntopic read $SYS/#",
        "topic read a\nuser x\ntopic read a",
        "pattern read a/%u\npattern deny a/%c",
        "user x\ntopic read other\npattern deny own/%u",
        "user x\ntopic read own/y\npattern deny own/%u",
        "topic read own/y\npattern deny own/%u",
        "user x\ntopic read own/+\ntopic deny own/x\npattern deny own/%u",
        "user x\ntopic read own/z\ngroup known\ntopic deny own/+\npattern deny own/%c",
        "user x\ntopic read a/b\npattern deny %c/%c",
        "user x\ntopic read a/b\npattern deny a/c%c",
        "user x\ntopic read a/#\ntopic deny a/b\ngroup known\ntopic deny a/b/#",
        "group known\ntopic a",
        "user known\ntopic a",
    ],
)
def test_rules_that_work_as_written_have_no_findings(text: str) -> None:
    assert about(text, ("known",), ("known", "x")) == []


def test_a_user_that_the_password_file_lacks_is_found() -> None:
    assert about("user x\ntopic a", users=("y",)) == [(2, "user x is not in the password file: the rules reach nobody")]
    assert about("user x\ntopic a", users=None) == []


def test_there_are_not_more_sentences_than_anybody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule_findings, "MAX_FINDINGS", 2)
    assert [sentence for _, sentence in about("\n".join(["topic a"] * 9))][2:] == ["there are more findings than 2"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"access": "PRIVATE"}, ["is PRIVATE and has no members: nobody may use the topics"]),
        ({"access": "PUBLISH_ONLY"}, ["is PUBLISH_ONLY and has no members: nobody may subscribe"]),
        ({"access": "SUBSCRIBE_ONLY"}, ["is SUBSCRIBE_ONLY and has no members: nobody may publish"]),
        ({"members": ("ann",)}, ["is PUBLIC: its owner, members and groups make no difference"]),
        ({"access": "PRIVATE", "groups": ("x",)}, ["names the group x, which has no users in [groups]"]),
        ({"access": "PRIVATE", "groups": ("known",)}, []),
        ({"ttl_s": 5}, []),
    ],
)
def test_an_odd_policy_is_found(options: dict[str, object], said: list[str]) -> None:
    policy = TopicPolicyOptions(prefix="a", **options)  # type: ignore[arg-type]
    assert [sentence for _, sentence in policy_findings([policy], ("known",))] == [
        f"topic_policies[0] {each}" for each in said
    ]


@pytest.mark.parametrize(
    ("queue_policy", "access", "filters", "is_found"),
    [
        ({}, "PRIVATE", ("orders/#",), True),
        ({}, "PUBLISH_ONLY", ("orders/1", "other"), True),
        ({}, "SUBSCRIBE_ONLY", ("orders/#",), False),
        ({}, "PRIVATE", ("other/#",), False),
        ({"access": "PRIVATE", "members": ("w",)}, "PRIVATE", ("orders/#",), False),
        ({"access": "SUBSCRIBE_ONLY", "members": ("w",)}, "PRIVATE", ("orders/#",), True),
    ],
)
def test_a_queue_that_is_more_open_than_its_topics_is_found(
    queue_policy: dict[str, object], access: Access, filters: tuple[str, ...], is_found: bool
) -> None:
    policies = [TopicPolicyOptions(prefix="orders", access=access, members=("w",))]
    if queue_policy:
        policies.append(TopicPolicyOptions(prefix="$queue/billing", **queue_policy))  # type: ignore[arg-type]
    said = [sentence for _, sentence in queue_findings(policies, {"billing": filters})]
    assert [each.split(" and ")[0] for each in said] == ["every client may subscribe to $queue/billing"] * is_found


@pytest.mark.parametrize(
    ("topic_class", "filters", "is_found"),
    [
        ("ephemeral", ("orders", "live/#"), True),
        ("ephemeral", ("#",), True),
        ("ephemeral", ("orders/#",), False),
        ("standard", ("live/#",), False),
    ],
)
def test_a_queue_of_ephemeral_topics_is_found(topic_class: str, filters: tuple[str, ...], is_found: bool) -> None:
    policies = [TopicPolicyOptions(prefix="live", topic_class=topic_class)]  # type: ignore[arg-type]
    said = [sentence for _, sentence in unkept_findings(policies, {"all": filters})]
    assert (
        said
        == [
            '$queue/all takes no messages of topics of the topic policy for "live" (PUBLIC): they are ephemeral, and a '
            "queue would keep them"
        ]
        * is_found
    )
