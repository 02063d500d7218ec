"""A plugin of pytest for the system tests of Google's client: every client it makes calls our gateway by REST.

The environment says where the gateway is, and the key. A file of a service account is one with a key of ours.
Invariant: Google's file is run as it is.
"""

import os
from pathlib import Path
from typing import Any

import google.auth
from google.cloud import pubsub_v1
from google.oauth2.credentials import Credentials

URL, KEY, PROJECT = "MQTTLITE_TEST_URL", "MQTTLITE_TEST_KEY", "shop"


def _over_rest(client: Any) -> None:
    made = client.__init__

    def init(self: Any, *args: Any, **options: Any) -> None:
        credentials = options.get("credentials") or Credentials(os.environ[KEY])
        endpoint = {"api_endpoint": os.environ[URL]}
        made(self, *args, **options | {"transport": "rest", "client_options": endpoint, "credentials": credentials})

    def of_service_account(path: str) -> Any:
        return client(credentials=Credentials(Path(path).read_text()))

    client.__init__ = init
    client.from_service_account_file = staticmethod(of_service_account)


def pytest_configure() -> None:
    """In the pytest that has it as a plugin, and in no other that imports it."""
    _over_rest(pubsub_v1.PublisherClient)
    _over_rest(pubsub_v1.SubscriberClient)
    google.auth.default = lambda: (None, PROJECT)
