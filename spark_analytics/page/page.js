// Charts in the page's colours, tables that sort, fold and search, and the view of one client. Data are JSON in the page.
"use strict";

const PALETTE = ["#3b7fb5", "#e0913c", "#5a9e6f", "#c05a72", "#8b78bd", "#8a8f98", "#4bb0b5", "#b59a3b"];
const PRINTED = 680; // pixels between the margins of A4

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function layout(figure) {
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
  return Object.assign({ height: 320 }, figure.layout, {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
    colorway: PALETTE,
    hovermode: "closest",
    legend: { orientation: "h", y: -0.18, yanchor: "top", x: 0, xanchor: "left", traceorder: "normal" },
    margin: { l: 60, r: 20, t: 14, b: 44 },
    xaxis: Object.assign({}, figure.layout.xaxis, axis),
    yaxis: Object.assign({}, figure.layout.yaxis, axis),
  });
}

function plot(place, figure, width) {
  const shape = Object.assign(layout(figure), width ? { width } : {});
  place.style.height = `${shape.height}px`;
  Plotly.react(place, figure.data, shape, { responsive: !width, displayModeBar: false });
}

function figureOf(place) {
  return place.figure || JSON.parse(document.getElementById(place.dataset.figure).textContent);
}

function draw(width) {
  for (const place of document.querySelectorAll(".chart")) {
    if (place.closest("[hidden]") === null) plot(place, figureOf(place), width);
  }
}

// Tables.

function value(row, column) {
  const cell = row.cells[column];
  return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
}

function sort(heading) {
  const table = heading.closest("table");
  const down = heading.getAttribute("aria-sort") !== "descending" && heading.classList.contains("number")
    || heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const column = heading.cellIndex;
  const rows = Array.from(table.tBodies[0].rows);
  rows.sort((left, right) => {
    const a = value(left, column), b = value(right, column);
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = typeof a === "number" ? a - b : a.localeCompare(b);
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
  fold(table);
}

function fold(table) {
  const tools = table.parentElement.previousElementSibling;
  if (!tools || !tools.classList.contains("tools")) return;
  const wanted = tools.querySelector("input").value.trim().toLowerCase();
  const open = tools.querySelector("button").getAttribute("aria-expanded") === "true";
  let place = 0;
  for (const row of table.tBodies[0].rows) {
    const found = wanted === "" || row.textContent.toLowerCase().includes(wanted);
    row.classList.toggle("folded", !found || (wanted === "" && !open && place >= FOLDED));
    if (found) place += 1;
  }
}

const FOLDED = 10;

for (const heading of document.querySelectorAll("th")) {
  heading.querySelector("button").addEventListener("click", () => sort(heading));
}
for (const tools of document.querySelectorAll(".tools")) {
  const table = tools.nextElementSibling.querySelector("table");
  const button = tools.querySelector("button");
  const more = button.textContent;
  tools.querySelector("input").addEventListener("input", () => fold(table));
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") !== "true";
    button.setAttribute("aria-expanded", String(open));
    button.textContent = open ? "Show 10 rows" : more;
    fold(table);
  });
}

// The view of one client. Every text in it is set as text, never as HTML.

const clients = JSON.parse(document.getElementById("clients")?.textContent || "{}");
const view = document.getElementById("client");
const report = document.getElementById("report");

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function count(number) {
  return number === null || number === undefined ? "" : Number(number).toLocaleString("en");
}

function size(bytes) {
  for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (bytes >= unit) return `${(bytes / unit).toFixed(1)} ${name}`;
  }
  return `${bytes} B`;
}

function time(us) {
  if (us === null || us === undefined) return "";
  for (const [size, unit] of [[3.6e9, "h"], [6e7, "min"], [1e6, "s"], [1e3, "ms"]]) {
    if (us >= size) return `${(us / size).toFixed(1)} ${unit}`;
  }
  return `${us} µs`;
}

function linkTo(name) {
  return element("a", { href: `#client=${encodeURIComponent(name)}`, textContent: name });
}

function part(title, ...children) {
  return element("section", {}, element("h2", { textContent: title }), ...children);
}

function tableOf(title, headings, rows) {
  const head = headings.map((text) => element("th", { scope: "col", textContent: text }));
  const body = rows.map((row) => element("tr", {}, ...row.map((each) => element("td", {}, each ?? ""))));
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body));
  const scroll = element("div", { className: "scroll", tabIndex: 0 }, table);
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", title);
  return scroll;
}

function seconds(text) {
  return Date.parse(`${text.replace(" ", "T")}Z`) / 1000;
}

const CLEAN = ["client_disconnected", "client_disconnected_with_will", "server_shutdown"];

function timeLine(sessions, until) {
  const known = sessions.filter((session) => session[0]);
  if (known.length === 0) return element("p", { textContent: "It was connected before the asked time began." });
  const from = Math.min(...known.map((session) => seconds(session[0])));
  const to = Math.max(from + 1, seconds(until), ...known.map((session) => seconds(session[1] || until)));
  const place = (at) => 100 * (seconds(at) - from) / (to - from);
  const bars = known.map(([begin, end, reason]) => {
    const bar = element("span", { title: `${begin} to ${end || "now"}: ${reason || "still connected"}` });
    if (reason && !CLEAN.includes(reason)) bar.className = "lost";
    bar.style.left = `${place(begin)}%`;
    bar.style.width = `${Math.max(0, place(end || until) - place(begin))}%`;
    return bar;
  });
  const line = element("div", { className: "lives" }, ...bars);
  line.setAttribute("role", "img");
  line.setAttribute("aria-label", `Time line of ${known.length} sessions; the table below has them`);
  const text = (at) => new Date(at * 1000).toISOString().slice(0, 19).replace("T", " ");
  return element("div", {}, line,
    element("div", { className: "ends" }, element("span", { textContent: text(from) }),
      element("span", { textContent: "blue: ended in good order or open; red: lost" }),
      element("span", { textContent: text(to) })));
}

function chart(title, rows, lines, unit) {
  const place = element("div", { className: "chart" });
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", title);
  const data = lines.map(([name, column, by]) => ({
    type: "scatter", mode: rows.length > 1 ? "lines" : "markers", name,
    x: rows.map((row) => row[0]), y: rows.map((row) => row[column] / (by || 1)),
  }));
  const yaxis = { title: { text: unit }, rangemode: "tozero", automargin: true };
  const shape = { height: 240, showlegend: lines.length > 1, xaxis: { type: "date" }, yaxis };
  place.figure = { data, layout: shape };
  return element("figure", {}, element("figcaption", { textContent: title }), place);
}

function show(name) {
  const own = clients[name];
  const [kinds, reasons] = own.trouble?.[0] || [[], null];
  const sessions = own.sessions || [], activity = own.activity || [], drops = own.drops || [];
  const back = element("a", { href: "#top", textContent: "Back to the report", className: "back" });
  const parts = [back, element("h1", { textContent: name }),
    element("p", { textContent: reasons ? `In trouble: ${reasons}.` : "No report names this client as one in trouble." })];
  const traffic = own.traffic?.[0];
  if (traffic) {
    const [number, received, sent, bytesIn, bytesOut, share] = traffic;
    const text = `Sessions: ${count(number)}. Messages: ${count(received)} from it (${size(bytesIn)}) and`
      + ` ${count(sent)} to it (${size(bytesOut)}), ${((share || 0) * 100).toFixed(1)} % of all bytes.`;
    parts.push(element("p", { textContent: text }));
  }
  const until = document.body.dataset.until;
  const rows = sessions.slice().reverse().map(([begin, end, reason, peer, received, sent, dropped]) =>
    [begin || "before", end || "open", reason || "", peer || "", count(received), count(sent), count(dropped)]);
  const all = Math.max(traffic ? traffic[0] : 0, sessions.length);
  const told = all > sessions.length ? `The last ${count(sessions.length)} of ${count(all)} sessions.` : "";
  parts.push(part("Sessions", element("p", { textContent: told }), timeLine(sessions, until), tableOf("Sessions",
    ["from", "to", "ended by", "address", "messages from it", "messages to it", "dropped"], rows)));
  if (activity.length) {
    const charts = [chart("Messages in each step", activity, [["from it", 1], ["to it", 2]], "messages")];
    if (activity.some((row) => row[3] || row[4])) {
      charts.push(chart("Dropped, and most that waited", activity, [["dropped", 3], ["waiting", 4]], "messages"));
    }
    if (activity.some((row) => row[5])) {
      charts.push(chart("Time for which its socket took no bytes", activity, [["back-pressure", 5]], "seconds"));
    }
    parts.push(part("Traffic", ...charts));
  }
  const lost = drops.map(([reason, messages, first, last]) => [reason, count(messages), first, last]);
  parts.push(part("Drops", lost.length ? tableOf("Drops", ["reason", "messages", "first", "last"], lost)
    : element("p", { textContent: "No message for it was dropped." })));
  const taken = own.latency?.[0];
  parts.push(part("Latency", taken
    ? tableOf("Latency", ["traced messages", "half at most", "99 of 100 at most", "longest", "in its queue (p99)",
      "until it acknowledged (p99)"], [[count(taken[0]), ...taken.slice(1).map(time)]])
    : element("p", { textContent: "No message to it was traced." })));
  const near = (own.neighbours || []).map(([other, shared]) => [linkTo(other), shared.join(", ")]);
  if (kinds.length) {
    parts.push(part("Neighbours: who has the same trouble", near.length ? tableOf("Neighbours", ["client", "trouble"], near)
      : element("p", { textContent: `No other client with a view here has ${kinds.join(" or ")}.` })));
  }
  view.replaceChildren(...parts);
}

function route() {
  const asked = location.hash.startsWith("#client=") ? decodeURIComponent(location.hash.slice(8)) : null;
  const known = asked !== null && Object.hasOwn(clients, asked);
  const back = report.hidden;
  view.hidden = !known;
  report.hidden = known;
  if (!known) {
    if (back) {
      draw();
      document.getElementById(location.hash.slice(1))?.scrollIntoView();
    }
    return;
  }
  show(asked);
  draw();
  scrollTo(0, 0);
  view.focus();
}

const find = document.getElementById("find-client");
find?.addEventListener("change", () => {
  if (Object.hasOwn(clients, find.value)) location.hash = `client=${encodeURIComponent(find.value)}`;
});
addEventListener("hashchange", route);
addEventListener("beforeprint", () => draw(PRINTED));
addEventListener("afterprint", () => draw());
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw());
route();
if (!report.hidden) draw();
