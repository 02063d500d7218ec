// Keeps the list of queues up to date.

import { element, listen, queueCells, row, rows } from "./page.js";
import { number, seconds } from "./words.js";

const table = document.getElementById("queues");

if (!table.querySelector(".empty")) {
  listen(`/ui/queues/live?cursor=${encodeURIComponent(table.dataset.cursor)}`, (found) => {
    if (table.contains(document.activeElement)) return; // nobody's focus is taken away
    rows(table.tBodies[0], found.queues, "There are no queues.", 10, (queue) => {
      const [name, shown] = queueCells(queue);
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
