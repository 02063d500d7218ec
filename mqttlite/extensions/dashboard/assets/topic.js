// Shows the last message of a topic, and how many come.

import { listen, say } from "./page.js";
import { number } from "./words.js";

const LOOKS = 10; // that the rate is the average of, a second each

const topic = document.querySelector("[data-topic]").dataset.topic;
const last = document.getElementById("last");
const rate = document.getElementById("rate");
const counts = [];

if (last) {
  listen(`/ui/topic/live?name=${encodeURIComponent(topic)}`, (found) => {
    if (found.value !== null) say(last, found.value);
    counts.push(found.messages);
    if (counts.length > LOOKS) counts.shift();
    say(rate, number(counts.reduce((one, other) => one + other, 0) / counts.length));
  });
}
