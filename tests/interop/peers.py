"""Every client library behind one interface, so that one test can be run with each of them.

A `Peer` does what a program does with its library, no more: what a library leaves to programs (paho resolves no topic
alias that it receives) the peer does, what it cannot do its `Kind` says. Invariant: every wait ends, with what it
waited for or with an error after `PATIENCE_S`.
"""

import abc
import asyncio
import base64
import contextlib
import json
import queue
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Final

import aiomqtt
import gmqtt
from gmqtt.mqtt.constants import MQTTv50, MQTTv311
from gmqtt.storage import PersistentStorage
from paho.mqtt.client import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties

from mqttlite import client as ours
from tests.interop.support import HOST, JS, PATIENCE_S, READY, V5, V311, Line, MosquittoSub, Paho, mosquitto, published

EXPIRY_S: Final = 3600
ALIASES: Final = 5
"""Topic aliases that a peer takes from the broker, where it takes any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message as a program sees it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    alias: int | None = field(default=None, compare=False)
    """What stood beside the topic or in its place, if the library shows it."""


class Peer(abc.ABC):
    """A client of some library. `connect` comes first; `disconnect` may come at any time, and twice."""

    session_present: bool | None = None
    """What CONNACK said; None where the library does not tell."""

    def __init__(
        self,
        line: Line,
        name: str,
        version: str = "5.0",
        *,
        keep_session: bool = False,
        will: Message | None = None,
        takes_aliases: bool = False,
    ) -> None:
        self.line: Final = line
        self.name: Final = name
        self.is_5: Final = version == "5.0"
        self.keep_session: Final = keep_session
        self.will: Final = will
        self.aliases: Final = ALIASES if takes_aliases else 0
        self.inbox: Final[queue.SimpleQueue[Message]] = queue.SimpleQueue()

    async def __aenter__(self) -> "Peer":
        await self.connect()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.disconnect()

    @abc.abstractmethod
    async def connect(self) -> None: ...

    @abc.abstractmethod
    async def disconnect(self) -> None:
        """Leave; what was not taken yet is in the inbox then."""

    @abc.abstractmethod
    async def subscribe(self, *filters: str, qos: int) -> None:
        """Subscribe, and have it granted."""

    @abc.abstractmethod
    async def publish(self, message: Message) -> None:
        """Publish, and have it acknowledged at QoS 1 and 2."""

    async def publish_by_alias(self, message: Message) -> None:
        """Publish twice: the topic with an alias, then the alias alone."""
        await self.publish(replace(message, alias=1))
        await self.publish(replace(message, topic="", alias=1))

    async def ask(self, question: Message) -> Message:
        """What is answered to a message with a response topic."""
        assert question.response_topic is not None
        await self.subscribe(question.response_topic, qos=1)
        await self.publish(question)
        return await self.next()

    async def next(self) -> Message:
        """The next message."""
        return await asyncio.to_thread(self.inbox.get, timeout=PATIENCE_S)

    async def take(self, count: int) -> list[bytes]:
        """The payloads of the next messages."""
        return [(await self.next()).payload for _ in range(count)]

    def rest(self) -> list[bytes]:
        """The payloads that had come when it left."""
        payloads: list[bytes] = []
        with contextlib.suppress(queue.Empty):
            while True:
                payloads.append(self.inbox.get_nowait().payload)
        return payloads

    async def until(self, last: bytes) -> list[bytes]:
        """The payloads that come before the last one, which shows that nothing else came."""
        payloads: list[bytes] = []
        while (payload := (await self.next()).payload) != last:
            payloads.append(payload)
        return payloads


# paho, and aiomqtt, which has its properties


def to_paho(message: Message) -> PahoProperties | None:
    properties = PahoProperties(PacketTypes.PUBLISH)
    if message.content_type is not None:
        properties.ContentType = message.content_type
    if message.response_topic is not None:
        properties.ResponseTopic = message.response_topic
    if message.correlation_data is not None:
        properties.CorrelationData = message.correlation_data
    if message.user_properties:
        properties.UserProperty = list(message.user_properties)
    if message.alias is not None:
        properties.TopicAlias = message.alias
    return None if properties.isEmpty() else properties


def from_paho(topic: str, got: Any) -> Message:
    found = getattr(got, "properties", None)
    return Message(
        topic=topic,
        payload=got.payload,
        qos=got.qos,
        retain=bool(got.retain),
        content_type=getattr(found, "ContentType", None),
        response_topic=getattr(found, "ResponseTopic", None),
        correlation_data=getattr(found, "CorrelationData", None),
        user_properties=tuple(getattr(found, "UserProperty", ())),
        alias=getattr(found, "TopicAlias", None),
    )


class PahoPeer(Peer):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        will = self.will and (self.will.topic, self.will.payload, self.will.qos, self.will.retain)
        version = V5 if self.is_5 else V311
        self._paho: Final = Paho(
            self.line, self.name, version, keep_session=self.keep_session, will=will, topic_alias_maximum=self.aliases
        )
        self._topics: Final[dict[int, str]] = {}

    async def connect(self) -> None:
        self.session_present = (await asyncio.to_thread(self._paho.connect)).session_present

    async def disconnect(self) -> None:
        await asyncio.to_thread(self._paho.__exit__, None, None, None)
        while not self._paho.messages.empty():
            self.inbox.put(await self.next())

    async def subscribe(self, *filters: str, qos: int) -> None:
        for topic_filter in filters:
            assert await asyncio.to_thread(self._paho.subscribe, topic_filter, qos) == [qos]

    async def publish(self, message: Message) -> None:
        await asyncio.to_thread(
            self._paho.publish, message.topic, message.payload, message.qos, message.retain, to_paho(message)
        )

    async def next(self) -> Message:
        got = await asyncio.to_thread(self._paho.next)
        message = from_paho(got.topic, got)
        if message.alias is None:
            return message
        topic = self._topics[message.alias] = message.topic or self._topics[message.alias]
        return replace(message, topic=topic)


class AiomqttPeer(Peer):
    async def connect(self) -> None:
        self._messages: asyncio.Queue[aiomqtt.Message] = asyncio.Queue()
        keep: dict[str, Any] = {"clean_session": not self.keep_session}
        if self.is_5:
            properties = PahoProperties(PacketTypes.CONNECT)
            if self.keep_session:
                properties.SessionExpiryInterval = EXPIRY_S
            keep = {"clean_start": not self.keep_session, "properties": properties}
        self._client = aiomqtt.Client(
            HOST,
            self.line.port,
            identifier=self.name,
            protocol=aiomqtt.ProtocolVersion.V5 if self.is_5 else aiomqtt.ProtocolVersion.V311,
            tls_context=self.line.context(),
            timeout=PATIENCE_S,
            queue_type=lambda maxsize: self._messages,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            transport="websockets" if self.line.websocket else "tcp",
            will=self.will and aiomqtt.Will(self.will.topic, self.will.payload, self.will.qos, self.will.retain),
            **keep,
        )
        await self._client.__aenter__()

    async def disconnect(self) -> None:
        with contextlib.suppress(aiomqtt.MqttError):
            await self._client.__aexit__(None, None, None)
        while not self._messages.empty():
            got = self._messages.get_nowait()
            self.inbox.put(from_paho(str(got.topic), got))

    async def subscribe(self, *filters: str, qos: int) -> None:
        await self._client.subscribe([(topic_filter, qos) for topic_filter in filters])

    async def publish(self, message: Message) -> None:
        await self._client.publish(
            message.topic, message.payload, message.qos, message.retain, properties=to_paho(message)
        )

    async def next(self) -> Message:
        got = await asyncio.wait_for(anext(self._client.messages), PATIENCE_S)
        return from_paho(str(got.topic), got)


# gmqtt


def to_gmqtt(message: Message) -> gmqtt.Message:
    named = {
        "content_type": message.content_type,
        "response_topic": message.response_topic,
        "correlation_data": message.correlation_data,
        "user_property": list(message.user_properties) or None,
        "topic_alias": message.alias,
    }
    properties = {name: value for name, value in named.items() if value is not None}
    return gmqtt.Message(message.topic, message.payload, message.qos, message.retain, **properties)


class GmqttPeer(Peer):
    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._unacknowledged: Final = PersistentStorage()
        self._granted: Final[asyncio.Queue[tuple[int, ...]]] = asyncio.Queue()
        properties: dict[str, int] = {}
        if self.is_5 and self.keep_session:
            properties["session_expiry_interval"] = EXPIRY_S
        if self.aliases:
            properties["topic_alias_maximum"] = self.aliases
        self._client: Final = gmqtt.Client(
            self.name,
            clean_session=not self.keep_session,
            will_message=self.will and to_gmqtt(self.will),
            persistent_storage=self._unacknowledged,
            **properties,
        )
        self._client.set_config({"reconnect_retries": 0})
        self._client.on_connect = self._on_connect
        self._client.on_subscribe = lambda client, mid, codes, properties: self._granted.put_nowait(codes)
        self._client.on_message = self._on_message

    async def connect(self) -> None:
        connected = self._client.connect(
            HOST, self.line.port, ssl=self.line.context() or False, version=MQTTv50 if self.is_5 else MQTTv311
        )
        await asyncio.wait_for(connected, PATIENCE_S)

    async def disconnect(self) -> None:
        try:
            await asyncio.wait_for(self._client.disconnect(), PATIENCE_S)
        except ssl.SSLError as error:  # asyncio's, of what was on its way meanwhile
            if error.reason != "APPLICATION_DATA_AFTER_CLOSE_NOTIFY":
                raise

    async def subscribe(self, *filters: str, qos: int) -> None:
        self._client.subscribe([gmqtt.Subscription(topic_filter, qos=qos) for topic_filter in filters])
        assert await asyncio.wait_for(self._granted.get(), PATIENCE_S) == (qos,) * len(filters)

    async def publish(self, message: Message) -> None:
        self._client.publish(to_gmqtt(message))
        await asyncio.wait_for(self._unacknowledged.wait_empty(), PATIENCE_S)

    def _on_connect(self, client: gmqtt.Client, flags: int, code: int, properties: dict[str, Any]) -> None:
        self.session_present = bool(flags)

    def _on_message(
        self, client: gmqtt.Client, topic: str, payload: bytes, qos: int, properties: dict[str, Any]
    ) -> int:
        first = {name: value[0] for name, value in properties.items() if isinstance(value, list)}
        self.inbox.put(
            Message(
                topic=topic,
                payload=bytes(payload),
                qos=qos,
                retain=bool(properties["retain"]),
                content_type=first.get("content_type"),
                response_topic=first.get("response_topic"),
                correlation_data=first.get("correlation_data"),
                user_properties=tuple(properties.get("user_property", ())),
                alias=first.get("topic_alias"),
            )
        )
        return 0


# MQTT.js


class Agent:
    """Node with js/agent.mjs, and the clients of MQTT.js in it."""

    def __init__(self, node: str) -> None:
        self._process: Final = subprocess.Popen(
            [node, str(JS / "agent.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._answers: Final[dict[int, Future[Any]]] = {}
        self.inboxes: Final[dict[str, queue.SimpleQueue[Message]]] = {}
        self._reader: Final = threading.Thread(target=self._read, name="agent")
        self._reader.start()

    def kill(self) -> None:
        """End Node without a goodbye."""
        self._process.kill()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    async def do(self, client: str, act: str, what: dict[str, Any] | None = None) -> Any:
        """What comes of an act; raises `RuntimeError` with what MQTT.js said where it fails."""
        number = len(self._answers)
        self._answers[number] = Future()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"id": number, "client": client, "act": act, "with": what}) + "\n")
        answer = await asyncio.wait_for(asyncio.wrap_future(self._answers[number]), PATIENCE_S)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer.get("result")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "message" in said:
                self.inboxes[said["client"]].put(from_js(said["message"]))
            else:
                self._answers[said["id"]].set_result(said)


def to_js(message: Message) -> dict[str, Any]:
    users: dict[str, list[str]] = {}
    for name, value in message.user_properties:
        users.setdefault(name, []).append(value)
    data = message.correlation_data
    named = {
        "contentType": message.content_type,
        "responseTopic": message.response_topic,
        "correlationData": None if data is None else base64.b64encode(data).decode(),
        "userProperties": users or None,
        "topicAlias": message.alias,
    }
    return {
        "topic": message.topic,
        "payload": base64.b64encode(message.payload).decode(),
        "qos": message.qos,
        "retain": message.retain,
        "properties": {name: value for name, value in named.items() if value is not None},
    }


def from_js(said: dict[str, Any]) -> Message:
    found = said["properties"]
    data = found.get("correlationData")
    return Message(
        topic=said["topic"],
        payload=base64.b64decode(said["payload"]),
        qos=said["qos"],
        retain=said["retain"],
        content_type=found.get("contentType"),
        response_topic=found.get("responseTopic"),
        correlation_data=None if data is None else base64.b64decode(data),
        user_properties=tuple((name, value) for name, value in found["userProperties"]),
        alias=found.get("topicAlias"),
    )


class MqttJsPeer(Peer):
    agent: Agent
    """Set once for all of them."""

    auto_alias = False
    """Whether MQTT.js gives its own topics aliases without being asked."""

    async def connect(self) -> None:
        schemes = {(False, False): "mqtt", (False, True): "mqtts", (True, False): "ws", (True, True): "wss"}
        scheme = schemes[self.line.websocket, self.line.certificates is not None]
        properties: dict[str, int] = {}
        if self.keep_session:
            properties["sessionExpiryInterval"] = EXPIRY_S
        if self.aliases:
            properties["topicAliasMaximum"] = self.aliases
        options = {
            "clientId": self.name,
            "protocolVersion": 5 if self.is_5 else 4,
            "clean": not self.keep_session,
            "ca": self.line.certificates and str(self.line.certificates / "ca.crt"),
            "will": self.will and to_js(self.will),
            "autoAssignTopicAlias": self.auto_alias,
            **({"properties": properties} if self.is_5 else {}),
        }
        path = "/mqtt" if self.line.websocket else ""
        self.agent.inboxes[self.name] = self.inbox
        url = f"{scheme}://{HOST}:{self.line.port}{path}"
        self.session_present = await self.agent.do(self.name, "connect", {"url": url, "options": options})

    async def disconnect(self) -> None:
        await self.agent.do(self.name, "end")

    async def subscribe(self, *filters: str, qos: int) -> None:
        granted = await self.agent.do(self.name, "subscribe", {"filters": filters, "qos": qos})
        assert granted == [qos] * len(filters)

    async def publish(self, message: Message) -> None:
        await self.agent.do(self.name, "publish", to_js(message))

    async def topics_sent(self) -> list[str]:
        """The topics as they went on the wire."""
        sent: list[str] = await self.agent.do(self.name, "sent")
        return sent


# mosquitto_pub, mosquitto_sub, mosquitto_rr


def to_mosquitto(message: Message) -> list[str]:
    arguments = ["-t", message.topic, "-m", message.payload.decode(), "-q", str(message.qos)]
    if message.retain:
        arguments.append("-r")
    named = {
        "content-type": message.content_type,
        "response-topic": message.response_topic,
        "correlation-data": message.correlation_data and message.correlation_data.decode(),
        "topic-alias": message.alias and str(message.alias),
    }
    for name, value in named.items():
        if value is not None:
            arguments += ["-D", "publish", name, value]
    for pair in message.user_properties:
        arguments += ["-D", "publish", "user-property", *pair]
    return arguments


class MosquittoPeer(Peer):
    """A process for each publish, and one for the subscriptions."""

    _FORMAT: Final = "%t|%q|%r|%C|%R|%D|%P|%p"

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._sub: MosquittoSub | None = None
        self._version: Final = ["-V", "mqttv5" if self.is_5 else "mqttv311"]

    async def connect(self) -> None:
        await asyncio.to_thread(published, self.line, "-t", READY, "-m", "1", "-r")

    async def disconnect(self) -> None:
        if self._sub is not None:
            await asyncio.to_thread(self._sub.__exit__, None, None, None)
            for line in self._sub.rest():
                self.inbox.put(self._read(line))
            self._sub = None

    async def subscribe(self, *filters: str, qos: int) -> None:
        assert self._sub is None, "mosquitto_sub subscribes once"
        arguments = [*self._version, "-i", self.name, "-q", str(qos)]
        for topic_filter in filters[1:]:
            arguments += ["-t", topic_filter]
        if self.keep_session:
            arguments.append("-c")
        if self.will is not None:
            arguments += ["--will-topic", self.will.topic, "--will-payload", self.will.payload.decode()]
            arguments += ["--will-qos", str(self.will.qos), *(["--will-retain"] if self.will.retain else [])]
        self._sub = MosquittoSub(self.line, filters[0], *arguments, format=self._FORMAT)
        await asyncio.to_thread(self._sub.__enter__)

    async def publish(self, message: Message) -> None:
        await asyncio.to_thread(published, self.line, *self._version, *to_mosquitto(message))

    async def publish_by_alias(self, message: Message) -> None:
        twice = [*to_mosquitto(replace(message, alias=1)), "--repeat", "2"]
        await asyncio.to_thread(published, self.line, *self._version, *twice)

    async def ask(self, question: Message) -> Message:
        assert question.response_topic is not None
        command = [mosquitto("mosquitto_rr"), *self.line.arguments(), *self._version, "-e", question.response_topic]
        command += [*to_mosquitto(replace(question, response_topic=None)), "-F", self._FORMAT]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        return self._read(done.stdout.rstrip("\n"))

    async def next(self) -> Message:
        assert self._sub is not None
        return self._read(await asyncio.to_thread(self._sub.next))

    def _read(self, line: str) -> Message:
        topic, qos, retain, content_type, response_topic, data, users, payload = line.split("|", 7)
        pairs = (pair.partition(":") for pair in users.split(" ") if pair)
        return Message(
            topic=topic,
            payload=payload.encode(),
            qos=int(qos),
            retain=retain == "1",
            content_type=content_type or None,
            response_topic=response_topic or None,
            correlation_data=data.encode() or None,
            user_properties=tuple((name, value) for name, _, value in pairs),
        )


# our own


class OurPeer(Peer):
    async def connect(self) -> None:
        self._client = ours.Client(HOST, self.line.port, client_id=self.name, tls=self.line.context())
        await self._client.__aenter__()

    async def disconnect(self) -> None:
        await self._client.__aexit__(None, None, None)

    async def subscribe(self, *filters: str, qos: int) -> None:
        await self._client.subscribe([(topic_filter, qos) for topic_filter in filters])

    async def publish(self, message: Message) -> None:
        properties = ours.Properties(
            content_type=message.content_type,
            response_topic=message.response_topic,
            correlation_data=message.correlation_data,
            user_properties=list(message.user_properties),
        )
        await self._client.publish(message.topic, message.payload, message.qos, message.retain, properties)

    async def next(self) -> Message:
        got = await asyncio.wait_for(anext(aiter(self._client.messages)), PATIENCE_S)
        return Message(
            topic=got.topic,
            payload=got.payload,
            qos=got.qos,
            retain=got.retain,
            content_type=got.properties.content_type,
            response_topic=got.properties.response_topic,
            correlation_data=got.properties.correlation_data,
            user_properties=tuple(got.properties.user_properties),
        )


# the matrix

FEATURES: Final = {
    "QoS": "QoS 0, 1, 2",
    "retained": "Retained",
    "will": "Will",
    "resume": "Resume",
    "properties": "Properties",
    "request": "Request, response",
    "shares": "Shares",
    "alias_sent": "Alias to us",
    "alias_taken": "Alias from us",
}
"""What is tested with each client, and what the documentation calls it."""

ONLY_5: Final = frozenset({"properties", "request", "alias_sent", "alias_taken"})
TRANSPORTS: Final = ("tcp", "tls", "ws", "wss")


@dataclass(frozen=True, slots=True)
class Kind:
    """A client, a version of MQTT, and what it cannot do."""

    library: str
    version: str
    peer: Callable[..., Peer]
    transports: tuple[str, ...] = TRANSPORTS
    missing: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.library}-{self.version}"

    def can(self, feature: str) -> bool:
        return feature not in self.missing and (self.version == "5.0" or feature not in ONLY_5)

    def make(self, line: Line, name: str, **more: Any) -> Peer:
        return self.peer(line, name, self.version, **more)


def _kinds() -> Iterator[Kind]:
    for version in ("3.1.1", "5.0"):
        yield Kind("paho", version, PahoPeer)
        yield Kind("aiomqtt", version, AiomqttPeer, missing=frozenset({"alias_taken"}))
        yield Kind("gmqtt", version, GmqttPeer, ("tcp", "tls"))
        yield Kind("MQTT.js", version, MqttJsPeer)
        yield Kind("mosquitto", version, MosquittoPeer, ("tcp", "tls"), frozenset({"alias_taken"}))


KINDS: Final = tuple(_kinds())
