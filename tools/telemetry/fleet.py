"""Who is in the fleet: devices of several classes, each with an interval and habits of its own, and who listens.

Invariant: client number `n` has the same row in every array; devices come first, then subscribers.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

Rng = np.random.Generator
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]
Bools = NDArray[np.bool_]

SECOND: Final = 1_000_000
MINUTE: Final = 60 * SECOND
HOUR: Final = 3600 * SECOND
DAY: Final = 24 * HOUR
"""Times are whole microseconds since the dataset's beginning."""

DEVICES_PER_SITE: Final = 50
MAX_SITES: Final = 20

FEWEST_VIEWERS: Final = 6
MAX_VIEWERS: Final = 40
DEVICES_PER_VIEWER: Final = 50

EVERY_SITE: Final = -1
NO_SITE: Final = -2


@dataclass(frozen=True)
class DeviceClass:
    """What devices of a class have in common; each draws its own from the ranges."""

    name: str
    share: float
    interval_s: tuple[float, float]
    payload_bytes: tuple[int, int]
    qos: tuple[int, ...]
    keep_alive_s: int
    measures: tuple[str, ...]
    day: float = 0.0
    """By how much it publishes more at noon and less at midnight, as a share."""
    periodic: bool = True
    """Otherwise it publishes when something happens: at random."""
    shift: bool = False
    """It says goodbye in the evening and comes back in the morning."""
    sleepy: bool = False
    """It connects to say a word or two and says goodbye, every interval."""


CLASSES: Final = (
    DeviceClass("meter", 0.33, (30, 120), (80, 200), (1,), 60, ("energy",)),
    DeviceClass("sensor", 0.22, (10, 30), (24, 64), (0,), 60, ("temperature", "humidity"), day=0.3),
    DeviceClass("contact", 0.10, (120, 600), (40, 80), (1,), 300, ("state",), periodic=False, day=0.5),
    DeviceClass("machine", 0.15, (5, 20), (150, 400), (0, 1), 30, ("status", "power"), day=0.2, shift=True),
    DeviceClass("logger", 0.12, (600, 1800), (60, 120), (1,), 60, ("reading",), sleepy=True),
    DeviceClass("gateway", 0.08, (2, 5), (400, 1200), (1, 2), 60, ("mesh", "uplink", "battery", "health"), day=0.2),
)

LISTENERS: Final = (
    # name, transport, TLS version and cipher, port
    ("tcp-1883", "tcp", None, None, 1883),
    ("tls-8883", "tls", "TLSv1.3", "TLS_AES_256_GCM_SHA384", 8883),
    ("wss-8884", "wss", "TLSv1.3", "TLS_AES_128_GCM_SHA256", 8884),
)
TCP, TLS, WSS = range(3)
PROTOCOLS: Final = ("3.1.1", "5.0")


@dataclass
class Fleet:
    """All clients, and the topics that they publish to. Topics are added while the fleet is at work."""

    devices: int
    client_ids: list[str]
    usernames: list[str]
    kinds: Longs
    """Index into `CLASSES`; -1 of a client that is no device."""
    sites: Longs
    """Of a device where it is; of a subscriber what it listens to, `EVERY_SITE` or a site."""
    intervals_s: Doubles
    phases: Longs
    payloads: Longs
    qos: Longs
    keep_alives_s: Longs
    listeners: Longs
    protocols: Longs
    clean_starts: Bools
    """Of a session that is kept, `clean_start` is false."""
    addresses: list[str]
    topics: list[str]
    topic_bytes: list[int]
    topic_sites: list[int]
    """Whose subscribers get it; of `NO_SITE` nobody."""
    first_topics: Longs
    """Of each client; the others of its class's measures follow."""
    command_topics: Longs
    historian: int
    controller: int
    viewers: range
    extra_topics: dict[str, int] = field(default_factory=dict)
    """Numbers of topics that are no measure and no command, by name."""

    def new_topic(self, name: str, site: int) -> int:
        """Its number."""
        self.topics.append(name)
        self.topic_bytes.append(len(name))
        self.topic_sites.append(site)
        return len(self.topics) - 1

    def known_topic(self, name: str) -> int:
        """The number of one that is no measure and no command; the same for the same name."""
        if name not in self.extra_topics:
            self.extra_topics[name] = self.new_topic(name, NO_SITE)
        return self.extra_topics[name]

    def class_of(self, client: int) -> DeviceClass:
        """Only for devices."""
        return CLASSES[int(self.kinds[client])]


def make_fleet(rng: Rng, devices: int) -> Fleet:
    """Draw who there is."""
    sites = max(2, min(MAX_SITES, devices // DEVICES_PER_SITE))
    kinds = _kinds(rng, devices)
    viewers = max(FEWEST_VIEWERS, min(MAX_VIEWERS, devices // DEVICES_PER_VIEWER))
    others = 2 + viewers
    clients = devices + others
    first_other = devices

    site = np.concatenate([rng.integers(0, sites, devices), [EVERY_SITE, NO_SITE], np.arange(viewers) % sites])
    low, high = (np.array([each.interval_s[i] for each in CLASSES]) for i in (0, 1))
    few, many = (np.array([each.payload_bytes[i] for each in CLASSES]) for i in (0, 1))
    intervals = np.ones(clients)
    intervals[:devices] = np.exp(rng.uniform(np.log(low[kinds]), np.log(high[kinds])))
    payloads = np.zeros(clients, np.int64)
    payloads[:devices] = rng.integers(few[kinds], many[kinds] + 1)
    keep_alives = np.full(clients, 60, np.int64)
    keep_alives[:devices] = np.array([each.keep_alive_s for each in CLASSES])[kinds]
    listeners = np.full(clients, TCP, np.int64)
    listeners[:devices] = rng.choice([TCP, TLS], devices, p=[0.4, 0.6])
    listeners[first_other + 2 :] = WSS
    fleet = Fleet(
        devices=devices,
        client_ids=[f"{CLASSES[kind].name}-{number:05d}" for number, kind in enumerate(kinds)]
        + ["historian", "controller"]
        + [f"viewer-{number:02d}" for number in range(viewers)],
        usernames=[CLASSES[kind].name for kind in kinds] + ["historian", "controller"] + ["operator"] * viewers,
        kinds=np.concatenate([kinds, np.full(others, -1)]),
        sites=site,
        intervals_s=intervals,
        phases=(rng.random(clients) * intervals * SECOND).astype(np.int64),
        payloads=payloads,
        qos=np.array([int(rng.choice(CLASSES[kind].qos)) for kind in kinds] + [1] * others),
        keep_alives_s=keep_alives,
        listeners=listeners,
        protocols=rng.integers(0, 2, clients),
        clean_starts=np.concatenate([rng.random(devices) < 0.7, np.zeros(2, bool), np.ones(viewers, bool)]),
        addresses=[f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}" for n in rng.permutation(1 << 20)[: 2 * clients]],
        topics=[],
        topic_bytes=[],
        topic_sites=[],
        first_topics=np.zeros(clients, np.int64),
        command_topics=np.zeros(clients, np.int64),
        historian=first_other,
        controller=first_other + 1,
        viewers=range(first_other + 2, clients),
    )
    for device in range(devices):
        of, place = fleet.client_ids[device], int(site[device])
        fleet.first_topics[device] = len(fleet.topics)
        for measure in fleet.class_of(device).measures:
            fleet.new_topic(f"plant/{place}/{of}/{measure}", place)
    for device in range(devices):
        fleet.command_topics[device] = fleet.new_topic(f"command/{fleet.client_ids[device]}", NO_SITE)
    return fleet


def _kinds(rng: Rng, devices: int) -> Longs:
    """Every class has its share, also in a small fleet."""
    bounds = np.cumsum([each.share for each in CLASSES])
    of_each = np.searchsorted(bounds / bounds[-1], (np.arange(devices) + 0.5) / devices)
    return rng.permutation(of_each).astype(np.int64)
