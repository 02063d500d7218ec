"""Google's own client for Pub/Sub, by its REST transport and unchanged, as administrator, publisher and puller."""

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials, Credentials
from google.auth.exceptions import InvalidOperation
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.publisher.futures import Future
from google.oauth2.credentials import Credentials as Token
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1 import SubscriberClient
from google.pubsub_v1.services.publisher.transports.rest import PublisherRestTransport
from google.pubsub_v1.services.subscriber.transports.rest import SubscriberRestTransport
from google.pubsub_v1.types import PubsubMessage, PushConfig, SeekResponse

from mqttlite.config import Config, ListenerOptions
from mqttlite.config.http import HttpOptions
from mqttlite.extensions.push.options import PushOptions
from mqttlite.security.api_keys import FILE_NAME, add
from mqttlite.server import Broker
from tests.support.gateway import nobody_without_credentials

pytestmark = pytest.mark.slow

PROJECT = "projects/shop"
TOPIC = f"{PROJECT}/topics/orders"
MAIL = f"{PROJECT}/subscriptions/mail"


class Google:
    """Both of its clients, at a gateway that asks for credentials."""

    def __init__(self, host: str, credentials: Credentials) -> None:
        publisher = PublisherRestTransport(host=host, url_scheme="http", credentials=credentials)
        subscriber = SubscriberRestTransport(host=host, url_scheme="http", credentials=credentials)
        self.publisher = pubsub_v1.PublisherClient(
            pubsub_v1.types.BatchSettings(max_messages=10),
            pubsub_v1.types.PublisherOptions(enable_message_ordering=True, timeout=60),
            transport=publisher,
        )
        self.subscriber = SubscriberClient(transport=subscriber)

    def publish(self, topic: str, data: bytes, ordering_key: str = "", **attributes: str) -> Future:
        """Publish by the client that makes batches. With ordering keys and retries it sets a timeout of 2**32 seconds,
        which is too much for a socket, so it has no retries here."""
        return self.publisher.publish(topic, data, ordering_key, retry=None, **attributes)


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """An API key of each role that is needed."""
    path = tmp_path / "data" / FILE_NAME
    return {"admin": add(path, "admin", "ann", None)[0], "user": add(path, "user", "uma", None)[0]}


@pytest.fixture
def broker(tmp_path: Path, keys: dict[str, str]) -> Iterator[Broker]:
    options = HttpOptions(port=0, requests_per_s=0)
    config = Config(
        listeners=(ListenerOptions(port=0),),
        http=options,
        data_dir=str(tmp_path / "data"),
        push=PushOptions(allowed_hosts=("127.0.0.1",)),
        **nobody_without_credentials(tmp_path),
    )
    with Broker(config) as running:
        yield running


@pytest.fixture
def caller(broker: Broker, keys: dict[str, str]) -> Callable[[str], Google]:
    """Makes the clients of somebody with a role; without one, of somebody who says nothing."""
    assert broker.gateway is not None
    host = f"localhost:{broker.gateway.port}"
    return lambda role: Google(host, Token(keys[role]) if role else AnonymousCredentials())


def test_topics_and_subscriptions(caller: Callable[[str], Google]) -> None:
    google = caller("admin")
    publisher, subscriber = google.publisher, google.subscriber
    assert publisher.create_topic(name=TOPIC).name == TOPIC
    with pytest.raises(exceptions.Conflict):
        publisher.create_topic(name=TOPIC)
    made = subscriber.create_subscription(
        request={
            "name": MAIL,
            "topic": TOPIC,
            "ack_deadline_seconds": 20,
            "message_retention_duration": Duration(seconds=3_600),
            "retry_policy": {"minimum_backoff": Duration(nanos=500_000_000), "maximum_backoff": Duration(seconds=5)},
            "dead_letter_policy": {"max_delivery_attempts": 7},
        }
    )
    assert (made.topic, made.ack_deadline_seconds) == (TOPIC, 20)
    assert made.retry_policy.minimum_backoff.total_seconds() == 0.5
    assert made.message_retention_duration.total_seconds() == 3_600
    assert made.dead_letter_policy.max_delivery_attempts == 7
    assert subscriber.get_subscription(subscription=MAIL) == made
    changed = subscriber.update_subscription(
        subscription={"name": MAIL, "ack_deadline_seconds": 60}, update_mask=FieldMask(paths=["ack_deadline_seconds"])
    )
    assert (changed.ack_deadline_seconds, changed.dead_letter_policy) == (60, made.dead_letter_policy)
    for number in range(5):
        publisher.create_topic(name=f"{PROJECT}/topics/other-{number}")
    pages = publisher.list_topics(request={"project": PROJECT, "page_size": 2})
    assert [each.name for each in pages] == sorted([TOPIC, *(f"{PROJECT}/topics/other-{n}" for n in range(5))])
    assert [each.name for each in subscriber.list_subscriptions(project=PROJECT)] == [MAIL]
    assert list(publisher.list_topic_subscriptions(topic=TOPIC)) == [MAIL]
    publisher.delete_topic(topic=TOPIC)
    assert subscriber.get_subscription(subscription=MAIL).topic == "_deleted-topic_"
    subscriber.delete_subscription(subscription=MAIL)
    with pytest.raises(exceptions.NotFound):
        subscriber.get_subscription(subscription=MAIL)


def test_policies_and_permissions(caller: Callable[[str], Google]) -> None:
    """As Google's own system tests do it."""
    google, user = caller("admin"), caller("user")
    google.publisher.create_topic(name=TOPIC)
    google.subscriber.create_subscription(name=MAIL, topic=TOPIC)
    for client, resource in ((google.publisher, TOPIC), (google.subscriber, MAIL)):
        policy = client.get_iam_policy(request={"resource": resource})
        policy.bindings.add(role="roles/pubsub.editor", members=["domain:google.com"])
        policy.bindings.add(role="roles/pubsub.viewer", members=["group:cloud-logs@google.com"])
        kept = client.set_iam_policy(request={"resource": resource, "policy": policy})
        assert client.get_iam_policy(request={"resource": resource}) == kept
        assert [each.members[0] for each in kept.bindings] == ["domain:google.com", "group:cloud-logs@google.com"]
    asked = {"resource": TOPIC, "permissions": ["pubsub.topics.publish", "pubsub.topics.delete"]}
    assert list(google.publisher.test_iam_permissions(request=asked).permissions) == asked["permissions"]
    assert list(user.publisher.test_iam_permissions(request=asked).permissions) == ["pubsub.topics.publish"]
    google.publisher.detach_subscription(request={"subscription": MAIL})
    assert list(google.publisher.list_topic_subscriptions(topic=TOPIC)) == []


def test_messages(caller: Callable[[str], Google]) -> None:
    google = caller("admin")
    subscriber = google.subscriber
    google.publisher.create_topic(name=TOPIC)
    subscriber.create_subscription(request={"name": MAIL, "topic": TOPIC, "enable_message_ordering": True})
    user = caller("user")  # the rules let everybody use topics and queues
    sent = [user.publish(TOPIC, b"\0\xff%d" % n, ordering_key="k", number=str(n)) for n in range(25)]
    ids = [each.result(timeout=60) for each in sent]
    assert len(set(ids)) == 25
    received: list[PubsubMessage] = []
    while len(received) < 25:
        [found] = user.subscriber.pull(subscription=MAIL, max_messages=10).received_messages  # one of a key at a time
        received.append(found.message)
        subscriber.acknowledge(subscription=MAIL, ack_ids=[found.ack_id])
    assert [each.message_id for each in received] == ids
    assert [each.data for each in received] == [b"\0\xff%d" % n for n in range(25)]
    assert [dict(each.attributes) for each in received] == [{"number": str(n)} for n in range(25)]
    assert {each.ordering_key for each in received} == {"k"}
    assert all(abs(each.publish_time.timestamp() * 1e6 - int(each.message_id)) < 1_000 for each in received)


def test_deadlines(caller: Callable[[str], Google], broker: Broker) -> None:
    google = caller("admin")
    google.publisher.create_topic(name=TOPIC)
    google.subscriber.create_subscription(name=MAIL, topic=TOPIC)
    google.publish(TOPIC, b"x").result(timeout=60)
    [first] = google.subscriber.pull(subscription=MAIL, max_messages=1).received_messages
    google.subscriber.modify_ack_deadline(subscription=MAIL, ack_ids=[first.ack_id], ack_deadline_seconds=600)
    at_once = {"subscription": MAIL, "max_messages": 1, "return_immediately": True}
    with pytest.warns(DeprecationWarning, match="return_immediately"):
        assert list(google.subscriber.pull(request=at_once).received_messages) == []
    google.subscriber.modify_ack_deadline(subscription=MAIL, ack_ids=[first.ack_id], ack_deadline_seconds=0)
    [second] = google.subscriber.pull(subscription=MAIL, max_messages=1).received_messages
    assert (first.delivery_attempt, second.delivery_attempt) == (1, 2)
    google.subscriber.acknowledge(subscription=MAIL, ack_ids=[second.ack_id])
    assert broker.queues.state("shop.mail").depth == 0


def test_filters_dead_letter_topics_and_expiration(caller: Callable[[str], Google]) -> None:
    google = caller("admin")
    subscriber = google.subscriber
    dead = f"{PROJECT}/topics/dead"
    for topic in (TOPIC, dead):
        google.publisher.create_topic(name=topic)
    subscriber.create_subscription(name=f"{PROJECT}/subscriptions/letters", topic=dead)
    request = {
        "name": MAIL,
        "topic": TOPIC,
        "filter": 'attributes.country = "US" AND NOT hasPrefix(attributes.kind, "test")',
        "dead_letter_policy": {"dead_letter_topic": dead, "max_delivery_attempts": 5},
        "expiration_policy": {"ttl": Duration(seconds=90_210)},
    }
    made = subscriber.create_subscription(request=request)
    assert (made.filter, made.dead_letter_policy.dead_letter_topic) == (request["filter"], dead)
    assert made.expiration_policy.ttl.total_seconds() == 90_210
    assert subscriber.get_subscription(subscription=MAIL) == made
    with pytest.raises(exceptions.BadRequest, match="cannot be changed"):
        subscriber.update_subscription(
            subscription={"name": MAIL, "filter": "attributes:x"}, update_mask=FieldMask(paths=["filter"])
        )
    for kind, country in (("order", "US"), ("order", "FR"), ("test-order", "US")):
        google.publish(TOPIC, kind.encode(), kind=kind, country=country).result(timeout=60)
    for attempt in range(1, 6):
        [received] = subscriber.pull(subscription=MAIL, max_messages=10).received_messages
        assert (received.message.data, received.delivery_attempt) == (b"order", attempt)
        subscriber.modify_ack_deadline(subscription=MAIL, ack_ids=[received.ack_id], ack_deadline_seconds=0)
    [letter] = subscriber.pull(subscription=f"{PROJECT}/subscriptions/letters", max_messages=10).received_messages
    assert letter.message.attributes["CloudPubSubDeadLetterSourceDeliveryCount"] == "5"
    assert letter.message.attributes["CloudPubSubDeadLetterSourceSubscription"] == "mail"


def test_seek_and_snapshots(caller: Callable[[str], Google]) -> None:
    google = caller("admin")
    subscriber, snapshot = google.subscriber, f"{PROJECT}/snapshots/mine"
    google.publisher.create_topic(name=TOPIC)
    kept = {"name": MAIL, "topic": TOPIC, "retain_acked_messages": True}
    assert subscriber.create_subscription(request=kept).retain_acked_messages
    for number in range(3):
        google.publish(TOPIC, b"%d" % number).result(timeout=60)

    def take(count: int) -> list[PubsubMessage]:
        taken: list[PubsubMessage] = []
        while len(taken) < count:
            found = subscriber.pull(subscription=MAIL, max_messages=count - len(taken)).received_messages
            subscriber.acknowledge(subscription=MAIL, ack_ids=[each.ack_id for each in found])
            taken += [each.message for each in found]
        return taken

    first, second = take(2)
    made = subscriber.create_snapshot(name=snapshot, subscription=MAIL)
    assert (made.name, made.topic) == (snapshot, TOPIC)
    with pytest.raises(exceptions.Conflict):
        subscriber.create_snapshot(name=snapshot, subscription=MAIL)
    assert [each.data for each in take(1)] == [b"2"]
    assert subscriber.seek(request={"subscription": MAIL, "snapshot": snapshot}) == SeekResponse()
    assert [each.data for each in take(1)] == [b"2"]
    subscriber.seek(request={"subscription": MAIL, "time": second.publish_time})
    assert [each.data for each in take(2)] == [b"1", b"2"]
    subscriber.seek(request={"subscription": MAIL, "time": first.publish_time})
    subscriber.seek(request={"subscription": MAIL, "time": datetime(2100, 1, 1, tzinfo=UTC)})
    at_once = {"subscription": MAIL, "max_messages": 10, "return_immediately": True}
    with pytest.warns(DeprecationWarning, match="return_immediately"):
        assert list(subscriber.pull(request=at_once).received_messages) == []
    sooner = made.expire_time - timedelta(days=1)
    changed = subscriber.update_snapshot(
        snapshot={"name": snapshot, "expire_time": sooner}, update_mask=FieldMask(paths=["expire_time"])
    )
    assert abs(changed.expire_time - sooner) < timedelta(milliseconds=1)
    assert [each.name for each in subscriber.list_snapshots(project=PROJECT)] == [snapshot]
    assert list(google.publisher.list_topic_snapshots(topic=TOPIC)) == [snapshot]
    assert subscriber.get_snapshot(snapshot=snapshot) == changed
    subscriber.delete_snapshot(snapshot=snapshot)
    with pytest.raises(exceptions.NotFound):
        subscriber.get_snapshot(snapshot=snapshot)


def test_errors(caller: Callable[[str], Google]) -> None:
    google = caller("admin")
    google.publisher.create_topic(name=TOPIC)
    google.subscriber.create_subscription(name=MAIL, topic=TOPIC)
    with pytest.raises(exceptions.NotFound, match="there is no subscription"):
        google.subscriber.pull(subscription=f"{PROJECT}/subscriptions/none", max_messages=1)
    with pytest.raises(exceptions.NotFound, match="there is no topic"):
        google.publish(f"{PROJECT}/topics/none", b"x").result(timeout=60)
    with pytest.raises(exceptions.BadRequest, match="a topic of MQTT has no"):
        google.publisher.create_topic(name=f"{PROJECT}/topics/a+b")
    with pytest.raises(exceptions.BadRequest, match="either time or snapshot"):
        google.subscriber.seek(request={"subscription": MAIL})
    with pytest.raises(exceptions.NotFound, match="there is no snapshot"):
        google.subscriber.seek(request={"subscription": MAIL, "snapshot": f"{PROJECT}/snapshots/mine"})
    with pytest.raises(exceptions.MethodNotImplemented, match="labels"):
        google.subscriber.create_subscription(request={"name": f"{MAIL}-2", "topic": TOPIC, "labels": {"team": "shop"}})
    with pytest.raises(exceptions.BadRequest, match="pushConfig"):
        google.subscriber.create_subscription(
            name=f"{MAIL}-2", topic=TOPIC, push_config={"push_endpoint": "http://localhost/"}
        )
    with pytest.raises(exceptions.Forbidden, match="needs the role admin"):
        caller("user").publisher.create_topic(name=f"{PROJECT}/topics/mine")
    with pytest.raises(InvalidOperation, match="cannot be refreshed"):  # what it does about UNAUTHENTICATED
        caller("").publisher.get_topic(topic=TOPIC)


def test_a_subscription_is_pushed_and_its_endpoint_is_changed(caller: Callable[[str], Google]) -> None:
    google = caller("admin")
    pushed: Queue[bytes] = Queue()

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert body["subscription"] == MAIL
            pushed.put(base64.b64decode(body["message"]["data"]))
            self.send_response(204)
            self.end_headers()

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/in"
    google.publisher.create_topic(name=TOPIC)
    config = PushConfig(push_endpoint=url, attributes={"x-goog-version": "v1"})
    made = google.subscriber.create_subscription(name=MAIL, topic=TOPIC, push_config=config)
    assert made.push_config.push_endpoint == url
    google.publish(TOPIC, b"two apples").result(30)
    assert pushed.get(timeout=60) == b"two apples"
    with pytest.raises(exceptions.BadRequest, match="not supported for this subscription type"):
        google.subscriber.pull(subscription=MAIL, max_messages=1)
    google.subscriber.modify_push_config(subscription=MAIL, push_config=PushConfig())
    assert not google.subscriber.get_subscription(subscription=MAIL).push_config.push_endpoint
    google.publish(TOPIC, b"three pears").result(30)
    (received,) = google.subscriber.pull(subscription=MAIL, max_messages=1).received_messages
    assert received.message.data == b"three pears"
    mask = FieldMask(paths=["push_config"])
    changed = {"name": MAIL, "push_config": {"push_endpoint": url, "no_wrapper": {}}}
    assert "no_wrapper" in google.subscriber.update_subscription(subscription=changed, update_mask=mask).push_config
    server.shutdown()
    server.server_close()
