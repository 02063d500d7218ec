"""How an operator has a queue pushed: by the command line, over HTTP, and what each of them shows."""

import asyncio
import json
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from standardwebhooks import Webhook

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.extensions.push.options import PushOptions
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.extensions.queues.push_target import PushTarget, new_secret
from mqttlite.gateway.caller import Role
from mqttlite.server import Broker
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.telemetry.sys_topics import SysOptions
from tests.support.device import Device, until
from tests.support.gateway import running_gateway
from tests.support.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

LOCAL = PushOptions(allowed_hosts=("127.0.0.1",))


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:  # the path of a socket has a limit
        yield Path(found)


async def run(directory: Path, *arguments: str) -> tuple[int, str]:
    words = (*arguments[:2], "--data-dir", str(directory), *arguments[2:])
    result = await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)
    return result.exit_code, result.output


def secret_in(text: str) -> str:
    return next(word.rstrip(",") for word in text.split() if word.startswith("whsec_"))


@pytest.mark.long
async def test_a_queue_is_pushed_changed_signed_anew_and_stopped_by_the_command_line(directory: Path) -> None:
    config = Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory), push=LOCAL)
    async with Receiver() as receiver, Broker(config) as broker:
        code, text = await run(directory, "queue", "create", "q", "a/#", "--push-url", receiver.url("/one?token=t"))
        assert (code, text.splitlines()[0]) == (
            0,
            f"Queue q made: its messages are pushed to {receiver.url('/one?token=t')}.",
        )
        first = secret_in(text)
        code, text = await run(directory, "queue", "push", "q", "--push-max-requests", "7", "--push-no-wrapper")
        assert (code, "whsec_" in text) == (0, False)
        rows = dict(line.split("\t") for line in text.splitlines())
        assert rows == {
            "push.url": receiver.url("/one?token=t"),
            "push.state": "pushing",
            "push.why": "",
            "push.open": "0",
            "push.window": "1",
            "push.held_s": "0.0",
            "push.secrets": "1",
            "push.max_requests": "7",
            "push.wrapper": "False",
        }
        code, text = await run(directory, "queue", "push", "q", "--rotate-secret")
        second = secret_in(text)
        await broker.publish("a/b", b"{}", qos=1)
        await until(lambda: len(receiver.requests) == 1)
        for secret in (first, second):
            Webhook(secret).verify(receiver.requests[0].body, receiver.requests[0].headers)
        code, text = await run(directory, "queue", "show", "q", "--json")
        assert text[:1] == "{", text
        shown = json.loads(text)
        assert (code, "whsec_" in text, shown["push"]["requests"]["2xx"]) == (0, False, 1)
        assert (await run(directory, "queue", "push", "q", "--stop"))[1] == (
            "Queue q is not pushed: consumers subscribe to $queue/q.\n"
        )
        assert broker.queues.options("q").push is None


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (("create", "r", "a/#", "--push-url", "https://10.0.0.1/"), 2, "10.0.0.1 is a private or reserved address"),
        (("create", "r", "a/#", "--push-secret", "whsec_x"), 2, "--push-url is missing"),
        (("push", "q", "--push-url", "http://h.example"), 2, "Push.url is 'http://h.example'"),
        (("push", "q", "--push-max-requests", "5"), 2, "--push-url is missing"),
        (("push", "q", "--rotate-secret"), 4, "The queue q has no push target."),
        (("push", "q", "--stop", "--rotate-secret"), 2, "go one by one"),
        (("push", "none"), 3, "queue"),
    ],
)  # fmt: skip
async def test_wrong_commands(directory: Path, arguments: tuple[str, ...], code: int, part: str) -> None:
    config = Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory), queues=(QueueOptions(name="q"),))
    async with Broker(config) as broker:
        found, text = await run(directory, "queue", *arguments)
        assert (found, part in text) == (code, True), text
        assert broker.queues.names == ["q"]


async def test_a_new_secret_needs_no_broker() -> None:
    result = CliRunner().invoke(main, ["queue", "secret"])
    Webhook(result.output.strip())


@pytest.mark.long
async def test_over_http_an_admin_sets_an_endpoint_and_others_see_no_secrets_of_it(tmp_path: Path) -> None:
    target = PushTarget(url="https://h.example", secret=new_secret())
    configured = QueueOptions(name="configured", push=target)
    async with (
        Receiver() as receiver,
        running_gateway(tmp_path, push=LOCAL, queues=(configured, QueueOptions(name="plain"))) as gateway,
    ):
        admin, viewer = gateway.client(Role.ADMIN), gateway.client(Role.VIEWER)
        url = receiver.url("/in?token=t")
        body: dict[str, Any] = {"name": "q", "filters": ["a/#"], "push": {"url": url}}
        assert (await gateway.client(Role.OPERATOR).post("/api/v1/queues", json=body)).status_code == 403
        made = (await admin.post("/api/v1/queues", json=body)).json()
        assert made["push_secret"].startswith("whsec_")
        seen = (await viewer.get("/api/v1/queues/q")).json()
        assert (seen["push"]["url"], seen["options"]["push"]["url"]) == (receiver.url("/in"), receiver.url("/in"))
        assert "push_secret" not in seen
        assert (await admin.get("/api/v1/queues/q")).json()["options"]["push"]["url"] == url
        rotated = (await admin.post("/api/v1/queues/q/push-secret")).json()["secret"]
        assert rotated != made["push_secret"]
        assert (await admin.post("/api/v1/queues/plain/push-secret")).status_code == 409
        config = (await admin.get("/api/v1/config")).text
        assert ("h.example" in config, "whsec_" in config) == (True, False)
        refused = await admin.post("/api/v1/queues", json={"name": "r", "push": {"url": "https://[::1]"}})
        assert (refused.status_code, "::1 is a private or reserved address" in refused.text) == (422, True)


@pytest.mark.long
async def test_the_outcome_of_a_push_is_in_metrics_sys_topics_log_and_why(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mqttlite.push")
    at_once = RetryOptions(min_s=0, max_s=0)
    config = Config(
        listeners=(ListenerOptions(port=0),),
        data_dir=str(directory),
        push=LOCAL,
        metrics=MetricsOptions(port=0),
        sys=SysOptions(interval_s=1),
        delivery_log=DeliveryLogOptions(topics=("a/#",)),
    )
    async with Receiver() as receiver, Broker(config) as broker:
        url = receiver.url("/fail/2/503?token=t")
        await run(directory, "queue", "create", "q", "a/#", "--push-url", url, "--retry-min", "0", "--retry-max", "0")
        assert broker.queues.options("q").retry == at_once
        device = await Device.dial(broker.listeners[0].port)
        await device.connect("p")
        await device.subscribe("$SYS/broker/queues/q/push/+", 0)
        await device.published("a/b", b"x")
        await until(lambda: broker.queues.state("q").ends["acknowledged"] == 1)
        assert broker.monitor is not None
        address = f"http://{broker.monitor.addresses[0]}/metrics"
        text = (await asyncio.to_thread(urllib.request.urlopen, address)).read().decode()
        for line in (
            'mqttlite_push_requests_total{queue="q",result="2xx"} 1.0',
            'mqttlite_push_requests_total{queue="q",result="5xx"} 2.0',
            'mqttlite_push_state{queue="q",state="pushing"} 1.0',
            "mqttlite_push_duration_seconds_count 3.0",
        ):
            assert line in text
        origin = f"http://127.0.0.1:{receiver.port}"
        messages = [each.getMessage() for each in caplog.records if each.name == "mqttlite.push"]
        assert messages == [
            f"queue q: {origin} does not take messages: HTTP 503 (failed requests: 1)",
            f"queue q: {origin} takes messages again",
        ]
        assert "token" not in caplog.text.replace(url, "")
        assert broker.observer is not None
        assert broker.observer.answers is not None
        said = "\n".join(broker.observer.answers.why("a/b")["sentences"])
        assert f"HTTP 503 of {origin}" in said, said
        states = [await device.message()]
        while states[-1][1] != b"pushing":  # A tick may have come between the failures.
            states.append(await device.message())
        assert set(states) <= {("$SYS/broker/queues/q/push/state", state) for state in (b"pushing", b"failing")}
        device.drop()
        await device.close()
