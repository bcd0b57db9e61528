// The panel of a time between task runs that was clicked: its classes, and what the client did meanwhile.

import { swatch } from "../accounting.js";
import { closeButton, make } from "../dom.js";
import { lineList, placeOfLine } from "../flame/sources.js";
import { counted, formatCell, formatSeconds, visible } from "../format.js";
import { explained } from "../words.js";
import { classesOf } from "./tip.js";

/** The calls and lines that are listed, the longest. */
const [GAP_CALLS, GAP_LINES] = [12, 12];

/** Fills the panel; `gap`: see `Gaps.told`. `close()` is asked to. */
export function showGap(panel, { gap, gaps, tasks, client, close }) {
  const { from, to, lane, title, sums } = gap;
  const { worker, thread } = tasks.trackTitle(lane);
  const facts = [
    ["Worker", visible(worker)],
    ["Thread", thread],
    ["From", `${formatCell(from, 3)} s after the begin`],
    ["Until", `${formatCell(to, 3)} s`],
  ];
  const list = make("dl");
  for (const [name, text] of facts) list.append(make("dt", {}, name), make("dd", {}, text));
  const head = make("header", {}, make("h3", {}, title), closeButton(close));
  const parts = [list, ...classList(gaps, sums), ...clientParts(client, from, to)];
  panel.replaceChildren(head, make("div", { class: "parts" }, ...parts));
  panel.hidden = false;
  panel.scrollTop = 0;
}

function classList(gaps, sums) {
  const items = classesOf(sums).map((code) => {
    const { meaning, helps } = gaps.swatches[code];
    const name = make("b", {}, visible(gaps.names[code]));
    const told = ` ${formatSeconds(sums[code])}: ${explained(meaning, helps)}`;
    return make("li", {}, swatch(gaps.swatches[code]), name, told);
  });
  const none = "Nothing is known of this time: no file tells that the worker was there.";
  const shown = items.length ? make("ul", { class: "gap-classes" }, ...items) : make("p", { class: "absent" }, none);
  return [make("h4", {}, "What this time was"), shown];
}

/** What the client called, and where samples found it. */
function clientParts(client, from, to) {
  const parts = [make("h4", {}, "Client calls")];
  const calls = client.callsWithin(from, to);
  const more = (count) => (count > 0 ? [make("li", {}, `and ${counted(count, "more call")}`)] : []);
  const listed = calls.slice(0, GAP_CALLS).map((call) => make("li", {}, ...callWords(call)));
  if (listed.length) parts.push(make("ul", { class: "client-calls" }, ...listed, ...more(calls.length - GAP_CALLS)));
  else parts.push(absence(noCalls(client, from, to)));
  parts.push(make("h4", {}, "The client's lines"));
  const lines = client.linesWithin(from, to);
  if (!lines.length) return [...parts, absence(noLines(client, from, to))];
  return [...parts, lineList(lines.slice(0, GAP_LINES))];
}

function callWords({ kind, place, seconds, count, whole, main }) {
  const several = count > 1;
  const time = several ? `up to ${formatSeconds(seconds)}` : formatSeconds(seconds);
  const part = seconds < whole * 0.999 ? ` of its ${formatSeconds(whole)}` : "";
  const about = several ? `, ${counted(count, "call")} in a row` : part;
  const where = `${place.file ? placeOfLine(place) : "line unknown"}${main ? "" : ", in another thread"}`;
  return [make("b", {}, visible(kind)), ` ${time}${about} `, make("small", { title: visible(place.file) }, where)];
}

/** Why no call is listed. */
function noCalls(client, from, to) {
  const { called, left } = client.facts;
  if (called === null) return "What it calls was not recorded in this run.";
  if (!client.knows("called", from, to)) return "What it calls was not recorded at this time.";
  return left[0]
    ? `None of the calls of this page, which are the longest: ${counted(left[0], "briefer one")} may be of this time.`
    : "No call of Dask: it ran code of its own, or nothing.";
}

/** Why no line is listed. */
function noLines(client, from, to) {
  if (client.facts.sampled === null) return "Its stack was not sampled in this run.";
  if (!client.knows("sampled", from, to)) return "Its stack was not sampled at this time.";
  return "No sample of its stack is of this time, which may be too short for one.";
}

function absence(text) {
  return make("p", { class: "absent" }, text);
}
