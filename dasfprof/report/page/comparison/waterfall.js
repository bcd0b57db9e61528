// From the seconds of one side to those of the other, part by part.

import { make } from "../dom.js";
import { counted, formatSeconds, shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";

const MOST_PARTS = 12;
/** Parts of a smaller share of all that changed are put together. */
const LEAST_PART = 0.005;
/** Of the length of the differences, what is left free beside them. */
const ROOM = 0.06;

/** Fills a table of class `waterfall`; its lines sum to the whole difference. */
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
  const whole = (title, seconds) =>
    waterfallLine({ title, about: "", from: scale.low, to: seconds, seconds, kind: "whole" }, scale);
  table.replaceChildren(
    whole("Before", before),
    ...lines.map((line) => waterfallLine(line, scale)),
    whole("After", after),
  );
  table.dataset.low = String(scale.low);
  return scale.low;
}

/** The parts that differ, the largest first, and what the rest makes together. */
function linesOf(rows, name) {
  const parts = rows.filter((row) => row["Difference (s)"] !== 0);
  const least = LEAST_PART * sumOf(parts.map((row) => Math.abs(row["Difference (s)"])));
  const large = parts.filter((row) => Math.abs(row["Difference (s)"]) >= least);
  const shown = large.slice(0, MOST_PARTS);
  const lines = shown.map((row) => ({
    title: row[name],
    about: row.Class,
    hint: row.Meaning,
    seconds: row["Difference (s)"],
  }));
  const rest = parts.slice(shown.length);
  if (rest.length)
    lines.push({
      title: counted(rest.length, "smaller part"),
      about: "",
      seconds: sumOf(rest.map((row) => row["Difference (s)"])),
    });
  for (const line of lines) line.kind = line.seconds < 0 ? "less" : "more";
  return lines;
}

/** The chart begins at 0 unless the differences would be too small to be seen. */
function scaleOf(ends) {
  const [least, most] = [Math.min(...ends), Math.max(...ends)];
  const room = Math.max(most - least, most * 0.02) * ROOM;
  const low = least - 4 * room > 0 && most - least < least / 2 ? least - 4 * room : 0;
  return { low: Math.min(low, least), high: most + room || 1 };
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
