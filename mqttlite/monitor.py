"""The hall of those who look on: gathers the figures of a running broker from its rooms, and serves them over HTTP.

`/metrics` for Prometheus, `/status` for `mqttlite top`, `/healthz` and `/readyz` for supervisors, `/why` for people.
Invariant: however many ask, one census is under way at most, and the loop is held up for a slice of it at a time.
"""

import asyncio
import logging
import platform
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from mqttlite.build import is_compiled, version
from mqttlite.config import Config
from mqttlite.core.broker import Broker as Core
from mqttlite.net.http import JSON, HttpServer, Options, Request, Response, sentence
from mqttlite.net.link import LinkPort
from mqttlite.net.listeners import Listener
from mqttlite.net.loop_driver import LoopDriver
from mqttlite.telemetry.counters import Totals
from mqttlite.telemetry.dataset import Dataset
from mqttlite.telemetry.figures import Build, Figures, ListenerFigures
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.log import lines_dropped
from mqttlite.telemetry.snapshot import Comings, Snapshot
from mqttlite.telemetry.status import status
from mqttlite.telemetry.timing import LoopLag, TimedStore

FRESH_S: Final = 0.5
"""Figures that are so young are told again: many who ask cost no more than one."""

INTERVAL_S: Final = 1.0
"""The least time between two censuses of which rates are made."""

_NO_LIBRARY: Final = "they need prometheus-client: pip install 'mqttlite[metrics]'"

_GROWING: Final = ("messages_received", "messages_sent", "bytes_received", "bytes_sent")


_log = logging.getLogger("mqttlite.telemetry")


class Monitor:
    """`options` say where to listen, `not_ready` says in a sentence why no clients may come in, or nothing."""

    def __init__(
        self,
        options: Options,
        config: Config,
        core: Core,
        loop_driver: LoopDriver,
        listeners: list[Listener],
        store: TimedStore,
        broker_id: str,
        not_ready: Callable[[], str],
    ) -> None:
        self.why: Callable[[str, str | None], dict[str, Any]] | None = None
        """Answers `/why`; None where no delivery log is kept."""
        self.latency: Callable[[], Mapping[str, Histogram]] = dict
        """By stage, of the messages that were followed since the start."""
        self.oldest_unacknowledged_s: Callable[[], float] | None = None
        self.dataset: Dataset | None = None
        """None where no telemetry is written."""
        self._core: Final = core
        self._loop_driver: Final = loop_driver
        self._listeners: Final = listeners
        self._store: Final = store
        self._broker_id: Final = broker_id
        self._not_ready: Final = not_ready
        self._certificates: Final = [
            None if each.tls is None else _ends_at(each.tls.cert_file) for each in config.listeners
        ]
        self._build: Final = Build(version=version(), compiled=is_compiled(), python=platform.python_version())
        self._exposition: Final = _exposition()
        self._comings: Final = Comings()
        self._lag: Final = LoopLag()
        self._started_at: Final = time.monotonic()
        self._told = Totals()
        self._former: Snapshot | None = None
        """The one that rates are measured from."""
        self._latest: Snapshot | None = None
        self._figures: Figures | None = None
        self._written: tuple[Figures, bytes] | None = None
        """The latest figures as metrics."""
        self._gathering: asyncio.Task[Figures] | None = None
        self._host: Final = options.host
        self._http: Final = HttpServer(options.host, options.port, self._answer)
        self._answers: Final[Mapping[str, Callable[[Request], Awaitable[Response]]]] = {
            "/metrics": self._metrics,
            "/status": self._status,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/why": self._why,
        }

    @property
    def port(self) -> int:
        """The real port, once it listens."""
        return self._http.port

    @property
    def addresses(self) -> list[str]:
        """Where it listens."""
        return self._http.addresses

    async def start(self) -> None:
        """Listen. Raises `CannotListen`."""
        if self._exposition is None:
            _log.warning("there will be no /metrics: %s", _NO_LIBRARY)
        await self._http.start("metrics")
        if not (self._host.startswith("127.") or self._host in ("localhost", "::1")):
            _log.warning(
                "metrics, health and status on %s are open to the network: whoever reaches them sees who is connected",
                ", ".join(self.addresses),
            )
        self._lag.start()

    async def stop(self) -> None:
        self._lag.stop()
        await self._http.stop()
        if self._gathering is not None:
            self._gathering.cancel()
            await asyncio.wait([self._gathering])

    def on_certificate(self, number: int, file: str) -> None:
        """A listener uses another certificate from now on."""
        self._certificates[number] = _ends_at(file)

    def on_connected(self, link: LinkPort) -> None:
        """A client was accepted."""
        self._comings.on_connected(link)

    def on_closed(self, link: LinkPort) -> None:
        """A connection is over."""
        self._comings.on_closed(link)

    async def figures(self) -> Figures:
        """What there is to tell, not older than `FRESH_S`."""
        figures, latest = self._figures, self._latest
        if figures is not None and latest is not None and time.monotonic() - latest.at < FRESH_S:
            return figures
        if self._gathering is None:
            self._gathering = asyncio.get_running_loop().create_task(self._gather())
        return await asyncio.shield(self._gathering)  # who hangs up does not take it from the others

    # ------------------------------------------------------------------ answers

    async def _answer(self, request: Request) -> Response:
        answer = self._answers.get(request.path)
        if answer is None:
            return sentence(404, f"There is nothing here; there are {', '.join(self._answers)}.")
        return await answer(request)

    async def _metrics(self, _request: Request) -> Response:
        if self._exposition is None:
            return sentence(501, f"There are no metrics: {_NO_LIBRARY}.")
        content_type, exposition = self._exposition
        figures = await self.figures()
        if self._written is None or self._written[0] is not figures:
            pieces: list[bytes] = []
            for piece in exposition(figures):
                pieces.append(piece)
                await asyncio.sleep(0)
            self._written = figures, b"".join(pieces)
        return Response(200, self._written[1], content_type)

    async def _status(self, _request: Request) -> Response:
        return Response(200, status(await self.figures()), JSON)

    async def _healthz(self, _request: Request) -> Response:
        return sentence(200, "The broker is alive.")

    async def _readyz(self, _request: Request) -> Response:
        reason = self._reason()
        return sentence(503, f"Not ready: {reason}.") if reason else sentence(200, "The broker is ready.")

    async def _why(self, request: Request) -> Response:
        target, client = request.query.get("target", ""), request.query.get("client") or None
        if self.why is None:
            return sentence(
                404,
                "No delivery log is kept. Put a section [delivery_log] into the configuration, such as "
                'topics = ["plant/#"], and start the broker again.',
            )
        if not target:
            return sentence(400, "Of what? Name a message's id or a topic: /why?target=plant/7/temp&client=c7.")
        return Response(200, msgspec.json.encode(self.why(target, client)), JSON)

    def _reason(self) -> str:
        reason = self._not_ready()
        if not reason and self._store.failing:
            reason = "the store fails, and what is to be kept waits until it recovers"
        return reason

    # ------------------------------------------------------------------ figures

    async def _gather(self) -> Figures:
        try:
            now = time.monotonic()
            latest = self._latest
            if latest is not None and now - latest.at >= INTERVAL_S:
                self._former = latest
            former = self._former
            links = list(self._loop_driver.links.values())
            snapshot = Snapshot(
                self._core, links, self._comings.ended, now, None if former is None else former.moved_bytes
            )
            while not snapshot.step():
                await asyncio.sleep(0)
            snapshot.totals.keep_up_with(self._told)
            self._told, self._latest = snapshot.totals, snapshot
            self._figures = self._figures_of(snapshot, former)
            return self._figures
        finally:
            self._gathering = None

    def _figures_of(self, snapshot: Snapshot, former: Snapshot | None) -> Figures:
        core, comings = self._core, self._comings
        before = Totals() if former is None else former.totals
        return Figures(
            build=self._build,
            broker_id=self._broker_id,
            uptime_s=time.monotonic() - self._started_at,
            not_ready=self._reason(),
            totals=snapshot.totals,
            opened=core.opened,
            sessions_expired=core.sessions.expired,
            connected=dict(comings.connected),
            disconnected=dict(comings.disconnected),
            refused=dict(comings.refused),
            listeners=[
                ListenerFigures(
                    name=listener.name,
                    transport=listener.transport,
                    addresses=listener.addresses,
                    connections=listener.open,
                    turned_away=listener.turned_away,
                    half_open_closed=listener.half_open_closed,
                    failed_handshakes=listener.failed_handshakes,
                    certificate_ends_at=self._certificates[number],
                )
                for number, listener in enumerate(self._listeners)
            ],
            connections=snapshot.connections,
            blocked=snapshot.blocked,
            online=core.online,
            sessions=len(core.sessions),
            subscriptions=core.subscriptions,
            shared_subscriptions=core.shared_subscriptions,
            retained=len(core.router.retained),
            retained_bytes=core.router.retained.size_bytes,
            queued=snapshot.queued,
            queued_bytes=snapshot.queued_bytes,
            inflight=snapshot.inflight,
            outbox_bytes=snapshot.outbox_bytes,
            rankings=snapshot.rankings,
            interval_s=snapshot.at - (self._started_at if former is None else former.at),
            grown={name: getattr(snapshot.totals, name) - getattr(before, name) for name in _GROWING},
            lag=self._lag.histogram,
            recent_lag=self._lag.recent(),
            commits=self._store.histogram,
            commit_failures=self._store.failures,
            store_failing=self._store.failing,
            rows_written={} if self.dataset is None else dict(self.dataset.written_rows),
            rows_dropped={} if self.dataset is None else self.dataset.dropped_rows,
            latency=self.latency(),
            log_lines_dropped=lines_dropped(),
            oldest_unacknowledged_s=None if self.oldest_unacknowledged_s is None else self.oldest_unacknowledged_s(),
        )


def _exposition() -> tuple[str, Callable[[Figures], Iterator[bytes]]] | None:
    """What makes `/metrics`, and its content type; None where the library is not installed.

    Imported before anybody asks: it takes a tenth of a second, in which a loop would stand still.
    """
    try:
        from mqttlite.telemetry.metrics import CONTENT_TYPE, exposition
    except ImportError:
        return None
    return CONTENT_TYPE, exposition


def _ends_at(file: str) -> float:
    """When a certificate is out of date, in seconds since 1970."""
    from mqttlite.security.certificates import ends_at

    return ends_at(file).timestamp()
