// Thread time by category: a bar for the cluster and for each worker.

import { rowsOf } from "./data.js";
import { absence, make } from "./dom.js";
import { formatSeconds, formatShare, shortened, visible } from "./format.js";
import { fitting, sumOf } from "./numbers.js";
import { explained } from "./words.js";

const MAX_BARS = 24;

/** Fills the section. Categories of busy threads are solid, those of idle threads hatched. */
export function showAccounting(root, { cluster, workers }, classes) {
  const all = rowsOf(cluster);
  if (!all.length) {
    root.append(absence("No worker threads were recorded."));
    return;
  }
  const swatches = swatchesOf(classes);
  const bars = make("div", { class: "bars" });
  addBar(bars, "All threads", all, swatches);
  const byWorker = Map.groupBy(rowsOf(workers), (row) => `${row.Host}\0${row.Worker}`);
  if (byWorker.size > 1) {
    const busy = (rows) => sumOf(rows.map((row) => (row.Busy ? row["Share (%)"] : 0)));
    const { compare } = new Intl.Collator("en", { numeric: true });
    const inOrder = [...byWorker].sort(([one], [other]) => compare(one, other)).map(([, rows]) => rows);
    for (const rows of fitting(inOrder, busy, MAX_BARS))
      addBar(bars, rows[0].Worker, rows, swatches);
  }
  const more = `${byWorker.size - MAX_BARS} other workers are closer to the median`;
  if (byWorker.size > MAX_BARS) bars.append(absence(more));
  const caption = make("caption", {}, "Thread time by category, from the start of each worker to its end");
  const lines = all.map((row) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, swatch(swatches.get(row.Class)), visible(row.Class)),
      make("td", { class: "number" }, formatSeconds(row["Thread Time (s)"])),
      make("td", { class: "number" }, shareOf(row)),
      make("td", { class: "meaning" }, explained(row.Meaning, swatches.get(row.Class).helps)),
    ),
  );
  root.append(bars, make("table", { class: "classes" }, caption, ...lines));
}

function swatchesOf(classes) {
  return new Map(classes.map((category) => [category.name, category]));
}

export function swatch({ colour, busy, back }, tag = "i") {
  const element = make(tag, { class: busy ? "busy" : back ? "idle back" : "idle" });
  element.style.backgroundColor = `var(--series-${colour})`;
  return element;
}

function addBar(bars, title, rows, swatches) {
  const bar = make("div", { class: "stack" });
  fillBar(bar, title, rows, swatches);
  bars.append(make("span", {}, shortened(title, 24)), bar);
}

function fillBar(bar, title, rows, swatches) {
  bar.setAttribute("role", "img");
  const shares = rows.map((row) => `${row.Class} ${shareOf(row)}`).join(", ");
  bar.setAttribute("aria-label", `${visible(title)}: ${shares}`);
  for (const row of rows) {
    const part = swatch(swatches.get(row.Class), "div");
    part.style.width = `${row["Share (%)"]}%`;
    part.title = `${row.Class}: ${formatSeconds(row["Thread Time (s)"])}, ${shareOf(row)}`;
    bar.append(part);
  }
}

/** Returns the address of the timeline with only one category. */
function classLink(name) {
  return `#${new URLSearchParams({ view: "flatten", class: name })}`;
}

function shareOf(row) {
  return formatShare(row["Share (%)"] / 100);
}

/** Fills a bar with all thread time, and lists its categories of at least 1 %. */
export function showClasses(bar, names, cluster, classes) {
  const rows = rowsOf(cluster);
  const swatches = swatchesOf(classes);
  fillBar(bar, "All threads", rows, swatches);
  for (const [at, part] of [...bar.children].entries())
    part.addEventListener("click", () => (location.hash = classLink(rows[at].Class)));
  bar.hidden = names.hidden = !rows.length;
  const named = rows.filter((row) => row["Share (%)"] >= 1);
  for (const row of named) {
    const text = `${visible(row.Class)} ${shareOf(row)}`;
    const about = { href: classLink(row.Class), title: explained(row.Meaning, swatches.get(row.Class).helps) };
    names.append(make("li", {}, make("a", about, swatch(swatches.get(row.Class)), text)));
  }
  if (named.length < rows.length)
    names.append(make("li", {}, `${rows.length - named.length} more under 1 % each`));
}
