"""`mqttlite queue` and `dlq` beside a real broker with a data directory, and what they leave on disk."""

import asyncio
import json
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mqttlite.cli.main import main
from mqttlite.config import Config, ListenerOptions
from mqttlite.config.metrics import MetricsOptions
from mqttlite.extensions.queues.options import QueueOptions, RetryOptions
from mqttlite.extensions.queues.properties import time_text
from mqttlite.server import Broker
from mqttlite.telemetry.delivery_log import DeliveryLogOptions
from mqttlite.telemetry.sys_topics import SysOptions
from mqttlite.wire.constants import PUBACK
from mqttlite.wire.packets import Ack, Publish
from tests.integration.conftest import Rig
from tests.support.device import Device, until

pytestmark = pytest.mark.asyncio(loop_factories=["asyncio"])

JOBS = QueueOptions(name="jobs", filters=("work/#",), max_attempts=1, retry=RetryOptions(min_s=0, max_s=0))


@pytest.fixture
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mqttlite-") as found:
        yield Path(found)


@pytest.fixture
async def broker(rig: Rig, directory: Path) -> Broker:
    return await rig.broker(Config(listeners=(ListenerOptions(port=0),), data_dir=str(directory), queues=(JOBS,)))


async def run(directory: Path, *arguments: str) -> Result:
    words = (*arguments[:2], "--data-dir", str(directory), *arguments[2:])
    return await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)


async def printed(directory: Path, *arguments: str) -> str:
    result = await run(directory, *arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


async def refuse(consumer: Device) -> None:
    """Take the next message and refuse it, which makes it a dead letter."""
    packet = await consumer.expect(Publish)
    consumer.send(Ack(PUBACK, packet.packet_id, 0x80))


@pytest.mark.long
async def test_queues_are_made_listed_shown_and_deleted(broker: Broker, directory: Path) -> None:
    given = ("--ack-deadline", "20", "--ordering", "--idle-expiry", "60")
    made = await printed(directory, "queue", "create", "mail", "mail/+", "post", *given)
    assert made == "Queue mail made: consumers subscribe to $queue/mail.\n"
    assert await printed(directory, "queue", "ls") == (
        "jobs\t0\t0\t0\t-\t0\t0\trunning\twork/#\nmail\t0\t0\t0\t-\t0\t0\trunning\tmail/+ post\n"
    )
    found = json.loads(await printed(directory, "queue", "show", "mail", "--json"))
    options = found["options"]
    assert (options["ack_deadline_s"], options["ordering"], options["idle_expiry_s"]) == (20.0, True, 60)
    assert found["origin"] == "admin"
    assert "options.max_attempts\t1\n" in await printed(directory, "queue", "show", "jobs")
    again = await run(directory, "queue", "create", "mail", "mail/+")
    assert (again.exit_code, again.stderr) == (4, "Error: There is a queue mail already.\n")
    wrong = await run(directory, "queue", "create", "other", "a/#/b")
    assert (wrong.exit_code, "'#' in 'a/#/b' is not a whole last level" in wrong.stderr) == (2, True)
    assert await printed(directory, "queue", "delete", "mail", "--yes") == "Queue mail deleted.\n"
    gone = await run(directory, "queue", "show", "mail")
    assert (gone.exit_code, gone.stderr) == (3, "Error: There is no queue 'mail'.\n")


@pytest.mark.long
async def test_a_queue_may_have_a_filter(broker: Broker, directory: Path) -> None:
    given = ("--filter", "payload.n > 1", "--dead-letter-on", "filter", "--dead-letter-topic", "dead", "--expiry", "0")
    await printed(directory, "queue", "create", "some", "other/#", *given)
    options = json.loads(await printed(directory, "queue", "show", "some", "--json"))["options"]
    assert (options["filter"], options["dead_letter_on"]) == ("payload.n > 1", ["filter"])
    assert (options["dead_letter_topic"], options["expiry_s"]) == ("dead", 0)
    for payload in (b'{"n": 1}', b'{"n": 2}'):
        await broker.publish("other/a", payload, qos=1)
    found = json.loads(await printed(directory, "queue", "show", "some", "--json"))
    assert (found["depth"], found["filtered"], found["dead_letters"]) == (1, 1, 1)
    wrong = await run(directory, "queue", "create", "none", "other/#", "--filter", "n > 1")
    assert (wrong.exit_code, "filter: position 1: found n, and expected a condition" in wrong.stderr) == (2, True)


async def test_waiting_messages_are_shown_and_dropped(broker: Broker, directory: Path) -> None:
    for number in range(3):
        await broker.publish("work/a", b"%d" % number, qos=1)
    result = await run(directory, "queue", "peek", "jobs", "--limit", "2")
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert [(line[2], line[3], line[4]) for line in lines] == [("1", "work/a", "0"), ("1", "work/a", "1")]
    assert result.stderr == "1 more message is in the queue.\n"
    assert await printed(directory, "queue", "purge", "jobs", "--dry-run") == "Would drop 3 messages.\n"
    assert await printed(directory, "queue", "purge", "jobs", "--yes") == "3 messages dropped.\n"
    assert json.loads(await printed(directory, "queue", "show", "jobs", "--json"))["depth"] == 0


@pytest.mark.long
async def test_a_paused_queue_delivers_when_it_is_resumed(rig: Rig, broker: Broker, directory: Path) -> None:
    assert await printed(directory, "queue", "pause", "jobs") == "Queue jobs paused.\n"
    consumer = await rig.device(broker.port, "c")
    await consumer.subscribe("$queue/jobs", 1)
    await broker.publish("work/a", b"x", qos=1)
    assert "\tpaused\t" in await printed(directory, "queue", "ls")
    assert await printed(directory, "queue", "resume", "jobs") == "Queue jobs resumed.\n"
    assert (await consumer.expect(Publish)).payload == b"x"


@pytest.mark.long
async def test_dead_letters_are_listed_shown_replayed_and_dropped(rig: Rig, broker: Broker, directory: Path) -> None:
    consumer = await rig.device(broker.port, "c")
    await consumer.subscribe("$queue/jobs", 1)
    for payload in (b"one", b"two", b"600"):
        await broker.publish("work/a", payload, qos=1)
        await refuse(consumer)
    await until(lambda: len(broker_letters(broker)) == 3)
    assert await printed(directory, "dlq", "ls") == "jobs\t3\t3\n"
    rows = [line.split("\t") for line in (await printed(directory, "dlq", "ls", "jobs")).splitlines()]
    assert [(row[0], row[2], row[3], row[5], row[6]) for row in rows] == [
        (number, "nacked", "1", "3", "work/a") for number in "123"
    ]
    assert "property original-topic\twork/a\n" in await printed(directory, "dlq", "show", "jobs", "2")
    assert json.loads(await printed(directory, "dlq", "show", "jobs", "2", "--json"))["payload"] == "two"
    dry = await printed(directory, "dlq", "replay", "jobs", "--filter", "payload = 600", "--dry-run")
    assert dry == "Would replay 1 dead letter.\n"
    assert await printed(directory, "dlq", "replay", "jobs", "--filter", "payload = 600", "--rate", "100") == (
        "1 dead letter replayed.\n"
    )
    assert (await consumer.expect(Publish)).payload == b"600"
    by_cause = await printed(directory, "dlq", "ls", "jobs", "--filter", 'attributes.dead-letter-cause = "nacked"')
    assert len(by_cause.splitlines()) == 2
    assert await printed(directory, "dlq", "ls", "jobs", "--filter", 'topic = "elsewhere"') == ""
    wrong = await run(directory, "dlq", "drop", "jobs", "--filter", "six")
    assert (wrong.exit_code, "Filter: position 1: found six, and expected a condition" in wrong.stderr) == (2, True)
    assert await printed(directory, "dlq", "drop", "jobs", "1") == "1 dead letter dropped.\n"
    assert await printed(directory, "dlq", "drop", "jobs") == "1 dead letter dropped.\n"
    missing = await run(directory, "dlq", "show", "jobs", "1")
    assert (missing.exit_code, missing.stderr) == (3, "Error: The queue jobs has no dead letter 1.\n")


def broker_letters(broker: Broker) -> list[object]:
    return list(broker.queues.dead_letters("jobs").letters())


async def test_sys_topics_and_metrics_tell_what_is_in_a_queue(rig: Rig) -> None:
    broker = await rig.broker(
        Config(
            listeners=(ListenerOptions(port=0),),
            queues=(JOBS,),
            sys=SysOptions(interval_s=0.2),
            metrics=MetricsOptions(port=0),
        )
    )
    reader = await rig.device(broker.port, "r")
    await reader.subscribe("$SYS/broker/queues/jobs/#")
    consumer = await rig.device(broker.port, "c")
    await consumer.subscribe("$queue/jobs", 1)
    await broker.publish("work/a", b"x", qos=1)
    await refuse(consumer)
    await broker.publish("work/a", b"x", qos=1)
    wanted = {"depth": "1", "leased": "1", "lag": "0", "consumers": "1", "attempts": "2", "redeliveries": "0"}
    wanted |= {"nacked_late": "0", "dead_letters": "1", "dead_letters/nacked": "1"}
    found: dict[str, str] = {}
    while found.keys() != {*wanted, "oldest_s", "growth"} or not wanted.items() <= found.items():
        packet = await reader.expect(Publish)
        found[packet.topic.decode().removeprefix("$SYS/broker/queues/jobs/")] = packet.payload.decode()
    assert broker.monitor is not None
    url = f"http://{broker.monitor.addresses[0]}/metrics"
    lines = (await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())).splitlines()
    assert {
        'mqttlite_queue_depth{queue="jobs"} 1.0',
        'mqttlite_queue_attempts_total{queue="jobs"} 2.0',
        'mqttlite_dead_letters_total{cause="nacked",queue="jobs"} 1.0',
        'mqttlite_queue_lag{queue="jobs"} 0.0',
        'mqttlite_queue_redeliveries_total{queue="jobs"} 0.0',
        'mqttlite_queue_ended_total{end="dead_lettered",queue="jobs"} 1.0',
        'mqttlite_queue_failures_total{cause="nacked",queue="jobs"} 1.0',
    } <= set(lines)


async def test_the_delivery_log_tells_what_became_of_a_message_in_a_queue(rig: Rig) -> None:
    broker = await rig.broker(
        Config(
            listeners=(ListenerOptions(port=0),), queues=(JOBS,), delivery_log=DeliveryLogOptions(topics=("work/#",))
        )
    )
    consumer = await rig.device(broker.port, "c")
    assert broker.observer is not None
    answers = broker.observer.answers
    assert answers is not None

    def said(topic: str) -> str:
        return "\n".join(answers.why(topic)["sentences"])

    await broker.publish("work/a", b"x", qos=1)
    assert "waits for $queue/jobs since" in said("work/a")
    await consumer.subscribe("$queue/jobs", 1)
    packet = await consumer.expect(Publish)
    consumer.send(Ack(PUBACK, packet.packet_id))
    await until(lambda: "delivered to $queue/jobs" in said("work/a"))
    assert "delivered to c at QoS 1" in said("work/a")
    await broker.publish("work/b", b"x", qos=1)
    await refuse(consumer)
    await until(lambda: "it is in $dlq/jobs after 1 deliveries (nacked)" in said("work/b"))
    assert "attempt 1 of queue jobs: delivered to c at " in said("work/b")


@pytest.mark.long
async def test_a_queue_is_sought_to_a_time_and_to_a_snapshot(broker: Broker, directory: Path) -> None:
    await printed(directory, "queue", "create", "mail", "mail/#", "--retain-acked")
    for number in range(3):
        await broker.publish(f"mail/{number}", b"x", qos=1)
    first, second, _ = broker.queues.pull("mail", 3)
    broker.queues.ack("mail", [first.ack_id, second.ack_id])
    made = await printed_of_snapshot(directory, "create", "mail", "before")
    assert made.startswith("Snapshot before of 1 message, until ")
    assert (await printed_of_snapshot(directory, "ls", "mail")).split()[:3] == ["before", "mail", "1"]
    at = time_text(second.message.number)
    sought = await printed(directory, "queue", "seek", "mail", "--time", at)
    assert sought == f"Queue mail is at {at}: 2 messages in it.\n"
    sought = await printed(directory, "queue", "seek", "mail", "--snapshot", "before")
    assert sought == "Queue mail is at before: 1 message in it.\n"
    assert "retained\t2\n" in await printed(directory, "queue", "show", "mail")
    for arguments, code, sentence in [
        (("mail", "--time", "noon"), 2, "Error: The body is not where to seek to: 'noon' is no time"),
        (("mail", "--snapshot", "none"), 3, "Error: There is no snapshot 'none'"),
        (("none", "--time", at), 3, "Error: There is no queue 'none'"),
        (("jobs", "--snapshot", "before"), 4, "Error: The snapshot before is of the queue mail"),
        (("mail",), 2, "Error: Say one of --time and --snapshot."),
    ]:
        refused = await run(directory, "queue", "seek", *arguments)
        assert (refused.exit_code, sentence in refused.stderr) == (code, True), refused.stderr
    assert await printed_of_snapshot(directory, "rm", "before") == "Snapshot before deleted.\n"
    assert json.loads(await printed_of_snapshot(directory, "ls", "--json")) == {"entries": []}


async def printed_of_snapshot(directory: Path, action: str, *arguments: str) -> str:
    words = ("queue", "snapshot", action, "--data-dir", str(directory), *arguments)
    result = await asyncio.to_thread(CliRunner().invoke, main, words, catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


@pytest.mark.long
async def test_purge_and_delete_ask_first(broker: Broker, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.publish("work/a", b"x", qos=1)
    for words, question in (
        (("queue", "purge", "jobs"), "Drop 1 message of queue jobs?"),
        (("queue", "delete", "jobs"), "Delete queue jobs with 1 message and 0 dead letters?"),
    ):
        refused = await run(directory, *words)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert refused.stderr == (
            f"Error: {question} Nobody can be asked, because the standard input is no terminal: give --yes.\n"
        )
        with monkeypatch.context() as patched:
            patched.setattr("mqttlite.cli.ask_admin.is_terminal", lambda _stream: True)
            declined = await asyncio.to_thread(
                CliRunner().invoke, main, (*words, "--data-dir", str(directory)), input="n\n"
            )
        assert (declined.exit_code, declined.stdout) == (1, "")
        assert declined.stderr.startswith(f"{question} [y/N]: ")
        assert json.loads(await printed(directory, "queue", "show", "jobs", "--json"))["depth"] == 1
    assert (await run(directory, "queue", "purge", "none")).exit_code == 3
    with monkeypatch.context() as patched:
        patched.setattr("mqttlite.cli.ask_admin.is_terminal", lambda _stream: True)
        agreed = await asyncio.to_thread(
            CliRunner().invoke, main, ("queue", "purge", "jobs", "--data-dir", str(directory)), input="y\n"
        )
    assert agreed.stdout.endswith("1 message dropped.\n")


async def test_the_list_says_which_queue_waits_for_a_consumer(rig: Rig, broker: Broker, directory: Path) -> None:
    assert (await printed(directory, "queue", "ls")).split("\t")[-2] == "running"
    await broker.publish("work/a", b"x", qos=1)
    assert (await printed(directory, "queue", "ls")).split("\t")[-2] == "no consumer"
    consumer = await rig.device(broker.port, "c")
    await consumer.subscribe("$queue/jobs", 1)
    assert (await printed(directory, "queue", "ls")).split("\t")[-2] == "running"
    await printed(directory, "queue", "pause", "jobs")
    assert (await printed(directory, "queue", "ls")).split("\t")[-2] == "paused"


async def test_the_configuration_of_the_broker_names_its_data_directory(broker: Broker, directory: Path) -> None:
    file = directory / "broker.toml"
    file.write_text(f'data_dir = "{directory}"\n')

    async def listed(*arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, main, ("queue", "ls", *arguments))

    found = await listed("-c", str(file))
    assert (found.exit_code, found.stdout.split("\t")[0]) == (0, "jobs")
    both = await listed("-c", str(file), "--data-dir", str(directory))
    assert (both.exit_code, "each name a broker" in both.stderr) == (2, True)
    file.write_text('data_dir = ""\n')
    off = await listed("-c", str(file))
    assert (off.exit_code, "has no admin socket" in off.stderr) == (2, True)
    file.write_text("data_dir = 5\n")
    assert (await listed("-c", str(file))).exit_code == 2
