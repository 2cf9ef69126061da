// Values of records: JSON folds at its objects and lists, and each text has a button that copies it. A value is prepared when its record is
// opened: a page has hundreds.
"use strict";
const LINES_MAX = 3000;

// Copying needs a page that was served by https or by this machine; elsewhere the old command does it.
async function copy(text) {
  if (navigator.clipboard) { await navigator.clipboard.writeText(text); return; }
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

function addCopy(place, text) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.setAttribute("aria-live", "polite");
  button.addEventListener("click", async () => {
    try { await copy(text); button.textContent = "Copied"; } catch { button.textContent = "Not allowed"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  place.append(button);
}

// A line that ends with { or [ folds, with what lies deeper behind it, up to the line that closes it.
function addFolds(pre, lines) {
  const depth = (line) => line.length - line.trimStart().length;
  const rows = lines.map((line) => Object.assign(document.createElement("span"), { className: "line", textContent: line }));
  const ends = new Map(); // the line of the end of each block, by that of its beginning
  const closed = new Set();
  const open = [];
  lines.forEach((line, at) => {
    while (open.length && depth(line) <= depth(lines[open.at(-1)])) ends.set(open.pop(), at);
    if (/[{[]$/.test(line)) open.push(at);
  });
  for (const at of open) ends.set(at, lines.length);
  const draw = () => {
    let hiddenTo = 0;
    rows.forEach((row, at) => {
      row.hidden = at < hiddenTo;
      row.classList.toggle("closed", closed.has(at));
      if (!row.hidden && closed.has(at)) hiddenTo = ends.get(at);
    });
  };
  for (const [at, end] of ends) {
    if (end <= at + 1) continue;
    const button = Object.assign(document.createElement("button"), { type: "button", className: "fold", textContent: "\u25be" });
    button.setAttribute("aria-label", `lines ${at + 2} to ${end}`);
    button.setAttribute("aria-expanded", "true");
    button.addEventListener("click", () => {
      const isOpen = closed.delete(at) || !closed.add(at);
      button.setAttribute("aria-expanded", String(isOpen));
      button.textContent = isOpen ? "\u25be" : "\u25b8";
      draw();
    });
    rows[at].prepend(button);
  }
  pre.classList.add("tree");
  pre.replaceChildren(...rows);
}

function prepare(place) {
  if (place.dataset.ready) return;
  place.dataset.ready = "1";
  const pre = place.querySelector("pre");
  const text = pre.textContent;
  const lines = text.split("\n");
  if (/^[{[]/.test(text) && lines.length > 2 && lines.length <= LINES_MAX) addFolds(pre, lines);
  addCopy(place, text);
}

document.addEventListener("toggle", (event) => {
  if (event.target.matches?.("details.record[open]")) event.target.querySelectorAll(".text").forEach(prepare);
}, true);
for (const place of document.querySelectorAll(".text")) if (!place.closest("details.record")) prepare(place);
