"""What hooks answer the core, also when they fail."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest

from mqttlite.core.hook import UNCHANGED, HookAnswer
from mqttlite.core.message import Message, RawProperties
from mqttlite.core.source import THE_BROKER, THE_PROGRAM
from mqttlite.extensions import ending
from mqttlite.extensions.hook_failures import HookFailures
from mqttlite.extensions.hooks import Hooks
from mqttlite.extensions.incoming import Incoming
from mqttlite.extensions.publish_hook import PublishHook, Reject
from mqttlite.extensions.publish_hooks import FAILED, PublishHooks
from mqttlite.wire.properties import NONE, Properties


class Asked:
    """A core that asks hooks."""

    def __init__(self) -> None:
        self.now = 100.0
        self.late: list[tuple[object, HookAnswer]] = []
        self.failures = HookFailures(lambda: self.now)
        self.hooks = PublishHooks(
            lambda: self.now, self.failures, lambda held, answer: self.late.append((held, answer))
        )

    def add(self, function: Callable[[Incoming], object], topic_filter: str = "#", **options: object) -> None:
        made = Hooks()
        made.on_publish(topic_filter, **options)(function)  # type: ignore[arg-type, type-var]
        for each in made._hooks:
            assert isinstance(each, PublishHook)
            self.hooks.add(each)

    def ask(self, message: Message | None = None) -> HookAnswer | None:
        found = self.hooks.hook_of(b"plant/1/temp")
        assert found is not None
        return found.ask(message or Message(b"plant/1/temp", b"20.25", 1), THE_PROGRAM, "held")

    async def answer(self, message: Message | None = None) -> HookAnswer:
        """The late answer."""
        assert self.ask(message) is None
        async with asyncio.timeout(10):
            while not self.late:
                await asyncio.sleep(0)
        ((held, answer),) = self.late
        assert held == "held"
        return answer


def raises(message: Incoming) -> None:
    raise RuntimeError("no")


def test_a_topic_without_a_hook_has_none() -> None:
    asked = Asked()
    asked.add(lambda message: None, "plant/+/temp")
    assert asked.hooks.hook_of(b"plant/1/hum") is None
    assert asked.hooks.hook_of(b"$SYS/plant") is None
    assert asked.hooks.hook_of(b"plant/1/temp") is not None


def test_none_and_the_same_message_change_nothing() -> None:
    asked = Asked()
    asked.add(lambda message: None)
    asked.add(lambda message: message)
    assert asked.ask() is UNCHANGED


def test_each_hook_gets_what_the_one_before_made() -> None:
    asked = Asked()
    asked.add(lambda message: message.replace(payload=message.payload + b"1"))
    asked.add(lambda message: message.replace(payload=message.payload + b"2", topic="other"))
    answer = asked.ask()
    assert answer is not None
    assert answer.message is not None
    assert (answer.message.topic, answer.message.payload, answer.message.qos) == (b"other", b"20.2512", 1)
    assert answer.code == 0


def test_the_first_refusal_ends_the_chain() -> None:
    asked, called = Asked(), []
    asked.add(lambda message: Reject(0x99, "no number"))
    asked.add(lambda message: called.append(message))
    answer = asked.ask()
    assert answer is not None
    assert (answer.code, answer.reason) == (0x99, "no number")
    assert "hook tests.unit.extensions.test_publish_hooks." in answer.detail
    assert called == []


def test_a_property_of_a_wrong_type_is_a_failure() -> None:
    """The compiled build raises when it is made, the pure one when it is read."""
    asked = Asked()
    asked.add(lambda message: message.replace(properties=Properties(message_expiry_interval="x")))  # type: ignore[arg-type]
    answer = asked.ask()
    assert answer is not None
    assert answer.code == FAILED
    assert "gave a wrong topic or properties" in answer.detail or "TypeError" in answer.detail


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (raises, "raised RuntimeError('no')"),
        (lambda message: 5, "returned int, and not None, an Incoming or a Reject"),
        (lambda message: message.replace(topic="a/#"), "gave a wrong topic"),
        (lambda message: message.replace(topic="\ud800"), "gave a wrong topic"),
        (lambda message: message.replace(topic=b"a"), "gave topic bytes"),
        (lambda message: message.replace(payload="x"), "gave topic str and payload str"),
        (lambda message: message.replace(qos=3), "gave qos 3"),
        (lambda message: message.replace(retain=1), "retain 1"),
        (lambda message: message.replace(properties=Properties(topic_alias=3)), "topic_alias"),
        (lambda message: message.replace(properties=None), "gave a wrong topic or properties"),
    ],
)
def test_a_hook_that_fails_refuses_or_accepts(
    function: Callable[[Incoming], object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = Asked()
    asked.add(function)
    answer = asked.ask()
    assert answer is not None
    assert (answer.code, answer.reason) == (FAILED, "a hook of the broker failed")
    assert why in answer.detail
    assert sum(asked.failures.counts.values()) == 1
    assert "is refused" in caplog.text
    accepting = Asked()
    accepting.add(function, on_error="accept")
    assert accepting.ask() is UNCHANGED
    assert sum(accepting.failures.counts.values()) == 1
    assert "is published unchanged" in caplog.text


def test_failures_are_logged_once_a_second_and_all_counted(caplog: pytest.LogCaptureFixture) -> None:
    asked = Asked()
    asked.add(raises)
    for _ in range(3):
        asked.ask()
    assert len(caplog.records) == 1
    asked.now += 1
    asked.ask()
    assert len(caplog.records) == 2
    assert list(asked.failures.counts.values()) == [4]


async def test_a_coroutine_answers_later_and_the_others_follow() -> None:
    asked = Asked()

    async def looks_up(message: Incoming) -> Incoming:
        await asyncio.sleep(0)
        return message.replace(payload=b"found")

    asked.add(looks_up)
    asked.add(lambda message: message.replace(payload=message.payload + b"!"))
    asked.add(looks_up, "other")
    answer = await asked.answer()
    assert answer.message is not None
    assert answer.message.payload == b"found!"


async def test_a_late_coroutine_is_stopped() -> None:
    asked, stopped = Asked(), []

    async def never(message: Incoming) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(message)

    asked.add(never, deadline_s=0.01)
    answer = await asked.answer()
    assert answer.code == FAILED
    assert "was not done after 0.01 s" in answer.detail
    assert len(stopped) == 1


async def test_its_own_time_out_is_no_lateness() -> None:
    asked = Asked()

    async def gives_up(message: Incoming) -> None:
        raise TimeoutError

    asked.add(gives_up, on_error="accept")
    assert await asked.answer() is UNCHANGED
    assert list(asked.failures.counts.values()) == [1]


async def test_a_stop_refuses_what_waits() -> None:
    asked = Asked()

    async def never(message: Incoming) -> None:
        await asyncio.Event().wait()

    asked.add(never)
    assert asked.ask() is None
    await asyncio.sleep(0)
    await asked.hooks.stop()
    ((held, answer),) = asked.late
    assert (held, answer.code) == ("held", FAILED)
    assert asked.ask() is not None, "nothing new waits"


async def test_a_hook_that_never_ends_holds_a_stop_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ending, "STOP_S", 0.01)
    asked, released = Asked(), asyncio.Event()

    async def stubborn(message: Incoming) -> None:
        while not released.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await released.wait()

    asked.add(stubborn)
    assert asked.ask() is None
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await asked.hooks.stop()
    assert [answer.code for _, answer in asked.late] == [FAILED]
    assert "a hook did not end" in caplog.text
    released.set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(asked.late) == 1, "it is answered once"
    assert len(caplog.records) == 1, "and its late end is no error"


def test_the_broker_s_own_messages_are_not_shown() -> None:
    asked = Asked()
    asked.add(raises)
    found = asked.hooks.hook_of(b"a")
    assert found is not None
    assert found.ask(Message(b"a", b"x"), THE_BROKER, None) is UNCHANGED


def test_unchanged_parts_stay_as_they_came() -> None:
    asked = Asked()
    asked.add(lambda message: message.replace(payload=b"y"))
    raw = RawProperties(b"\x05\x02\x00\x00\x00\x0a", 10)
    answer = asked.ask(Message(b"a", b"x", 1, True, NONE, 105.0, raw))
    assert answer is not None
    assert answer.message is not None
    assert (answer.message.raw, answer.message.expires_at, answer.message.retain) == (raw, 105.0, True)


def test_other_properties_begin_their_expiry_anew() -> None:
    asked = Asked()
    asked.add(lambda message: message.replace(properties=Properties(message_expiry_interval=7)))
    answer = asked.ask()
    assert answer is not None
    assert answer.message is not None
    assert answer.message.expires_at == 107.0


@pytest.mark.parametrize("code", [0, 0x10, 0x82, 0x100])
def test_a_refusal_has_a_code_of_puback(code: int) -> None:
    with pytest.raises(ValueError, match="a hook refuses with one of 0x80, 0x83"):
        Reject(code)


@pytest.mark.parametrize(
    ("topic_filter", "options", "why"),
    [
        ("a/#/b", {}, "not a whole last level"),
        ("\ud800", {}, "surrogates"),
        ("$share/g/a", {}, "subscriptions and commands"),
        ("a", {"deadline_s": 0}, "deadline_s is 0"),
        ("a", {"deadline_s": float("inf")}, "deadline_s is inf"),
        ("a", {"on_error": "ignore"}, "it may be 'reject' or 'accept'"),
    ],
)
def test_a_wrong_registration_is_refused(topic_filter: str, options: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Hooks().on_publish(topic_filter, **options)  # type: ignore[arg-type]


async def test_a_host_gets_all_hooks() -> None:
    class Inbound:
        def __init__(self) -> None:
            self.added: list[PublishHook] = []
            self.add_hook = self.added.append

    class Host:
        inbound = Inbound()

    hooks = Hooks()

    @hooks.on_publish("a")
    def first(message: Incoming) -> None: ...

    @hooks.on_publish("b", deadline_s=2)
    async def second(message: Incoming) -> Awaitable[None] | None: ...

    await hooks.start(Host())  # type: ignore[arg-type]
    assert [(each.topic_filter, each.deadline_s) for each in Host.inbound.added] == [(b"a", 5.0), (b"b", 2)]
