"""The names of Google Pub/Sub in topics of MQTT: `{project}/{topic}`."""

import re
from typing import Final

PROJECT: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,62}")
ID: Final = re.compile(r"(?!goog)[A-Za-z][A-Za-z0-9._~%+-]{2,254}")
"""Google's syntax for ids of topics and subscriptions."""


def project_of(name: str) -> str | None:
    """The project of a topic; None where it is no topic of one."""
    project, slash, topic = name.partition("/")
    return project if slash and PROJECT.fullmatch(project) and ID.fullmatch(topic) else None
