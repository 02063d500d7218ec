"""Signs requests as in Standard Webhooks, so that a receiver can verify the sender and the time, and detect repeats."""

import base64
import hmac
import zlib
from collections.abc import Sequence
from typing import Final

from mqttlite.extensions.queues.push_target import PushTarget, secret_bytes

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"


def keys_of(target: PushTarget) -> list[bytes]:
    """The keys of a target's secrets, newest first."""
    keys = (secret_bytes(text) for text in (target.secret, target.previous_secret) if text)
    return [key for key in keys if key is not None]


def webhook_id(queue: str, number: int) -> str:
    """A unique id for a message of a queue, the same for each attempt."""
    return f"msg_{number}_{zlib.crc32(queue.encode()):08x}"


def signatures(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each key."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}" for key in keys)
