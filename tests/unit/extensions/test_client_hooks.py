"""What the hooks about clients answer, also when they fail."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from mqttlite.core.authentication import Verdict
from mqttlite.core.identity import Identity
from mqttlite.core.reasons import CloseReason
from mqttlite.core.source import CLIENT, Source
from mqttlite.event_hub import Link
from mqttlite.extensions.client_hook import (
    ConnectHook,
    ConnectingClient,
    DisconnectedClient,
    DisconnectHook,
    SubscribeHook,
    Subscribing,
)
from mqttlite.extensions.client_hooks import ConnectHooks, DisconnectListener, SubscribeHooks
from mqttlite.extensions.hook_failures import HookFailures
from mqttlite.extensions.hooks import Hooks
from mqttlite.extensions.publish_hook import Reject


def link(is_inside: bool = False) -> Link:
    connection = SimpleNamespace(
        client_id="c",
        username="ann",
        close_reason=CloseReason.CLIENT_DISCONNECTED,
        peer=SimpleNamespace(is_inside=is_inside),
    )
    return cast("Link", SimpleNamespace(connection=connection, address="10.0.0.1:1", listener="tcp"))


def failures() -> HookFailures:
    return HookFailures(lambda: 5.0)


async def connect(hooks: Hooks, counted: HookFailures) -> Verdict:
    asked = ConnectHooks(counted)
    for each in hooks._hooks:
        assert isinstance(each, ConnectHook)
        asked.add(each)
    return await asked.verdict(link(), "ann")


def subscribe(hooks: Hooks, counted: HookFailures) -> tuple[int, str]:
    asked = SubscribeHooks(counted)
    for each in hooks._hooks:
        assert isinstance(each, SubscribeHook)
        asked.add(each)
    source = Source(CLIENT, "c", Identity("ann"))
    return asked.refusal(source, b"a/#", 1)


async def test_the_first_refusal_of_a_client_ends_the_chain() -> None:
    hooks, seen = Hooks(), list[ConnectingClient]()

    @hooks.on_connect()
    def plain(client: ConnectingClient) -> None:
        seen.append(client)

    @hooks.on_connect()
    async def refuse(client: ConnectingClient) -> Reject:
        await asyncio.sleep(0)
        return Reject(0x89, "come later")

    @hooks.on_connect()
    def never(client: ConnectingClient) -> None:
        raise AssertionError("it is refused already")

    verdict = await connect(hooks, failures())
    assert (verdict.reason_code, verdict.reason) == (0x89, "come later")
    assert seen == [ConnectingClient("c", "ann", "10.0.0.1:1", "tcp")]


async def test_a_code_that_connack_does_not_have_is_not_authorized() -> None:
    hooks = Hooks()
    hooks.on_connect()(lambda client: Reject())
    verdict = await connect(hooks, failures())
    assert (verdict.reason_code, verdict.reason) == (0x87, "refused by a hook")


@pytest.mark.parametrize(("on_error", "code"), [("reject", 0x88), ("accept", 0)])
async def test_a_hook_that_fails_refuses_or_accepts_a_client(
    on_error: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, counted = Hooks(), failures()

    async def late(client: ConnectingClient) -> None:
        await asyncio.sleep(60)

    def wrong(client: ConnectingClient) -> int:
        return 5

    for function in (late, wrong):
        hooks.on_connect(deadline_s=0.01, on_error=on_error)(function)  # type: ignore[arg-type, type-var]
    verdict = await connect(hooks, counted)
    assert verdict.reason_code == code
    assert list(counted.counts.values()) == ([1, 0] if code else [1, 1])
    assert "was not done after 0.01 s: client 'c' is " + ("refused" if code else "accepted") in caplog.text


def test_a_subscription_is_refused_with_a_code_of_suback() -> None:
    hooks, seen = Hooks(), list[Subscribing]()

    @hooks.on_subscribe()
    def plain(request: Subscribing) -> Reject | None:
        seen.append(request)
        return None

    assert subscribe(hooks, failures()) == (0, "")
    assert seen == [Subscribing("c", "ann", "a/#", 1)]
    hooks.on_subscribe()(lambda request: Reject(0x97, "enough"))
    assert subscribe(hooks, failures()) == (0x97, "enough")
    other = Hooks()
    other.on_subscribe()(lambda request: Reject(0x99))
    assert subscribe(other, failures()) == (0x83, "refused by a hook")


async def coroutine(request: Subscribing) -> None:
    raise AssertionError("it is never run")


@pytest.mark.parametrize(
    ("function", "why"), [(coroutine, "is a coroutine"), (lambda request: 5, "returned int"), (len, "raised TypeError")]
)
@pytest.mark.parametrize(("on_error", "code"), [("reject", 0x83), ("accept", 0)])
def test_a_hook_that_fails_refuses_or_grants_a_subscription(
    function: object, why: str, on_error: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    hooks, counted = Hooks(), failures()
    hooks.on_subscribe(on_error=on_error)(function)  # type: ignore[arg-type, type-var]
    assert subscribe(hooks, counted)[0] == code
    assert sum(counted.counts.values()) == 1
    assert why in caplog.text


def test_a_hook_learns_who_is_gone_and_may_fail() -> None:
    counted, seen = failures(), list[DisconnectedClient]()
    listener = DisconnectListener(DisconnectHook("h", seen.append), counted)
    listener.on_closed(link())
    listener.on_closed(link(is_inside=True))
    assert seen == [DisconnectedClient("c", "ann", "10.0.0.1:1", "tcp", "client_disconnected")]
    DisconnectListener(DisconnectHook("h", lambda client: 1 / 0), counted).on_closed(link())  # type: ignore[arg-type, return-value]
    assert counted.counts == {"h": 1}


async def test_a_hook_that_waits_for_something_cancelled_has_failed() -> None:
    hooks, counted = Hooks(), failures()

    @hooks.on_connect()
    async def ask(client: ConnectingClient) -> None:
        task = asyncio.create_task(asyncio.sleep(60))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    assert (await connect(hooks, counted)).reason_code == 0x88
    assert sum(counted.counts.values()) == 1
    stopped = asyncio.create_task(connect(hooks, counted))
    await asyncio.sleep(0)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped


def test_a_reason_fits_into_a_packet() -> None:
    assert Reject(0x87, "\ud800 a\0b").reason == "? a?b"
    assert len(Reject(0x87, "ä" * 70_000).reason.encode()) == 1_000
    with pytest.raises(ValueError, match="reason is int"):
        Reject(0x87, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{"deadline_s": 0.0}, {"on_error": "ignore"}])
def test_wrong_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="on_connect"):
        Hooks().on_connect(**options)  # type: ignore[arg-type]
