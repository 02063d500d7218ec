"""Whoever is asked gives one answer: rules made anew, the verdicts that a broker keeps, `acl test`, `explain` and what
clients live through: publish, subscribe, delivery, retained messages, wills and share groups, while the rules change.

A case is one answer that was compared. `MQTTLITE_PERMISSION_WORLDS=3000` looks at as many worlds, with some
hundred cases each; a failure names the world that shows it again.
"""

import os
import random
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import Final

from mqttlite.cli.acl import verdict
from mqttlite.cli.configured import ConfiguredRules
from mqttlite.core.authentication import NO_GRANTS
from mqttlite.core.authorizer import PUBLISH, RECEIVE, SUBSCRIBE
from mqttlite.core.plan import EXCLUDED, PublishPlan
from mqttlite.core.tally import DROPPED, QUEUED, SENT
from mqttlite.explanations import Explanations
from mqttlite.security.acl_file import DENY, READ, WRITE, AclFile, Rule
from mqttlite.security.dynamic_security.model import ACL_TYPES, DEFAULT_TYPES, Acl, Client, Group, Role, State, put
from mqttlite.security.dynamic_security.rules import DynamicRules
from mqttlite.security.rules import Rules
from mqttlite.security.topic_policies import TopicPolicyOptions
from mqttlite.wire.packets import Ack, Publish, SubscriptionRequest, Will
from tests.support.core_driver import Client as Device
from tests.support.core_driver import World

WORLDS: Final = int(os.environ.get("MQTTLITE_PERMISSION_WORLDS", "12"))

USERS: Final = (None, "ann", "bob", "eve")
LEVELS: Final = ("a", "b", "%u", "%c")
FILTER_LEVELS: Final = ("a", "b", "+", "c1")


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
        self.world.broker.authorize(self.in_force.core)
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
            files = Rules(self.acl, self.policies, {"g": ("ann",)})
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
            role = state.roles[name] = Role(name)
            for _ in range(draw.randrange(7)):
                acl = Acl(self.filter(FILTER_LEVELS), draw.randrange(3), draw.random() < 0.7)
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
        session = self.world.session(name)
        permissions = self.world.broker.permissions
        ask = {PUBLISH: permissions.may_publish, RECEIVE: permissions.may_receive, SUBSCRIBE: permissions.may_subscribe}
        for _ in range(2):  # the second answer is a kept one
            assert ask[action](session, topic.encode()) == anew.is_allowed, (name, action, topic, anew)
        self.asked += 3
        return anew.is_allowed

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
