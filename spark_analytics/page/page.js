// Charts in the page's colours, and tables that sort by a click on a heading. The charts' figures are JSON in the page.
"use strict";

const PALETTE = ["#3b7fb5", "#e0913c", "#5a9e6f", "#c05a72", "#8b78bd", "#8a8f98", "#4bb0b5", "#b59a3b"];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function layout(figure) {
  const axis = { gridcolor: colour("--line"), linecolor: colour("--line"), zerolinecolor: colour("--line") };
  return Object.assign({ height: 340 }, figure.layout, {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: colour("--ink"), family: "system-ui, sans-serif", size: 12 },
    title: { text: figure.title, font: { size: 14 }, x: 0, xanchor: "left" },
    colorway: PALETTE,
    hovermode: "closest",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 1, xanchor: "right", traceorder: "normal" },
    margin: { l: 60, r: 20, t: 50, b: 50 },
    xaxis: Object.assign({}, figure.layout.xaxis, axis),
    yaxis: Object.assign({}, figure.layout.yaxis, axis),
  });
}

function draw() {
  for (const place of document.querySelectorAll(".chart")) {
    const figure = JSON.parse(document.getElementById(place.dataset.figure).textContent);
    Plotly.react(place, figure.data, layout(figure), { responsive: true, displayModeBar: false });
  }
}

function value(row, column) {
  const cell = row.cells[column];
  return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent;
}

function sort(heading) {
  const table = heading.closest("table");
  const down = heading.getAttribute("aria-sort") !== "descending" && heading.classList.contains("number")
    || heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const column = heading.cellIndex;
  const rows = Array.from(table.tBodies[0].rows);
  rows.sort((left, right) => {
    const a = value(left, column), b = value(right, column);
    if (a === "" || b === "") return (a === "") - (b === "");
    const order = typeof a === "number" ? a - b : a.localeCompare(b);
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

for (const heading of document.querySelectorAll("th")) {
  heading.tabIndex = 0;
  heading.addEventListener("click", () => sort(heading));
  heading.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(heading); });
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
draw();
