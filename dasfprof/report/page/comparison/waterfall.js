// The waterfall: from the seconds of one side to those of the other, part by part.

import { make } from "../dom.js";
import { counted, formatSeconds, shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";

const MOST_PARTS = 12;
/** Threshold (fraction of all changes): smaller parts are combined. */
const SMALLEST_PART = 0.005;
/** Space next to the differences, as a fraction of their length. */
const ROOM = 0.06;

/** Fills a table of class `waterfall`. The sum of its lines is the total difference. */
export function showWaterfall(table, rows, name) {
  const sums = (label) => sumOf(rows.map((row) => row[label]));
  const [before, after] = [sums("Before (s)"), sums("After (s)")];
  const lines = linesOf(rows, name);
  const ends = [before, after];
  let at = before;
  for (const line of lines) {
    line.from = at;
    at += line.seconds;
    line.to = at;
    ends.push(at);
  }
  const scale = scaleOf(ends);
  const total = (title, seconds) =>
    waterfallLine({ title, about: "", from: scale.low, to: seconds, seconds, kind: "whole" }, scale);
  const parts = lines.map((line) => waterfallLine(line, scale));
  table.replaceChildren(total("Before", before), ...parts, total("After", after));
  table.dataset.low = String(scale.low);
  return scale.low;
}

/** Returns the parts that differ, the largest first, and the sum of all smaller parts. */
function linesOf(rows, name) {
  const parts = rows.filter((row) => row["Difference (s)"] !== 0);
  const smallest = SMALLEST_PART * sumOf(parts.map((row) => Math.abs(row["Difference (s)"])));
  const large = parts.filter((row) => Math.abs(row["Difference (s)"]) >= smallest);
  const shown = large.slice(0, MOST_PARTS);
  const lines = shown.map((row) => ({
    title: row[name],
    about: row.Class,
    hint: row.Meaning,
    seconds: row["Difference (s)"],
  }));
  const others = parts.slice(shown.length).map((row) => row["Difference (s)"]);
  if (others.length) lines.push({ title: counted(others.length, "smaller part"), about: "", seconds: sumOf(others) });
  for (const line of lines) line.kind = line.seconds < 0 ? "less" : "more";
  return lines;
}

/** Returns the bounds of the chart. It starts at 0, unless the differences would be too small to see. */
function scaleOf(ends) {
  const [lowest, highest] = [Math.min(...ends), Math.max(...ends)];
  const room = Math.max(highest - lowest, highest * 0.02) * ROOM;
  const low = lowest - 4 * room > 0 && highest - lowest < lowest / 2 ? lowest - 4 * room : 0;
  return { low: Math.min(low, lowest), high: highest + room || 1 };
}

function waterfallLine({ title, about, hint = "", from, to, seconds, kind }, { low, high }) {
  const bar = make("div", { class: `part ${kind}` });
  const share = (value) => ((value - low) / (high - low)) * 100;
  bar.style.left = `${share(Math.min(from, to))}%`;
  bar.style.width = `${Math.abs(share(to) - share(from))}%`;
  const sign = kind === "more" ? "+" : "";
  const text = `${sign}${formatSeconds(seconds)}`;
  return make(
    "tr",
    { class: kind },
    make("th", { scope: "row", title: visible(hint) }, shortened(title, 60), make("small", {}, ` ${visible(about)}`)),
    make("td", { class: "number", title: String(seconds) }, text),
    make("td", { class: "track", "aria-hidden": "true" }, bar),
  );
}
