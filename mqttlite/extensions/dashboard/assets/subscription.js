// Subscribes over the gateway's route for that, as any program does, and lists the messages.

import { List } from "./lists.js";
import { element, say } from "./page.js";
import { root } from "./root.js";

const MOST = 200; // messages in the list
const SHOWN = 4000; // characters of a payload

// What a message of a stream shows: JSON as it was sent, text, and bytes in hexadecimal.
function textOf(data, message) {
  if (message.encoding === "text") return message.payload;
  if (message.encoding === "base64") {
    return Array.from(atob(message.payload), (each) => each.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
  }
  const start = data.indexOf(',"payload":') + ',"payload":'.length;
  return data.slice(start, data.lastIndexOf(`,"encoding":"json","qos":${message.qos},`));
}

// Subscribes to a filter over the gateway's own route. `tell` hears how it goes; the function that is returned ends it.
function subscribe(filter, each, tell) {
  const source = new EventSource(`${root}/events?filter=${encodeURIComponent(filter)}`);
  const take = (event) => {
    const message = JSON.parse(event.data);
    each({ ...message, text: textOf(event.data, message), at: message.timestamp.slice(11, 23) });
  };
  source.onopen = () => tell(`Subscribed to ${filter}.`);
  source.onerror = () => {
    const isOver = source.readyState === EventSource.CLOSED;
    tell(isOver ? `The broker refuses to subscribe to ${filter}.` : "The broker does not answer; trying again …");
  };
  source.addEventListener("message", take);
  source.addEventListener("presence", take);
  source.addEventListener("gap", () => tell(`Subscribed to ${filter}. Messages are missing: they came too fast.`));
  source.addEventListener("end", (event) => {
    source.close();
    tell(`The subscription ended: ${JSON.parse(event.data).reason}`);
  });
  return () => source.close();
}

const list = new List(document.getElementById("messages"), MOST);
const stop = document.getElementById("stop");
const subscribed = document.getElementById("subscribed");
let end = null;

function leave() {
  end?.();
  end = null;
  stop.disabled = true;
}

document.getElementById("subscribe-form").addEventListener("submit", (event) => {
  event.preventDefault();
  leave();
  const filter = new FormData(event.target).get("filter");
  stop.disabled = false;
  say(subscribed, `Subscribing to ${filter} …`);
  end = subscribe(filter, show, (text) => say(subscribed, text));
});

stop.addEventListener("click", () => {
  leave();
  say(subscribed, "Not subscribed.");
});

function show(message) {
  const entry = element("li");
  const head = element("div", "", { class: "head" });
  head.append(element("span", message.topic));
  const facts = [`QoS ${message.qos}`, ...(message.retain ? ["retained"] : []), message.encoding, message.at];
  head.append(element("span", facts.join(" · "), { class: "aside" }));
  entry.append(head, element("pre", message.text.slice(0, SHOWN)));
  list.add(entry);
}
