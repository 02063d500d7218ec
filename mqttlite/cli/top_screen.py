"""The screen of `mqttlite top`: what it shows of a broker's answers, and what keys do. Nothing is drawn here.

Invariant: a screen has no more lines than the terminal, and no line has more characters than a line of it.
"""

from dataclasses import dataclass, field
from typing import Any, Final

from mqttlite.cli.top_words import count, duration, most_of, overload_words, printable, short, size

Status = dict[str, Any]

SLOW: Final = "outbox"
GREEDY: Final = "bytes"
QUEUE: Final = "queue"
DROPS: Final = "drops"
RANKINGS: Final = (SLOW, GREEDY, QUEUE, DROPS)

TITLES: Final = {
    SLOW: "SLOW: bytes that a socket does not take",
    GREEDY: "GREEDY: bytes moved a second",
    QUEUE: "QUEUE: messages that wait",
    DROPS: "DROPPED: messages that were lost",
}

OVERVIEW: Final = "overview"
TABLE: Final = "table"
ALL: Final = "all"
CLIENT: Final = "client"

HELP: Final = {
    OVERVIEW: "Tab ↑↓ move  Enter client  1 slow 2 greedy 3 queue 4 dropped 5 all  / filter  q",
    TABLE: "↑↓ PgUp PgDn  Enter client  1 2 3 4 sort  5 all  / filter  Esc back  q quit",
    ALL: "↑↓  PgUp PgDn page  Enter client  1 2 3 4 sort  / filter  Esc back  q quit",
    CLIENT: "↑↓ scroll  Esc back  q quit",
}

MIN_NAME: Final = 12
"""Characters of a client's name on a narrow terminal."""

NORMAL: Final = ""
BOLD: Final = "bold"
MARKED: Final = "marked"
BAD: Final = "bad"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the screen: pieces of text, each with its style."""

    pieces: tuple[tuple[str, str], ...]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


@dataclass(slots=True)
class Answers:
    """The broker's latest answers; None where it was not asked."""

    status: Status
    page: dict[str, Any] | None = None
    client: dict[str, Any] | None = None
    error: str = ""


@dataclass(slots=True)
class Screen:
    """The view: which clients, in which order, and the selected one."""

    mode: str = OVERVIEW
    ranking: str = GREEDY
    """The active panel, or what a table is sorted by."""
    selected: int = 0
    filter: str = ""
    is_typing: bool = False
    """Whether keys are for the filter."""
    client_id: str = ""
    scroll: int = 0
    cursors: list[str] = field(default_factory=lambda: [""])
    """Where each page of all clients begins, up to the one that is shown."""
    is_over: bool = False
    height: int = 24
    width: int = 80
    _back: str = OVERVIEW

    def wanted(self) -> dict[str, str]:
        """The parameters of `/clients` or of `/client`, which is asked beside the status; none for neither."""
        if self.mode == ALL:
            return {"cursor": self.cursors[-1], "limit": str(self._rows()), "contains": self.filter}
        return {"id": self.client_id} if self.mode == CLIENT else {}

    # ------------------------------------------------------------------ keys

    def on_key(self, key: str, answers: Answers) -> None:
        """A key was pressed: a character, or the name of another key such as `up`."""
        if self.is_typing:
            self._type(key)
        elif key == "q":
            self.is_over = True
        elif key == "/" and self.mode != CLIENT:
            self.is_typing = True
        elif key == "escape":
            self._leave()
        elif key in ("1", "2", "3", "4"):
            self._show(TABLE)
            self.ranking = RANKINGS[int(key) - 1]
        elif key == "5":
            self._show(ALL)
        elif key == "tab" and self.mode == OVERVIEW:
            self.ranking = RANKINGS[(RANKINGS.index(self.ranking) + 1) % len(RANKINGS)]
            self.selected = 0
        else:
            self._move(key, answers)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.is_typing = False
            self.filter = self.filter if key == "enter" else ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key
        self.selected = 0
        self.cursors = [""]

    def _leave(self) -> None:
        if self.filter and self.mode != CLIENT:
            self.filter = ""
        elif self.mode == CLIENT:
            self.mode = self._back
        else:
            self.mode = OVERVIEW
        self.selected = self.scroll = 0
        self.cursors = [""]

    def _show(self, mode: str) -> None:
        self.mode, self.selected, self.scroll, self.cursors = mode, 0, 0, [""]

    def _move(self, key: str, answers: Answers) -> None:
        step = {"up": -1, "down": 1, "page up": -self._rows(), "page down": self._rows()}.get(key, 0)
        if self.mode == CLIENT:
            self.scroll = max(0, self.scroll + step)
            return
        rows = self.entries(answers)
        if key == "enter" and rows:
            self._back, self.mode, self.scroll = self.mode, CLIENT, 0
            self.client_id = rows[min(self.selected, len(rows) - 1)]["client_id"]
        elif self.mode == ALL and key in ("page up", "page down"):
            self._turn_page(key, answers)
        else:
            self.selected = max(0, min(self.selected + step, len(rows) - 1))

    def _turn_page(self, key: str, answers: Answers) -> None:
        self.selected = 0
        if key == "page up":
            self.cursors = self.cursors[:-1] or [""]
        elif answers.page is not None and answers.page["cursor"] not in ("", self.cursors[-1]):
            self.cursors.append(answers.page["cursor"])

    # ------------------------------------------------------------------ what is shown

    def entries(self, answers: Answers) -> list[dict[str, Any]]:
        """The clients that the arrows move among."""
        if self.mode == ALL:
            return [] if answers.page is None else answers.page["entries"]
        top = answers.status["top"]
        if self.mode == OVERVIEW:
            return self._filtered(top[self.ranking])[: self._panel_rows()]
        found = {(each["client_id"], each["connection_id"]): each for ranking in RANKINGS for each in top[ranking]}
        return sorted(self._filtered(found.values()), key=lambda each: (-_value(each, self.ranking), each["client_id"]))

    def _filtered(self, entries: Any) -> list[dict[str, Any]]:
        return [each for each in entries if self.filter.lower() in each["client_id"].lower()]

    def _rows(self) -> int:
        """Rows of a table, between its two lines of titles and the line of notes."""
        return max(1, self.height - 11)

    def _panel_rows(self) -> int:
        """Rows of each of the four panels."""
        return max(1, (self.height - 12) // 2)

    def lines(self, answers: Answers, clock: str) -> list[Line]:
        """The screen, of `height` lines at most."""
        body = {OVERVIEW: self._overview, TABLE: self._table, ALL: self._all, CLIENT: self._client}[self.mode](answers)
        shown = [*_head(answers.status, clock, self.width), _line(""), *body]
        room = max(0, self.height - 2)
        shown = shown[:room] + [_line("")] * (room - len(shown))
        note = f"filter: {self.filter}█" if self.is_typing else f"filter: {self.filter}" if self.filter else ""
        shown.append(_line(answers.error, BAD) if answers.error else _line(note, BOLD))
        shown.append(_line("Enter keep  Esc clear" if self.is_typing else HELP[self.mode], MARKED))
        return [_clipped(line, self.width) for line in shown[-self.height :]]

    def _overview(self, answers: Answers) -> list[Line]:
        shown: list[Line] = []
        rows, width = self._panel_rows(), self.width // 2
        for pair in (RANKINGS[:2], RANKINGS[2:]):
            panels = [self._panel(answers.status, ranking, width - 1, rows) for ranking in pair]
            shown += [Line((*left, ("  ", NORMAL), *right)) for left, right in zip(*panels, strict=True)]
            shown.append(_line(""))
        return shown[:-1]

    def _panel(self, status: Status, ranking: str, width: int, rows: int) -> list[tuple[tuple[str, str], ...]]:
        active = ranking == self.ranking
        title = TITLES[ranking].ljust(width)[:width], MARKED if active else BOLD
        shown: list[tuple[tuple[str, str], ...]] = [(title,)]
        entries = self._filtered(status["top"][ranking])[:rows]
        for number in range(rows):
            if number >= len(entries):
                text = "  none" if number == 0 else ""
                shown.append(((text.ljust(width), NORMAL),))
                continue
            each = entries[number]
            value = _value_in_words(each, ranking, status["interval_s"])
            name = printable(each["client_id"], width - len(value) - 3)
            text = f"  {name.ljust(width - len(value) - 3)} {value}"
            shown.append(((text, MARKED if active and number == self.selected else NORMAL),))
        return shown

    def _table(self, answers: Answers) -> list[Line]:
        width = max(MIN_NAME, self.width - 61)
        head = f"{'CLIENT':<{width}} {'MOVED/s':>9} {'OUTBOX':>9} {'QUEUED':>7} {'UNACKED':>7} {'DROPPED':>7}  FROM"
        rows = []
        for each in self.entries(answers):
            moved = size(each["bytes"] / answers.status["interval_s"]) if each["connection_id"] is not None else "-"
            outbox = size(each["outbox_bytes"]) + ("!" if each["blocked"] else "")
            rows.append(
                f"{printable(each['client_id'], width):<{width}} {moved:>9} {outbox:>9} {short(each['queued']):>7} "
                f"{short(each['inflight']):>7} {short(each['dropped']):>7}  {_place(each)}"
            )
        return [_line(f"{TITLES[self.ranking]} ({len(rows)} clients)", BOLD), _line(head, BOLD), *self._scrolled(rows)]

    def _all(self, answers: Answers) -> list[Line]:
        if answers.page is None:
            return [_line("All clients", BOLD), _line("asking …")]
        width = max(MIN_NAME, self.width - 54)
        head = f"{'CLIENT':<{width}} {'USER':<12} {'QUEUED':>7} {'UNACKED':>7} {'FILTERS':>7}  FROM"
        rows = [
            f"{printable(each['client_id'], width):<{width}} {printable(each['username'] or '-', 12):<12} "
            f"{short(each['queued']):>7} {short(each['inflight']):>7} {short(each['subscriptions']):>7}  "
            f"{_host(each['peer'])}"
            for each in answers.page["entries"]
        ]
        more = ", more behind" if answers.page["cursor"] else ""
        title = f"All clients, page {len(self.cursors)}{more}"
        return [_line(title, BOLD), _line(head, BOLD), *self._scrolled(rows)]

    def _scrolled(self, rows: list[str]) -> list[Line]:
        """The rows around the selected one."""
        if not rows:
            return [_line("  none")]
        selected = min(self.selected, len(rows) - 1)
        start = max(0, min(selected - self._rows() // 2, len(rows) - self._rows()))
        visible = rows[start : start + self._rows()]
        return [
            _line(row.ljust(self.width), MARKED if number == selected else NORMAL)
            for number, row in enumerate(visible, start)
        ]

    def _client(self, answers: Answers) -> list[Line]:
        details = answers.client
        title = _line(f"Client {printable(self.client_id, self.width - 8)}", BOLD)
        if details is None:
            return [title, _line(answers.error or "asking …")]
        facts = list(_facts(details))
        self.scroll = min(self.scroll, max(0, len(facts) - self._rows()))
        return [title, *(_line(f"  {fact}") for fact in facts[self.scroll : self.scroll + self._rows()])]


def _value(each: dict[str, Any], ranking: str) -> int:
    key = {SLOW: "outbox_bytes", GREEDY: "bytes", QUEUE: "queued", DROPS: "dropped"}[ranking]
    value: int = each[key]
    return value


def _value_in_words(each: dict[str, Any], ranking: str, interval_s: float) -> str:
    if ranking == GREEDY:
        return f"{size(each['bytes'] / interval_s)}/s"
    if ranking == SLOW:
        return size(each["outbox_bytes"]) + ("!" if each["blocked"] else "")
    return count(_value(each, ranking))


def _head(status: Status, clock: str, width: int) -> list[Line]:
    kind = "compiled" if status["compiled"] else "pure Python"
    title = f"mqttlite {status['version']} ({kind}), up {duration(status['uptime_s'])}"
    if "nodes" in status:
        missing = [each["node"] for each in status["silent"]]
        title += f", nodes {', '.join(status['nodes'])}" + (f" ({', '.join(missing)} missing)" if missing else "")
    title = f"{title}{clock:>{max(1, width - len(title))}}"
    clients, held, rates = status["clients"], status["held"], status["rates"]
    drops = sorted(status["drops"].items(), key=lambda each: -each[1])
    lag, store = status["loop_lag_s"], status["store"]
    failing = "COMMITS FAIL NOW; " if store["failing"] else ""
    oldest = held["oldest_unacknowledged_s"]
    shown = [
        _line(title, BOLD),
        _line(
            f"clients  {count(clients['connected'])} connected, {count(clients['blocked'])} blocked, "
            f"{count(clients['sessions'])} sessions, {count(clients['subscriptions'])} subscriptions"
        ),
        _line(
            f"traffic  in {count(rates['messages_received'])} msg/s, {size(rates['bytes_received'])}/s; "
            f"out {count(rates['messages_sent'])} msg/s, {size(rates['bytes_sent'])}/s"
        ),
        _line(
            f"waiting  {count(held['queued_messages'])} queued ({size(held['queued_bytes'])}), "
            f"{count(held['inflight_messages'])} unacknowledged{f' for {duration(oldest)}' if oldest else ''}"
            f"{most_of(status)}, {size(held['outbox_bytes'])} in outboxes"
        ),
        _line(f"dropped  {', '.join(f'{count(messages)} {reason}' for reason, messages in drops) or 'nothing'}"),
        _line(
            f"broker   {failing}memory {size(held['memory_bytes'])} of {size(held['memory_limit_bytes'])}; "
            f"loop lag p99 {duration(lag['p99'])}; commit p99 {duration(store['p99_s'])}",
            BAD if failing else NORMAL,
        ),
    ]
    if status["overload"]["stage"]:
        shown[-1] = _line(f"OVERLOAD {overload_words(status['overload'])}", BAD)
    if status["not_ready"]:
        shown[-1] = _line(f"NOT READY: {status['not_ready']}", BAD)
    return shown


def _place(ranked: Status) -> str:
    """Where a client is: its host, and which of several nodes has it."""
    return f"{_host(ranked['peer'])} at {ranked['node']}" if "node" in ranked else _host(ranked["peer"])


def _host(peer: str | None) -> str:
    """An address without its port, which the view of one client has."""
    return "away" if peer is None else peer.rpartition(":")[0] or peer


def _facts(details: dict[str, Any]) -> Any:
    """The details of a client, a line for each."""
    entry = details["entry"]
    if entry["connected"]:
        yield f"connected     {entry['peer']} on {entry['listener']}, since {entry['connected_at'][:19]}Z"
        tls = f", {details['tls_version']}" if details["tls_version"] else ""
        yield f"protocol      MQTT {entry['protocol_version']} over {details['transport']}{tls}"
        yield f"user          {printable(entry['username'] or '-', 60)}"
        yield f"keep-alive    {details['keep_alive_s']} s"
    else:
        yield "connected     no"
    expiry = details["session_expiry_s"]
    yield f"session       expires {'never' if expiry is None else f'{duration(expiry)} after the connection'}"
    yield f"moved         {size(details['bytes_received'])} received, {size(details['bytes_sent'])} sent"
    if entry["connected"]:
        socket = "takes nothing now" if details["blocked"] else "takes bytes"
        yield f"socket        {socket}, {size(details['outbox_bytes'])} wait for it"
    yield f"queue         {count(entry['queued'])} messages, {size(details['queued_bytes'])}"
    yield f"unacked       {count(entry['inflight'])} messages"
    drops = ", ".join(f"{count(messages)} {reason}" for reason, messages in details["drops"].items())
    yield f"dropped       {drops or 'nothing'}"
    yield f"subscribes to {count(entry['subscriptions'])} filters:"
    wheres = details.get("message_filters", {})
    for topic_filter, qos in details["topic_filters"].items():
        where = f" where {printable(wheres[topic_filter], 200)}" if topic_filter in wheres else ""
        yield f"  QoS {qos}  {printable(topic_filter, 200)}{where}"


def _line(text: str, style: str = NORMAL) -> Line:
    return Line(((text, style),))


def _clipped(line: Line, width: int) -> Line:
    """The line without what does not fit."""
    pieces: list[tuple[str, str]] = []
    for text, style in line.pieces:
        pieces.append((text[:width], style))
        width -= len(pieces[-1][0])
    return Line(tuple(pieces))
