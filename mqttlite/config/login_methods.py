"""The ways to log in that a listener, or the gateway, may have."""

from typing import Literal

LoginMethod = Literal["password", "jwt", "dynamic_security", "http", "certificate"]
