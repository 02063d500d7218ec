"""Dynamic security beside an ACL file and topic policies: both must allow."""

from collections.abc import Callable

import pytest

from mqttlite.core.authentication import NO_GRANTS
from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE
from mqttlite.security.acl_file import parse
from mqttlite.security.both_rules import NO_ROLE, BothRules
from mqttlite.security.dynamic_security.model import Acl, Client, Role, State
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.rules import Rules
from mqttlite.security.topic_policies import TopicPolicyOptions

ACL = """\
user ann
topic readwrite plant/#
user bob
topic readwrite #
"""


def state() -> State:
    """Ann and bob publish and receive below `plant` and `both`; the administrator may give commands."""
    role, admin = Role("staff"), Role("admin")
    for kind in ("publishClientSend", "publishClientReceive", "subscribePattern"):
        role.add(kind, Acl("plant/a/#", 0, allow=True))
        role.add(kind, Acl("both/#", 0, allow=True))
        admin.add(kind, Acl("$CONTROL/#", 0, allow=True))
    found = State(roles={"staff": role, "admin": admin})
    for name in ("ann", "bob"):
        found.clients[name] = Client(name, roles={"staff": 1})
    found.clients["root"] = Client("root", roles={"admin": 1})
    return found


def both(**options: object) -> BothRules:
    files = Rules(parse(ACL.splitlines(), "acl.conf"), [TopicPolicyOptions(prefix="plant", max_qos=1)])
    return BothRules(DynamicRules(state()), files, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("user", "topic", "is_allowed", "reason"),
    [
        ("ann", "plant/a/1", True, "allowed by {} plant/a/# of role staff, and by acl.conf:2 (user ann)"),
        ("ann", "plant/b/1", False, "denied by the default access {}"),
        ("ann", "both/1", False, "denied by default: acl.conf has no rule that allows it (user ann)"),
        ("bob", "both/1", True, "allowed by {} both/# of role staff, and by acl.conf:4 (user bob)"),
        ("eve", "both/1", False, "denied by dynamic security, which does not know the user"),
        ("root", "$CONTROL/dynamic-security/v1", True, "allowed by {} $CONTROL/# of role admin"),
        ("bob", "$CONTROL/dynamic-security/v1", False, "denied by dynamic security: no role allows it"),
    ],
)
def test_both_must_allow(user: str, topic: str, is_allowed: bool, reason: str) -> None:
    rules = both()
    role = rules.role_of("c", user, NO_GRANTS)
    assert rules.role_of("c2", user, NO_GRANTS) == role
    name = topic.encode()
    ask: dict[str, Callable[[int, bytes], bool]] = {PUBLISH: rules.may_publish, RECEIVE: rules.may_receive}
    for action, kind in ((PUBLISH, "publishClientSend"), (RECEIVE, "publishClientReceive")):
        assert ask[action](role, name) == is_allowed
        assert rules.reason(role, action, name) == reason.format(kind)
    assert rules.may_subscribe(role, name) == is_allowed
    assert rules.reason(role, SUBSCRIBE, name).startswith("allowed" if is_allowed else "denied")
    assert not rules.is_open(name)
    assert not rules.is_readable(name)


def test_the_policies_hold() -> None:
    assert both().policy_of(b"plant/a").max_qos == 1
    assert both().policy_of(b"other").is_plain


def test_roles_that_no_session_has_make_room() -> None:
    used: set[int] = set()
    rules = both(roles_in_use=lambda: used, max_roles=2)
    first = rules.role_of("c", "ann", NO_GRANTS)
    used.add(first)
    second = rules.role_of("c", "bob", NO_GRANTS)
    third = rules.role_of("c", "root", NO_GRANTS)
    assert len({first, second, third, NO_ROLE}) == 4
    assert rules.may_publish(first, b"plant/a/1")
    assert not rules.may_publish(second, b"both/1"), "its role was forgotten"
    used.add(third)
    assert rules.role_of("c", "eve", NO_GRANTS) == NO_ROLE
    for action in (PUBLISH, RECEIVE, SUBSCRIBE):
        assert rules.reason(NO_ROLE, action, b"t") == "denied by a limit: 2 sets of permissions are in use"
    assert not rules.may_receive(NO_ROLE, b"t")
    assert not rules.may_subscribe(NO_ROLE, b"t")
    assert len(rules.roles_of_second({first, third, 99})) == 2


def test_the_rules_for_unsubscribe_hold_for_clients_that_have_a_role() -> None:
    rules = both(max_roles=1)
    role = rules.role_of("c", "ann", NO_GRANTS)
    assert not rules.may_unsubscribe(role, b"plant/a"), "the default access is false"
    assert not rules.may_unsubscribe(NO_ROLE, b"plant/a")
