"""Serves the state of a running broker over HTTP, on a port of its own.

`/metrics` for Prometheus, `/status`, `/clients` and `/client` for `mqttlite top`, `/healthz` and `/readyz` for
supervisors, `/why` for people. Invariant: however many ask, one snapshot is under way at most, and it holds up the loop
for one slice at a time.
"""

import asyncio
import logging
import platform
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

import msgspec

from mqttlite.admin import MAX_PAGE, Admin
from mqttlite.build import is_compiled, version
from mqttlite.certificate_watch import CertificateWatch
from mqttlite.event_hub import MEMORY_SHORT, STORE_FAILING
from mqttlite.event_hub import Listener as EventListener
from mqttlite.net.endpoints import TcpEndpoint
from mqttlite.net.http import JSON, HttpServer, Options, Request, Response, sentence
from mqttlite.net.listeners import Listener
from mqttlite.telemetry.answers import Answers
from mqttlite.telemetry.dataset import Dataset
from mqttlite.telemetry.following import MAX_FOLLOWED, Following, TooManyFollowed
from mqttlite.telemetry.histograms import Histogram
from mqttlite.telemetry.log import lines_dropped
from mqttlite.telemetry.report import Build, ListenerState, Report
from mqttlite.telemetry.snapshot import Snapshot, Snapshots
from mqttlite.telemetry.status import status
from mqttlite.telemetry.timing import LoopLag, TimedStore
from mqttlite.wire.errors import TopicFilterInvalid

FRESH_S: Final = 0.5
"""A snapshot that is younger serves again: many who ask cost no more than one."""

_NO_LIBRARY: Final = "they need prometheus-client: pip install 'mqttlite[metrics]'"

_ALARMS: Final = {STORE_FAILING: "the store fails, and what is to be kept waits until it recovers"}
"""Alarms during which the broker is not ready, in words."""

_log = logging.getLogger("mqttlite.telemetry")


class Monitor(EventListener):
    """`options` say where to listen, `not_ready` says in a sentence why no clients may connect, or nothing."""

    def __init__(
        self,
        options: Options,
        snapshots: Snapshots,
        admin: Admin,
        listeners: list[Listener],
        certificates: CertificateWatch,
        store: TimedStore,
        broker_id: str,
        not_ready: Callable[[], str],
    ) -> None:
        self.answers: Callable[[], Answers | None] = lambda: None
        """Answers `/why`; None where nothing is traced."""
        self.following: Following | None = None
        """Traces filters at run time; None before the assembly is complete."""
        self._admin: Final = admin
        self.latency: Callable[[], Mapping[str, Histogram]] = dict
        """By stage, of the messages that were traced since the start."""
        self.oldest_unacknowledged_s: Callable[[], float] | None = None
        self.dataset: Dataset | None = None
        """None where no telemetry is written."""
        self._snapshots: Final = snapshots
        self._listeners: Final = listeners
        self._store: Final = store
        self._broker_id: Final = broker_id
        self._not_ready: Final = not_ready
        self._certificates: Final = certificates
        self._build: Final = Build(version=version(), compiled=is_compiled(), python=platform.python_version())
        self._exposition: Final = _exposition()
        self._lag: Final = LoopLag()
        self._started_at: Final = time.monotonic()
        self._alarms: Final[dict[str, None]] = {}
        self._report: Report | None = None
        self._metrics_text: tuple[Report, bytes] | None = None
        """The latest report as metrics."""
        self._host: Final = options.host
        self._http: Final = HttpServer(TcpEndpoint(options.host, options.port), self._answer)
        self._answers: Final[Mapping[str, Callable[[Request], Awaitable[Response]]]] = {
            "/metrics": self._metrics,
            "/status": self._status,
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/why": self._why,
            "/clients": self._clients,
            "/client": self._client,
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
                "metrics, health and status on %s are open to the network: they show which clients are connected",
                ", ".join(self.addresses),
            )
        self._lag.start()

    async def stop(self) -> None:
        self._lag.stop()
        await self._http.stop()

    def on_alarm(self, alarm: str, active: bool, detail: str) -> None:
        if active:
            self._alarms[alarm] = None
        else:
            self._alarms.pop(alarm, None)

    async def report(self) -> Report:
        """The state of the broker, not older than `FRESH_S`."""
        snapshot = await self._snapshots.take(FRESH_S)
        if self._report is None or self._report.snapshot is not snapshot:
            self._report = self._make_report(snapshot)
        return self._report

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
        report = await self.report()
        text = self._metrics_text
        if text is None or text[0] is not report:
            pieces: list[bytes] = []
            for piece in exposition(report):
                pieces.append(piece)
                await asyncio.sleep(0)
            text = self._metrics_text = report, b"".join(pieces)
        return Response(200, text[1], content_type)

    async def _status(self, _request: Request) -> Response:
        return Response(200, status(await self.report()), JSON)

    async def _healthz(self, _request: Request) -> Response:
        return sentence(200, "The broker is alive.")

    async def _readyz(self, _request: Request) -> Response:
        reason = self._reason()
        return sentence(503, f"Not ready: {reason}.") if reason else sentence(200, "The broker is ready.")

    async def _clients(self, request: Request) -> Response:
        """Clients with a session, in the order of their identifiers, a page at a time."""
        limit = request.query.get("limit", "100")
        if not limit.isdecimal():
            return sentence(400, f"limit is {limit!r}: it is a number, {MAX_PAGE} at most.")
        query = request.query
        page = await self._admin.clients(query.get("cursor", ""), int(limit), query.get("contains", ""))
        return Response(200, msgspec.json.encode(page), JSON)

    async def _client(self, request: Request) -> Response:
        """All that is known of one client."""
        client_id = request.query.get("id", "")
        details = self._admin.client(client_id)
        if details is None:
            return sentence(404, f"There is no client {client_id!r}.")
        return Response(200, msgspec.json.encode(details), JSON)

    async def _why(self, request: Request) -> Response:
        target, client = request.query.get("target", ""), request.query.get("client") or None
        if "follow" in request.query:
            return self._follow(request.query["follow"], request.query.get("after", ""))
        answers = self.answers()
        if answers is None:
            return sentence(
                404,
                "No delivery log is kept. Trace a topic from now on with 'mqttlite why --follow FILTER', or put a "
                'section [delivery_log] into the configuration, such as topics = ["plant/#"], and start again.',
            )
        if not target and client is None:
            return sentence(400, "Of what? Name a message's id or a topic: /why?target=plant/7/temp&client=c7.")
        return Response(200, msgspec.json.encode(answers.why(target, client)), JSON)

    def _follow(self, topic_filter: str, after: str) -> Response:
        """Trace a filter for a while, and tell what became of its messages."""
        assert self.following is not None, "the assembly is complete"
        if after and not after.isdecimal():
            return sentence(400, f"after is {after!r}: it is a number that an answer had as latest.")
        try:
            self.following.follow(topic_filter.encode())
        except TopicFilterInvalid as error:
            return sentence(400, f"{topic_filter!r} is no topic filter: {error}.")
        except TooManyFollowed:
            return sentence(503, f"{MAX_FOLLOWED} filters are followed already: end one of them first.")
        answers = self.answers()
        assert answers is not None, "something is followed"
        return Response(200, msgspec.json.encode(answers.follow(topic_filter, int(after) if after else None)), JSON)

    def _reason(self) -> str:
        reason = self._not_ready()
        for alarm in self._alarms:
            reason = reason or _ALARMS.get(alarm, "")
        return reason

    def _make_report(self, snapshot: Snapshot) -> Report:
        tls_files = self._certificates.ends_at()
        return Report(
            build=self._build,
            broker_id=self._broker_id,
            uptime_s=time.monotonic() - self._started_at,
            not_ready=self._reason(),
            snapshot=snapshot,
            listeners=[
                ListenerState(
                    name=listener.name,
                    transport=listener.transport,
                    addresses=listener.addresses,
                    connections=listener.open,
                    turned_away=listener.turned_away,
                    limited=dict(listener.limited),
                    throttled=dict(listener.throttled),
                    half_open_closed=listener.half_open_closed,
                    failed_handshakes=listener.failed_handshakes,
                    tls_files_end_at=tls_files.get(listener.name, {}),
                )
                for listener in self._listeners
            ],
            lag=self._lag.histogram,
            recent_lag=self._lag.recent(),
            commits=self._store.histogram,
            commit_failures=self._store.failures,
            store_failing=STORE_FAILING in self._alarms,
            memory_short=MEMORY_SHORT in self._alarms,
            rows_written={} if self.dataset is None else dict(self.dataset.written_rows),
            rows_dropped={} if self.dataset is None else self.dataset.dropped_rows,
            latency=self.latency(),
            log_lines_dropped=lines_dropped(),
            oldest_unacknowledged_s=None if self.oldest_unacknowledged_s is None else self.oldest_unacknowledged_s(),
        )


def _exposition() -> tuple[str, Callable[[Report], Iterator[bytes]]] | None:
    """The formatter of `/metrics` and its content type; None where the library is not installed.

    Imported at the start: the import takes a tenth of a second, and would hold up the loop later.
    """
    try:
        from mqttlite.telemetry.metrics import CONTENT_TYPE, exposition
    except ImportError:
        return None
    return CONTENT_TYPE, exposition
