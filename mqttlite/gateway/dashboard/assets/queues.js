// Keeps the list of queues up to date.

import { element, listen, row, rows } from "./page.js";
import { number, seconds } from "./words.js";

const table = document.getElementById("queues");

function state(queue) {
  if (queue.paused) return ["paused", "warn"];
  return queue.depth && !queue.consumers && !queue.pushed ? ["no consumer", "bad"] : ["running", "good"];
}

if (!table.querySelector(".empty")) {
  listen(`/ui/queues/live?cursor=${encodeURIComponent(table.dataset.cursor)}`, (found) => {
    if (table.contains(document.activeElement)) return; // nobody's focus is taken away
    rows(table.tBodies[0], found.queues, "There are no queues.", 10, (queue) => {
      const name = element("th", "", { scope: "row" });
      name.append(element("a", queue.name, { href: `/ui/queue?name=${encodeURIComponent(queue.name)}` }));
      const [said, kind] = state(queue);
      const shown = element("td");
      shown.append(element("span", said, { class: `badge ${kind}` }));
      const figures = [
        number(queue.depth),
        queue.depth ? seconds(queue.oldest_age_s) : "–",
        ...[queue.leased, queue.scheduled, queue.attempts, queue.consumers, queue.dead_letters].map(number),
      ];
      const cells = figures.map((each) => element("td", each, { class: "number" }));
      return row(name, shown, ...cells, element("td", queue.filters.join(" ")));
    });
  });
}
