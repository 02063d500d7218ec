import { List } from "./lists.js";
import { element, listen } from "./page.js";

const place = document.getElementById("lines");
const { filter, client } = place.dataset;
const list = new List(place, 500);
const question = client ? `client=${encodeURIComponent(client)}` : `filter=${encodeURIComponent(filter)}`;

listen(`/ui/trace/live?${question}`, (found) => {
  for (const sentence of found.sentences) {
    list.add(element("li", sentence, sentence.includes("dropped") ? { class: "bad" } : {}));
  }
});
