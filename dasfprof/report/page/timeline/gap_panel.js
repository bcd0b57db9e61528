// The panel of a selected time between task runs: its categories, and what the client did.

import { absence, closeButton, definitions, make } from "../dom.js";
import { lineList, placeOfLine } from "../flame/sources.js";
import { counted, formatCell, formatSeconds, visible } from "../format.js";
import { explained } from "../words.js";
import { categoryLines } from "./tip.js";

/** Maximum number of calls and of lines. */
const [GAP_CALLS, GAP_LINES] = [12, 12];

/** Fills the panel with a time, see `Gaps.at`. The close button calls `close()`. */
export function showGap(panel, { gap, gaps, tasks, client, close }) {
  const { from, to, lane, title, sums } = gap;
  const { worker, thread } = tasks.trackTitle(lane);
  const facts = definitions([
    ["Worker", visible(worker)],
    ["Thread", thread],
    ["Start", `${formatCell(from, 3)} s`],
    ["End", `${formatCell(to, 3)} s`],
  ]);
  const lines = categoryLines(gaps, sums, Infinity, (category) => explained(category.meaning, category.helps));
  const categories = make("ul", { class: "gap-classes" }, ...lines.map((line) => make("li", {}, line)));
  const head = make("header", {}, make("h3", {}, title), closeButton(close));
  const parts = [facts, make("h4", {}, "Thread time"), categories, ...clientParts(client, from, to)];
  panel.replaceChildren(head, make("div", { class: "parts" }, ...parts));
  panel.hidden = false;
  panel.scrollTop = 0;
}

/** Returns the calls of the client, and its sampled lines. */
function clientParts(client, from, to) {
  const parts = [make("h4", {}, "Client calls")];
  const calls = client.callsWithin(from, to);
  const more = (count) => (count > 0 ? [make("li", {}, `and ${counted(count, "more call")}`)] : []);
  const listed = calls.slice(0, GAP_CALLS).map((call) => make("li", {}, ...callWords(call)));
  if (listed.length) parts.push(make("ul", { class: "client-calls" }, ...listed, ...more(calls.length - GAP_CALLS)));
  else parts.push(absence(noCalls(client, from, to)));
  parts.push(make("h4", {}, "Client lines"));
  const lines = client.linesWithin(from, to);
  if (!lines.length) return [...parts, absence(noLines(client, from, to))];
  return [...parts, lineList(lines.slice(0, GAP_LINES))];
}

function callWords({ kind, place, seconds, count, total, main }) {
  const several = count > 1;
  const time = several ? `up to ${formatSeconds(seconds)}` : formatSeconds(seconds);
  const part = seconds < total * 0.999 ? ` of ${formatSeconds(total)}` : "";
  const about = several ? `, ${counted(count, "call")} in a row` : part;
  const where = `${place.file ? placeOfLine(place) : "line unknown"}${main ? "" : ", in another thread"}`;
  return [make("b", {}, visible(kind)), ` ${time}${about} `, make("small", { title: visible(place.file) }, where)];
}

/** Returns why no calls are listed. */
function noCalls(client, from, to) {
  const { called, left } = client.facts;
  if (called === null) return "Client calls were not recorded in this run.";
  if (!client.knows("called", from, to)) return "Client calls were not recorded at this time.";
  return left[0]
    ? `None of the calls in this report. It has the longest calls, without ${counted(left[0], "shorter call")}.`
    : "None. The client ran code other than Dask's, or was idle.";
}

/** Returns why no lines are listed. */
function noLines(client, from, to) {
  if (client.facts.sampled === null) return "The client's stack was not sampled in this run.";
  if (!client.knows("sampled", from, to)) return "The client's stack was not sampled at this time.";
  return "There is no sample of the client's stack. The time may be too short.";
}
