// What the pages that are kept up to date have in common. What a device sent is only ever set as text.

import { root } from "./root.js";
import { forms, number } from "./words.js";

const POINTS = 120; // of a line: two minutes
const PAST = 181; // of a line with a past: half an hour, and now
const EVERY_MS = 10000; // from one of its points to the next
const LEAST = 20; // points that a line has room for at the beginning

export function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

const at = (found, path) => path.split(".").reduce((part, name) => part?.[name], found);

// Changes a text only where it is another one: screen readers and the browser have less to do.
export function say(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

// Shows a document in all elements that name a part of it.
export function show(found) {
  for (const place of document.querySelectorAll("[data-live]")) {
    say(place, forms[place.dataset.form](at(found, place.dataset.live)));
  }
  for (const place of document.querySelectorAll("[data-spark]")) spark(place, at(found, place.dataset.spark));
  const drops = document.querySelector("[data-drops] tbody");
  if (drops) rows(drops, found.drops, "No message was dropped.", 3, (drop) => {
    const meaning = element("td", drop.because);
    if (drop.settings) meaning.append(" ", element("span", `See ${drop.settings}`, { class: "aside" }));
    const reason = element("td");
    reason.append(element("code", drop.reason));
    return row(reason, element("td", number(drop.messages), { class: "number" }), meaning);
  });
}

// Fills a table anew, if what it shows has changed.
export function rows(body, entries, otherwise, columns, make) {
  const key = JSON.stringify(entries);
  if (body.dataset.shown === key) return;
  body.dataset.shown = key;
  const empty = element("td", otherwise, { class: "empty", colspan: columns });
  body.replaceChildren(...(entries.length ? entries.map(make) : [row(empty)]));
}

export function clientLink(id) {
  return element("a", id || "(no identifier)", { href: `${root}/ui/client?id=${encodeURIComponent(id)}` });
}

// The first two cells of a queue's row: its name and its state.
export function queueCells(queue) {
  const name = element("th", "", { scope: "row" });
  name.append(element("a", queue.name, { href: `${root}/ui/queue?name=${encodeURIComponent(queue.name)}` }));
  const isAlone = queue.depth && !queue.consumers && !queue.pushed;
  const [said, kind] = queue.paused ? ["paused", "warn"] : isAlone ? ["no consumer", "bad"] : ["running", "good"];
  const shown = element("td");
  shown.append(element("span", said, { class: `badge ${kind}` }));
  return [name, shown];
}

const lines = new WeakMap();

function begin(place) {
  const past = place.dataset.past;
  if (past === undefined) return { points: [], last: null, hasPast: false, room: POINTS, at: 0 };
  return { points: past ? past.split(",").map(Number) : [], last: null, hasPast: true, room: PAST, at: 0 };
}

const isDue = (line) => Date.now() - line.at >= EVERY_MS;

// A line with a past has a point for each ten seconds, and one for now; another has a point for each news.
function spark(place, value) {
  const line = lines.get(place) ?? begin(place);
  lines.set(place, line);
  if ("growth" in place.dataset) { // of a counter, what was added since the last point
    line.last ??= value;
    const added = Math.max(0, value - line.last);
    if (!line.hasPast || isDue(line)) line.last = value;
    value = added;
  }
  if (line.hasPast && line.points.length && !isDue(line)) line.points.pop();
  else line.at = Date.now();
  line.points.push(value);
  if (line.points.length > line.room) line.points.shift();
  const most = Math.max(...line.points, 1e-9);
  const room = Math.max(LEAST, line.points.length);
  const across = 100 / (room - 1);
  const start = room - line.points.length;
  const drawn = line.points.map((each, n) => `${((start + n) * across).toFixed(2)},${(34 - (32 * each) / most).toFixed(2)}`);
  if (!place.firstChild) {
    place.setAttribute("viewBox", "0 0 100 36");
    place.setAttribute("preserveAspectRatio", "none");
    for (const tag of ["polygon", "polyline"]) place.append(document.createElementNS("http://www.w3.org/2000/svg", tag));
  }
  place.children[0].setAttribute("points", `${(start * across).toFixed(2)},36 ${drawn.join(" ")} 100,36`);
  place.children[1].setAttribute("points", drawn.join(" "));
}

// Tells `each` what comes on a stream. A hidden page listens to nothing, so that it costs the broker nothing.
export function listen(address, each) {
  const state = document.getElementById("live-state");
  let source = null;
  const gone = document.getElementById("gone");
  let heard = new Date();
  const tell = (text, isLost) => {
    state.hidden = false;
    state.classList.toggle("lost", isLost);
    say(state, text);
    gone.hidden = !isLost;
    document.body.classList.toggle("is-gone", isLost);
    if (isLost) say(gone, `${text} What is below is from ${heard.toLocaleTimeString()}.`);
  };
  const open = () => {
    source = new EventSource(root + address);
    source.onopen = () => tell("Live", false);
    source.onmessage = (event) => {
      heard = new Date();
      each(JSON.parse(event.data));
    };
    source.onerror = () => tell("The broker does not answer; trying again …", true);
    source.addEventListener("end", (event) => {
      source.close();
      source = null;
      tell(JSON.parse(event.data), true);
      location.reload(); // shows what is wrong, or the form to log in
    });
  };
  const follow = () => {
    if (document.hidden) {
      source?.close();
      source = null;
    } else if (!source) open();
  };
  document.addEventListener("visibilitychange", follow);
  follow();
}
