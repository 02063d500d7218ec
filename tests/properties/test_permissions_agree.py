"""All that can be asked about permissions give one answer: rules made anew, the verdicts that a broker keeps,
`acl test`, `explain`, the sentences of `check`, and what clients live through: publish, subscribe, delivery, retained
messages, wills and share groups, while the rules change.

A case is one answer that was compared. `MQTTLITE_PERMISSION_WORLDS=3000` looks at as many worlds, with some
hundred cases each; a failure names the world that shows it again.
"""

import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count, product
from typing import Final

import pytest

from mqttlite.cli.acl import verdict
from mqttlite.cli.configured import ConfiguredRules
from mqttlite.cli.explain_rules import EVERYTHING, permissions
from mqttlite.config import Config
from mqttlite.core.authentication import NO_GRANTS, Grants
from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE
from mqttlite.core.route.outlook import EXCLUDED
from mqttlite.core.route.plan import PublishPlan
from mqttlite.core.route.tally import DROPPED, QUEUED, SENT
from mqttlite.extensions.explain.explanations import Explanations
from mqttlite.security.acl_file import AclFile
from mqttlite.security.dynamic_security.model import ACL_TYPES, DEFAULT_TYPES, Acl, Client, Group, Role, State, put
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.rule_findings import acl_findings, sections
from mqttlite.security.rule_tree import DENY, READ, WRITE, Rule
from mqttlite.security.rules import Rules, Ruling
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.topics.names import matches
from mqttlite.wire.packets import Ack, Publish, SubscriptionRequest, Will
from tests.support.core_driver import Client as Device
from tests.support.core_driver import World
from tests.support.stated import READ as STATED_READ
from tests.support.stated import WRITE as STATED_WRITE
from tests.support.stated import Stated, topics_of

WORLDS: Final = int(os.environ.get("MQTTLITE_PERMISSION_WORLDS", "12"))

USERS: Final = (None, "ann", "bob", "eve")
LEVELS: Final = ("a", "b", "%u", "%c")
FILTER_LEVELS: Final = ("a", "b", "+", "c1")
WORLD_LEVELS: Final = ("a", "b", "c1", "ann", "z")
"""Of the topics that stand for all: one that no rule names is among them."""

GROUPS: Final = {"g": ("ann",)}


class Scene:
    """One broker with clients, whose rules change; `asked` counts the cases."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = World()
        self.asked = 0
        self.payloads = count()
        self.devices: dict[str, Device] = {}
        self.users: dict[str, str | None] = {}
        self.explanations = Explanations(self.world.broker, lambda _user: (), lambda: self.world.now)
        self.change_rules()
        for number, user in enumerate(USERS):
            self.join(f"c{number}", user)
        self.join("away", "ann", expiry=1_000)
        for name in self.devices:
            self.subscribe(name)
            self.subscribe(name)
        self.devices.pop("away").lose()

    def join(self, name: str, user: str | None, **options: object) -> Device:
        device = self.world.open()
        device.connect(name, username=user, **options)  # type: ignore[arg-type]
        self.devices[name], self.users[name] = device, user
        return device

    # ------------------------------------------------------------------ rules

    def change_rules(self) -> None:
        """Other rules, of files, of dynamic security, of both or of none."""
        draw = self.random
        self.acl = self.acl_file() if draw.random() < 0.7 else None
        self.policies = list(self.topic_policies()) if draw.random() < 0.5 else []
        self.state = self.dynamic_state() if draw.random() < 0.5 else None
        self.in_force = self.rules()
        first = len(self.policies) // 2
        config = Config(
            topic_policies=tuple(self.policies[:first]), groups=GROUPS, acl_file="acl.conf" if self.acl else None
        )
        said = permissions(config, self.acl, self.state, self.policies[first:], EVERYTHING)
        self.stated = Stated(list(said), GROUPS)
        self.world.broker.authorize(self.in_force.core)
        self.check_findings()
        if self.state is not None:
            self.world.broker.check_subscriptions()
        self.world.settle()
        for session in self.world.broker.sessions.values() if self.state is not None else ():
            for topic_filter in session.subscriptions:
                assert self.verdict(session.client_id, SUBSCRIBE, topic_filter.decode())

    def rules(self) -> ConfiguredRules:
        """The same rules, made anew: they have kept no verdict."""
        files = None
        if self.acl is not None or self.policies:
            files = Rules(self.acl, self.policies, GROUPS)
        return ConfiguredRules(files, None if self.state is None else DynamicRules(self.state))

    def acl_file(self) -> AclFile:
        draw = self.random
        found = AclFile("acl.conf")
        lines = count(1)

        def rules(levels: tuple[str, ...]) -> list[Rule]:
            access = (DENY, READ, WRITE, READ | WRITE, READ | WRITE)
            return [
                Rule(next(lines), draw.choice(access), self.filter(levels).encode()) for _ in range(draw.randrange(4))
            ]

        found.anonymous.extend(rules(FILTER_LEVELS))
        for user in ("ann", "bob"):
            found.users[user] = rules(FILTER_LEVELS)
        found.groups["g"] = rules(FILTER_LEVELS)
        found.patterns.extend(rules((*FILTER_LEVELS, "%u", "%c")))
        return found

    def topic_policies(self) -> Iterator[TopicPolicyOptions]:
        draw = self.random
        for topic_filter in {self.filter(FILTER_LEVELS) for _ in range(draw.randrange(3))}:
            yield TopicPolicyOptions(
                filter=topic_filter,
                access=draw.choice(["PUBLIC", "PRIVATE", "PUBLISH_ONLY", "SUBSCRIBE_ONLY"]),  # type: ignore[arg-type]
                members=tuple(draw.sample(["ann", "bob"], draw.randrange(3))),
                min_qos=draw.choice([0, 0, 1]),
                max_qos=draw.choice([1, 2, 2]),
                max_payload_bytes=draw.choice([0, 0, 3]),
                topic_class=draw.choice(["standard", "standard", "ephemeral"]),  # type: ignore[arg-type]
            )

    def dynamic_state(self) -> State:
        draw = self.random
        state = State(default_access={each: draw.random() < 0.5 for each in DEFAULT_TYPES})
        for name in "rs":
            role = state.roles[name] = Role(name, allow_wildcard_subs=draw.random() < 0.8)
            for _ in range(draw.randrange(7)):
                acl = Acl(self.filter((*FILTER_LEVELS, "%u", "%c")), draw.randrange(3), draw.random() < 0.7)
                role.add(draw.choice(ACL_TYPES), acl)
        for user in ("ann", "bob"):
            client = state.clients[user] = Client(user)
            for role_name in draw.sample("rs", draw.randrange(3)):
                put(client.roles, role_name, draw.randrange(3))
        group = state.groups["anybody"] = Group("anybody")
        put(group.roles, draw.choice("rs"), 1)
        state.anonymous_group = draw.choice([None, "anybody"])
        return state

    # ------------------------------------------------------------------ topics

    def filter(self, levels: tuple[str, ...]) -> str:
        draw = self.random
        if draw.random() < 0.1:
            return "#"
        found = [draw.choice(levels) for _ in range(draw.randrange(1, 4))]
        return "/".join([*found, *(["#"] if draw.random() < 0.3 else [])])

    def topic(self) -> str:
        if self.random.random() < 0.05:
            return self.random.choice(["$SYS/x", "$CONTROL/x", "$queue/x", "a/+"])
        return "/".join(self.random.choice(("a", "b", "c1", "ann")) for _ in range(self.random.randrange(1, 4)))

    # ------------------------------------------------------------------ answers

    def verdict(self, name: str, action: str, topic: str) -> bool:
        """What all that can be asked about rules say: they must agree."""
        user = self.users[name]
        anew = verdict(self.rules(), name, user, NO_GRANTS, action, topic.encode())
        kept = verdict(self.in_force, name, user, NO_GRANTS, action, topic.encode())
        assert kept == anew, (name, action, topic)
        if not topic.startswith("$SYS"):
            assert anew.is_allowed == all(self.parts(name, action, topic)), (name, action, topic)
        if action != SUBSCRIBE and not topic.startswith("$"):
            access = STATED_WRITE if action == PUBLISH else STATED_READ
            assert self.stated.allows(name, user, access, topic) == anew.is_allowed, (name, action, topic, anew)
        elif action == SUBSCRIBE and not anew.is_allowed and self.state is None:
            plain = topic.split("/", 2)[2] if topic.startswith("$share/") else topic
            assert not self.stated.reaches(name, user, plain, WORLD_LEVELS), (name, topic, anew)
        session = self.world.session(name)
        permissions = self.world.broker.permissions
        ask = {PUBLISH: permissions.may_publish, RECEIVE: permissions.may_receive, SUBSCRIBE: permissions.may_subscribe}
        for _ in range(2):  # the second answer is a kept one
            assert ask[action](session, topic.encode()) == anew.is_allowed, (name, action, topic, anew)
        self.asked += 4
        return anew.is_allowed

    def check_findings(self) -> None:
        """What `check` says about single rules holds for all topics of a small world."""
        if self.acl is None:
            return
        for line, sentence in acl_findings(self.acl, GROUPS, None):
            found = next(each for each in FINDINGS if re.search(each, sentence))
            FINDINGS[found](self, line, sentence)
            self.asked += 1

    def rulings(
        self,
        line: int,
        acl: AclFile | None = None,
        of: str = "",
        ids: tuple[str, ...] = ("c1",),
        levels: tuple[str, ...] = WORLD_LEVELS,
        below: bool = False,
    ) -> Iterator[Ruling]:
        """What the ACL file, or another, says to the clients for whom a line of it is, or to those of a section, of the
        topics that the line matches; or of those `below` them."""
        assert self.acl is not None
        title, rule = next((title, rule) for title, rules in sections(self.acl) for rule in rules if rule.line == line)
        rules = Rules(acl or self.acl, (), GROUPS)
        section = of or title
        group = section.removeprefix("group ") if section.startswith("group ") else ""
        for user, name in product(levels if group else USERS, ids):  # tokens may put any user in a group
            if section != "patterns" and not group and not is_in(section, user):
                continue
            role = rules.role_of(name, user, Grants(frozenset({group})) if group else NO_GRANTS)
            topic_filter = rule.topic_filter.decode().replace("%u", user or "\0").replace("%c", name).encode()
            topics = topics_of(levels)
            if below:  # or that begin with $, which # does not match
                beneath = "$SYS/z" if topic_filter == b"#" else f"{topic_filter.decode().replace('+', 'z')}/z"
                topics, topic_filter = iter([beneath, f"{beneath}/z/z"]), f"{beneath}/#".encode()
            for topic in topics:
                if matches(topic_filter, topic.encode()):
                    yield rules.ruling(role, PUBLISH, topic.encode())
                    yield rules.ruling(role, RECEIVE, topic.encode())

    def says_nothing(self, line: int, sentence: str) -> None:
        assert self.acl is not None
        without = AclFile(self.acl.path)
        for (_, rules), (_, kept) in zip(_all_sections(self.acl), _all_sections(without), strict=True):
            kept.extend(rule for rule in rules if rule.line != line)
        for user, found in self.acl.users.items():
            without.users[user] = [rule for rule in found if rule.line != line]
        for group, found in self.acl.groups.items():
            without.groups[group] = [rule for rule in found if rule.line != line]
        pairs = zip(self.rulings(line), self.rulings(line, without), strict=True)
        assert all(one.is_allowed == other.is_allowed for one, other in pairs), (line, sentence)

    def is_never_allowed(self, line: int, sentence: str) -> None:
        assert all(each.line != line or not each.is_allowed for each in self.rulings(line)), (line, sentence)

    def leaves_topics(self, line: int, sentence: str) -> None:
        other = int(re.findall(r"line (\d+)", sentence)[0])
        rulings = self.rulings(line, None, "", ("c1",), WORLD_LEVELS, below=True)
        assert any(each.line == other and each.is_allowed for each in rulings), (line, sentence)

    def is_defeated(self, line: int, sentence: str) -> None:
        (of,) = re.findall(r"does not hold for (.+), whose", sentence)
        levels = ("a", "b", "z", "ann", "bob", "eve", "c0", "c1", "c2", "c3")
        assert any(each.is_allowed for each in self.rulings(line, None, of, levels, levels)), (line, sentence)

    def holds_by_reading(self, line: int, sentence: str) -> None:
        """A sentence about names and not about topics."""

    def parts(self, name: str, action: str, topic: str) -> Iterator[bool]:
        """What dynamic security and the rules of files say, each by itself."""
        files, dynamic = self.in_force.files, self.in_force.dynamic
        who = (name, self.users[name])
        if dynamic is not None:
            ask = {PUBLISH: dynamic.may_publish, RECEIVE: dynamic.may_receive, SUBSCRIBE: dynamic.may_subscribe}
            yield ask[action](dynamic.role_of(*who), topic.encode())
        if files is not None and not (dynamic is not None and topic.startswith("$CONTROL/")):
            yield files.ruling(files.role_of(*who), action, topic.encode()).is_allowed

    def subscribe(self, name: str) -> None:
        draw = self.random
        device = self.devices[name]
        topic_filter = self.filter(("a", "b", "+", "c1"))
        if draw.random() < 0.3:
            topic_filter = f"$share/g/{topic_filter}"
        qos = draw.randrange(3)
        is_allowed = self.verdict(name, SUBSCRIBE, topic_filter)
        plan = self.explanations.subscribe(name, self.users[name], topic_filter, qos=qos)
        no_local = not topic_filter.startswith("$share") and draw.random() < 0.3
        codes = device.subscribe(SubscriptionRequest(topic_filter.encode(), qos, no_local))
        assert codes == bytes([plan.reason_code]), (name, topic_filter, plan)
        assert plan.allowed == is_allowed == (codes[0] < 0x80), (name, topic_filter, plan)
        retained = [each for each in device.received() if isinstance(each, Publish)]
        assert len(retained) == plan.retained, (name, topic_filter, plan)
        for message in retained:
            assert self.verdict(name, RECEIVE, message.topic.decode())
        self.asked += 2 + len(retained)

    def publish(self, name: str) -> None:
        draw = self.random
        device, topic, qos, retain = self.devices[name], self.topic(), draw.randrange(3), draw.random() < 0.3
        payload = f"{next(self.payloads)}" + draw.choice(["", "long"])
        if topic == "a/+":  # it closes the connection
            assert self.explanations.publish(name, self.users[name], topic).reason_code == 0x90
            return
        told = self.explanations.publish(name, self.users[name], topic, len(payload.encode()), qos=qos, retain=retain)
        plan = self.world.broker.planner.publish(name, self.users[name], topic.encode(), payload.encode(), qos, retain)
        waiting = self.world.session("away").queued
        device.publish(topic, payload, qos, retain)
        acks = [each for each in device.packets if isinstance(each, Ack) and each.reason_code != 0x92][:1]
        if qos:
            assert [each.reason_code for each in acks] == [told.reason_code], (name, topic, told)
        if not topic.startswith("$"):
            is_allowed = self.verdict(name, PUBLISH, topic)
            assert is_allowed or plan.code == 0x87, (name, topic, plan.reason)
            assert not is_allowed or plan.code in (0, 0x83), (name, topic, plan.reason)
        self.compare(plan, topic, payload, waiting)
        kept = [each.payload.decode() for each in self.world.broker.router.retained.search(topic.encode()).take(9)]
        assert (payload in kept) == plan.retained, (name, topic, plan.reason)
        self.asked += 3

    def will(self, user: str | None) -> None:
        """A client's will, which is published when it is lost."""
        topic, payload = self.topic(), f"{next(self.payloads)}"
        if topic[0] == "$" or "+" in topic:
            return
        device = self.join("mortal", user, will=Will(topic.encode(), payload.encode(), 1))
        plan = self.world.broker.planner.publish("mortal", user, topic.encode(), payload.encode(), 1, False)
        assert (self.world.session("mortal").will is not None) == self.verdict("mortal", PUBLISH, topic)
        waiting = self.world.session("away").queued
        device.lose()
        del self.devices["mortal"]
        self.compare(plan, topic, payload, waiting)
        self.asked += 2

    def compare(self, plan: PublishPlan, topic: str, payload: str, waiting: int) -> None:
        """Who got a message, against who would get it."""
        got: Counter[str] = Counter()
        for name, device in self.devices.items():
            for each in device.received():
                if isinstance(each, Publish) and each.payload.decode() == payload:
                    got[name] += 1
        got["away"] = self.world.session("away").queued - waiting
        expected: Counter[str] = Counter()
        groups: dict[bytes, set[str]] = {}
        for each in plan.receivers:
            if each.outcome != EXCLUDED or each.reason == "not_authorized":
                assert self.verdict(each.client_id, RECEIVE, topic) == (each.outcome != EXCLUDED)
            takes = each.outcome in (SENT, QUEUED)
            if not each.group:
                expected[each.client_id] += takes
            elif takes or each.outcome == DROPPED:
                groups.setdefault(each.group, set()).add(each.client_id)
        for name in [*self.devices, "away"]:
            more = got[name] - expected[name]
            assert 0 <= more <= sum(name in members for members in groups.values()), (name, topic, got, expected)
            if got[name]:
                assert self.verdict(name, RECEIVE, topic), (name, topic)
            self.asked += 1
        assert sum(got.values()) - sum(expected.values()) <= len(groups), (topic, got, expected, groups)

    def run(self) -> None:
        for _ in range(3):
            for name in list(self.devices):
                self.publish(name)
                self.publish(name)
            self.will(self.random.choice(USERS))
            self.change_rules()
            for device in self.devices.values():
                device.received()
            self.subscribe(self.random.choice(list(self.devices)))
        for name in list(self.devices):
            self.publish(name)


FINDINGS: Final[dict[str, Callable[[Scene, int, str], None]]] = {
    "says nothing that line": Scene.says_nothing,
    "is never allowed": Scene.is_never_allowed,
    "leaves the topics below it|does not reach topics that begin": Scene.leaves_topics,
    "does not hold for": Scene.is_defeated,
    "has neither %u nor %c|has no rule, so|no users in": Scene.holds_by_reading,
}
"""What is held against each sentence of `check` about an ACL file."""


def is_in(section: str, user: str | None) -> bool:
    """Whether a section of an ACL file is for a user."""
    if user is None:
        return section == "anonymous clients"
    return section == f"user {user}" or user in GROUPS.get(section.removeprefix("group "), ())


def _all_sections(acl: AclFile) -> tuple[tuple[str, list[Rule]], ...]:
    return ("anonymous clients", acl.anonymous), ("patterns", acl.patterns)


@pytest.mark.long
def test_all_that_can_be_asked_agree() -> None:
    asked = 0
    for seed in range(WORLDS):
        try:
            scene = Scene(seed)
            scene.run()
        except Exception as error:
            error.add_note(f"in world {seed}")
            raise
        asked += scene.asked
    print(f"{asked} cases in {WORLDS} worlds")
    assert asked > 100 * WORLDS
