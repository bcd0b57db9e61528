// Who received how many bytes from whom: a table whose cells are the darker the more that was.

import { make } from "../dom.js";
import { formatBytes, shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";

/** Up to so many workers cells tell their bytes; of more they are pictures, which the pointer reads. */
const TOLD_WORKERS = 8;
/** The share of the accent in the darkest cell: text stays readable on it. */
const DARKEST = 40;

/** The figure of the bytes between workers, from link_data.py; null: nothing was moved, or by one alone. */
export function movedFigure({ workers, sizes, left }) {
  const most = Math.max(0, ...sizes.flat());
  if (workers.length < 2 || !most) return null;
  const told = workers.length <= TOLD_WORKERS;
  const names = workers.map((name) => shortened(name, told ? 18 : 10));
  const columns = [...names, "sent"].map((name) => headOf(name, "col"));
  const head = make("tr", {}, make("td", {}, "from ↓ to →"), ...columns);
  const rows = sizes.map((row, from) => {
    const cells = row.map((size, to) => cell(size, most, told, `${workers[from]} to ${workers[to]}`));
    return make("tr", {}, headOf(names[from], "row"), ...cells, make("td", {}, formatBytes(sumOf(row))));
  });
  const received = workers.map((_, to) => make("td", {}, formatBytes(sumOf(sizes.map((row) => row[to])))));
  const foot = make("tr", {}, headOf("received", "row"), ...received, make("td", {}));
  const all = formatBytes(sumOf(sizes.flat()));
  const more = left > 0 ? `; ${formatBytes(left)} more from or to others` : "";
  const caption = `Bytes between workers: ${all} of task results${more}. P2P shuffles are not in it.`;
  const table = make("table", { class: "matrix" }, make("caption", {}, caption), head, ...rows, foot);
  const about = { tabindex: "0", role: "region", "aria-label": "Bytes between workers" };
  return make("div", { class: "picture matrix-box", ...about }, table);
}

/** Shows the figures that there are, and their section. */
export function showPictures(root, figures) {
  const shown = figures.filter(Boolean);
  root.append(...shown);
  root.closest("section").hidden = !shown.length;
}

function headOf(name, scope) {
  return make("th", { scope, title: visible(name) }, name);
}

function cell(size, most, told, who) {
  const text = size ? formatBytes(size) : "";
  const shown = told || !size ? text : make("span", { class: "unseen" }, text);
  const element = make("td", { title: visible(`${who}: ${formatBytes(size)}`) }, shown);
  if (size) element.style.backgroundColor = `color-mix(in srgb, var(--accent) ${shadeOf(size / most)}%, var(--card))`;
  return element;
}

/** Small shares are seen too. */
function shadeOf(share) {
  return Math.round(4 + (DARKEST - 4) * Math.sqrt(share));
}
