// Shows on the tree what comes on its topics, and how much.

import { element, listen, row, say } from "./page.js";
import { root } from "./root.js";
import { number } from "./words.js";

const MOST = 500; // levels of the table: further ones are not added
const LOOKS = 10; // that a rate is the average of, a second each

const tree = document.getElementById("tree");
const body = tree.tBodies[0];
const isFirst = !("below" in tree.dataset);
const prefix = isFirst ? "" : `${tree.dataset.below}/`;
const levels = new Map();

for (const line of body.querySelectorAll("[data-level]")) {
  levels.set(line.dataset.level, { line, counts: [], hasBelow: line.dataset.has === "below" });
}

function link(level, name) {
  const page = level.hasBelow ? "topics?below=" : "topic?name=";
  const address = `${root}/ui/${page}${encodeURIComponent(prefix + name)}`;
  const text = `${name || "(empty)"}${level.hasBelow ? "/" : ""}`;
  level.line.cells[0].replaceChildren(element("a", text, { href: address }));
}

function added(name) {
  const line = row(
    element("th", "", { scope: "row" }),
    element("td", "", { class: "value" }),
    element("td", "", { class: "number rate" }),
    element("td", "", { class: "number" }),
  );
  line.dataset.level = name;
  body.querySelector(".placeholder")?.remove();
  body.insertBefore(line, [...body.rows].find((each) => each.dataset.level > name) ?? null);
  const level = { line, counts: [], hasBelow: false };
  link(level, name);
  levels.set(name, level);
  return level;
}

const question = isFirst ? "" : `&below=${encodeURIComponent(tree.dataset.below)}`;

listen(`/ui/topics/live?view=tree${question}`, (found) => {
  for (const each of found.levels) {
    const level = levels.get(each.name) ?? (levels.size < MOST ? added(each.name) : null);
    if (!level) continue;
    level.now = each.messages;
    if (each.has_below && !level.hasBelow) {
      level.hasBelow = true;
      link(level, each.name);
    }
    if (each.value !== null) {
      const address = `${root}/ui/topic?name=${encodeURIComponent(prefix + each.name)}`;
      level.line.cells[1].replaceChildren(element("a", each.value, { href: address }));
    }
  }
  for (const level of levels.values()) {
    level.counts.push(level.now ?? 0);
    level.now = 0;
    if (level.counts.length > LOOKS) level.counts.shift();
    const sum = level.counts.reduce((one, other) => one + other, 0);
    say(level.line.querySelector(".rate"), sum ? number(sum / level.counts.length) : "");
  }
});
