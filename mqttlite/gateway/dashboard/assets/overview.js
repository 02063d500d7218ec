import { clientLink, element, listen, row, rows, show } from "./page.js";
import { forms } from "./words.js";

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

listen("/ui/live?view=overview", (found) => {
  show(found);
  showAlarms(found.alarms);
  for (const table of document.querySelectorAll("[data-top]")) {
    const form = forms[table.dataset.form];
    rows(table.tBodies[0], found.top[table.dataset.top], "None.", 2, (client) => {
      const cell = element("td");
      cell.append(clientLink(client.client_id));
      return row(cell, element("td", form(client.value), { class: "number" }));
    });
  }
});
