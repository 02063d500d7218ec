import { clientLink, element, listen, queueCells, row, rows, say, show } from "./page.js";
import { forms, number, seconds } from "./words.js";

const alarms = document.getElementById("alarms");

function showAlarms(found) {
  const key = JSON.stringify(found);
  if (alarms.dataset.shown === key || (!found.length && !alarms.querySelector(".bad"))) return;
  alarms.dataset.shown = key;
  alarms.replaceChildren(
    ...found.map((alarm) => {
      const said = element("p", "", { class: "notice bad" });
      said.append(element("strong", alarm.title), " ", alarm.detail);
      return said;
    }),
  );
  if (!found.length) alarms.append(element("p", "No alarm is active.", { class: "notice good" }));
}

function showOverload(found) {
  document.getElementById("overload").hidden = !found.stage;
  say(document.getElementById("stage"), found.said);
  say(document.getElementById("done"), found.done);
  say(document.getElementById("overload-stage"), found.said);
}

function showQueues(queues) {
  rows(document.getElementById("queue-table").tBodies[0], queues, "There are no queues.", 6, (queue) => {
    const figures = [
      number(queue.depth),
      queue.depth ? seconds(queue.oldest_age_s) : "–",
      number(queue.consumers),
      number(queue.dead_letters),
    ];
    return row(...queueCells(queue), ...figures.map((each) => element("td", each, { class: "number" })));
  });
}

listen("/ui/live?view=overview", (found) => {
  show(found);
  showAlarms(found.alarms);
  showOverload(found.overload);
  if (found.queues) showQueues(found.queues);
  for (const table of document.querySelectorAll("[data-top]")) {
    const form = forms[table.dataset.form];
    rows(table.tBodies[0], found.top[table.dataset.top], "None.", 2, (client) => {
      const cell = element("td");
      cell.append(clientLink(client.client_id));
      return row(cell, element("td", form(client.value), { class: "number" }));
    });
  }
});
