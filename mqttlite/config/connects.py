"""How often clients may connect, and how many connections they may have: the options, and the limits that they make."""

import math
from typing import Final

import msgspec

from mqttlite.core.connect.connect_limits import ConnectLimits, ConnectRate, Jail
from mqttlite.core.load.rate_limits import TokenBucket


class ConnectOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The limits of one listener. 0: no limit."""

    all_per_s: float = 0.0
    """Connections a second, from all addresses together."""
    address_per_s: float = 0.0
    """Connections a second from each address, or IPv6 network of 64 bits."""
    user_per_s: float = 0.0
    """Accepted connections a second of each user."""
    connect_burst_s: float = 10.0
    """How many seconds' worth of connections may come at once; at least one connection."""
    max_per_address: int = 0
    """Open connections from each address, or IPv6 network of 64 bits."""
    max_per_user: int = 0
    """Connected clients of each user."""
    flapping_client: int = 0
    """How often one client may connect in `flapping_window_s`. One more time jails it."""
    flapping_user: int = 0
    """The same for the clients of one user together."""
    flapping_address: int = 0
    """The same for one address, or IPv6 network of 64 bits."""
    flapping_window_s: float = 60.0
    """The period in which the three limits above count connects."""
    jail_s: float = 60.0
    """How long the first jail lasts. Each further one is twice as long …"""
    max_jail_s: float = 3_600.0
    """… up to this."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name.endswith("per_s") and value != 0 and not 0.001 <= value < math.inf:
                raise ValueError(f"{name} is {value:g}: 0.001 at least, and finite, or 0 for no limit")
            if name in _TIMES and not 0.001 <= value < math.inf:
                raise ValueError(f"{name} is {value:g}: 0.001 at least, and finite")
            if value < 0:
                raise ValueError(f"{name} is {value}: 1 at least, or 0 for no limit")

    def limits(self, now: float) -> ConnectLimits | None:
        """The limits of one listener; None if there are none."""
        if self == ConnectOptions():
            return None
        return ConnectLimits(
            TokenBucket(self.all_per_s, self._burst(self.all_per_s), now) if self.all_per_s else None,
            ConnectRate(self.address_per_s, self._burst(self.address_per_s)) if self.address_per_s else None,
            ConnectRate(self.user_per_s, self._burst(self.user_per_s)) if self.user_per_s else None,
            self.max_per_address,
            self.max_per_user,
            self._jail(self.flapping_client),
            self._jail(self.flapping_user),
            self._jail(self.flapping_address),
        )

    def _burst(self, per_s: float) -> float:
        return max(1.0, per_s * self.connect_burst_s)

    def _jail(self, connects: int) -> Jail | None:
        return Jail(connects, self.flapping_window_s, self.jail_s, self.max_jail_s) if connects else None


_TIMES: Final = ("connect_burst_s", "flapping_window_s", "jail_s", "max_jail_s")
