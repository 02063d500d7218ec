// Keeps the figures of one queue up to date.

import { element, listen, show } from "./page.js";

const { queue, at } = document.querySelector("[data-queue]").dataset;
const state = document.getElementById("state");

listen(`/ui/queue/live?name=${encodeURIComponent(queue)}${at}`, (found) => {
  show(found);
  const [text, kind] = found.leaving
    ? ["its messages move to another node", "warn"]
    : found.paused
    ? ["paused", "warn"]
    : found.depth && !found.consumers && !found.push
      ? ["messages wait, and there is no consumer", "bad"]
      : ["running", "good"];
  if (state.textContent !== text) state.replaceChildren(element("span", text, { class: `badge ${kind}` }));
});
