"""Signs requests as Standard Webhooks has it, so that a receiver knows who sent them, when, and which are repeated."""

import base64
import hmac
import zlib
from collections.abc import Sequence
from typing import Final

from mqttlite.delivery.push.target import PushTarget, secret_bytes

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"


def keys_of(target: PushTarget) -> list[bytes]:
    """The keys of a target's secrets, the newest first."""
    keys = (secret_bytes(text) for text in (target.secret, target.previous_secret) if text)
    return [key for key in keys if key is not None]


def webhook_id(queue: str, number: int) -> str:
    """The same for each attempt to push a message of a queue, and another for each other."""
    return f"msg_{number}_{zlib.crc32(queue.encode()):08x}"


def signatures(keys: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each key."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{base64.b64encode(hmac.digest(key, signed, 'sha256')).decode()}" for key in keys)
