"""An asyncio MQTT client: `async with Client("host") as client`, `async for message in client.messages`.

It shares `mqttlite.wire` and the language of filters with the broker, and nothing else.
Invariant: what is named here is the public interface.
"""

from mqttlite.client.aiomqtt_names import ProtocolVersion, TLSParameters
from mqttlite.client.authentication import Authentication
from mqttlite.client.client import Client
from mqttlite.client.errors import (
    AnswerTimeout,
    AuthenticationFailed,
    ClientClosed,
    ConnectError,
    ConnectionLost,
    ConnectRefused,
    DisconnectedByServer,
    MqttError,
    NoResponder,
    PublishRefused,
    PublishTimeout,
    RequestFailed,
    SubscribeRefused,
)
from mqttlite.client.filters import Filter
from mqttlite.client.idempotent import IdempotentHandler
from mqttlite.client.inbox import Inbox
from mqttlite.client.message import Message, PublishOutcome, Topic, Will
from mqttlite.client.queue import Queue
from mqttlite.client.queue_message import QueueMessage
from mqttlite.client.scram import ScramSha256
from mqttlite.client.seen import Claim, MemorySeen, RedisSeen, SeenStore, SqliteSeen
from mqttlite.client.stream import Group, Stream, StreamReading
from mqttlite.client.stream_message import StreamMessage
from mqttlite.client.table import Table
from mqttlite.client.topics import matches
from mqttlite.filters import FilterError
from mqttlite.wire.properties import Properties
from mqttlite.wire.reason_codes import ReasonCode

__all__ = [
    "AnswerTimeout",
    "Authentication",
    "AuthenticationFailed",
    "Claim",
    "Client",
    "ClientClosed",
    "ConnectError",
    "ConnectRefused",
    "ConnectionLost",
    "DisconnectedByServer",
    "Filter",
    "FilterError",
    "Group",
    "IdempotentHandler",
    "Inbox",
    "MemorySeen",
    "Message",
    "MqttError",
    "NoResponder",
    "Properties",
    "ProtocolVersion",
    "PublishOutcome",
    "PublishRefused",
    "PublishTimeout",
    "Queue",
    "QueueMessage",
    "ReasonCode",
    "RedisSeen",
    "RequestFailed",
    "ScramSha256",
    "SeenStore",
    "SqliteSeen",
    "Stream",
    "StreamMessage",
    "StreamReading",
    "SubscribeRefused",
    "TLSParameters",
    "Table",
    "Topic",
    "Will",
    "matches",
]
