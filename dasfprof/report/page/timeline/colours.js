// Which colour each task run has, and what the colours are of.

import { swatch } from "../accounting.js";
import { make } from "../dom.js";
import { formatCount, formatSeconds, shortened, visible } from "../format.js";
import { outliersFirst } from "../numbers.js";
import { explained, statusTitle } from "../words.js";
import { BLOCKED, COMPUTING, CORE_WAIT, CPU_UNKNOWN, DESERIALIZE, STORAGE } from "./gaps.js";
import { busySeconds } from "./lanes.js";
import { OTHER } from "./palette.js";
import { pathTotals, WORK } from "./path.js";

/** States of task runs by what they mean; any other is grey. */
const STATE_COLOURS = { memory: 2, erred: 5, cancelled: 1, rescheduled: 3, released: 4 };

/** Durations in powers of ten, from cold to hot colours. */
const DURATIONS = [
  { below: 1e-3, name: "under 1 ms", colour: 7 },
  { below: 1e-2, name: "1 to 10 ms", colour: 4 },
  { below: 0.1, name: "10 to 100 ms", colour: 0 },
  { below: 1, name: "100 ms to 1 s", colour: 2 },
  { below: 10, name: "1 to 10 s", colour: 6 },
  { below: 100, name: "10 to 100 s", colour: 1 },
  { below: Infinity, name: "100 s and more", colour: 5 },
];

/** What a task run spent its time on. */
export const STATUS_COLOURS = { Inqueue: 6, Preparing: 1, Running: 0, Finalizing: 3 };

/** By what the first have colours of their own, and all others one. */
const RANKED = ["function", "worker"];

function seriesSwatch(colour) {
  const square = make("i");
  square.style.background = `var(--series-${colour})`;
  return square;
}

export function statusLegend(facts) {
  return facts.statuses.map((name) => {
    const about = { title: statusTitle(facts, name) };
    return make("li", about, seriesSwatch(STATUS_COLOURS[name] ?? OTHER), visible(name));
  });
}

/** Values with a colour that is told; more of them share one, or repeat colours. */
const MAX_LEGEND = 7;
/** What a legend calls all others, and what failed: no name of a task or worker. */
const [REST, FAILURES] = ["*", "!"];

/** The place in the palette of each value that tasks are coloured by, and its name. */
function coloured(tasks, by) {
  const listed = (names, colour) => names.map((name, code) => ({ name, colour: colour(name, code), code }));
  const { workers, statuses, states, steps, functions } = tasks.facts;
  if (by === "worker") {
    const busy = busySeconds(tasks);
    const places = [...workers.keys()];
    const order = places.length > OTHER ? outliersFirst(places, (at) => busy[at]) : places;
    return order.map((code, rank) => ({ name: workers[code], colour: Math.min(rank, OTHER), code }));
  }
  if (by === "status") return listed([...statuses, "unknown"], (name) => STATUS_COLOURS[name] ?? OTHER);
  if (by === "class") {
    const { names, swatches } = tasks.gaps;
    return [COMPUTING, CORE_WAIT, STORAGE, BLOCKED, CPU_UNKNOWN].map((code) => ({
      name: names[code],
      colour: swatches[code].colour,
      code,
    }));
  }
  if (by === "duration") return DURATIONS.map(({ name, colour }, code) => ({ name, colour, code }));
  if (by === "state") return listed([...states, "unknown"], (name) => STATE_COLOURS[name] ?? OTHER);
  if (by === "step") return listed(steps, (_, at) => (at === steps.length - 1 ? OTHER : at % OTHER));
  return tasks.functionsByTime.map((code, rank) => ({
    name: functions[code],
    colour: Math.min(rank, OTHER),
    code,
    seconds: tasks.secondsOfFunction[code],
  }));
}

/** Gives what tells the place in the palette of a function by its name. */
export function functionColours(tasks) {
  let known = null;
  return (name) => {
    known ??= new Map(coloured(tasks, "function").map((one) => [one.name, one.colour]));
    return known.get(name) ?? OTHER;
  };
}

/** The entries of the legend, with the `codes` that each stands for. */
export function legendOf(tasks, by) {
  const all = coloured(tasks, by);
  const shown = all.filter(({ colour }) => colour !== OTHER || !RANKED.includes(by)).slice(0, MAX_LEGEND);
  const rest = all.filter((entry) => !shown.includes(entry));
  const entries = shown.map(({ name, colour, code, seconds }) => ({
    name,
    swatch: seriesSwatch(colour),
    text: shortened(name, 28),
    about: seconds === undefined ? "" : formatSeconds(seconds),
    codes: [code],
  }));
  if (rest.length) {
    const alike = RANKED.includes(by);
    const text = alike ? `${rest.length} others` : `and ${rest.length} more, colours repeat`;
    entries.push({ name: REST, swatch: alike ? seriesSwatch(OTHER) : "", text, codes: rest.map(({ code }) => code) });
  }
  if (tasks.failed) {
    const count = tasks.failed.reduce((sum, flag) => sum + flag, 0);
    const about = formatCount(count);
    entries.push({ name: FAILURES, swatch: make("i", { class: "failed" }), text: "failed", about, codes: [] });
  }
  return entries;
}

/** Whether a row is one of those that entries of the legend stand for. */
export function rowsOfEntries(tasks, by, entries) {
  const codes = new Set(entries.flatMap((entry) => entry.codes));
  const failed = tasks.failed && entries.some(({ name }) => name === FAILURES);
  const code = codeOf(tasks, by);
  return (row) => codes.has(code(row)) || (failed && tasks.failed[row] === 1);
}

/** The value that a task is coloured by: what `coloured` calls its code. */
export function codeOf(tasks, by) {
  if (by === "worker") return (row) => tasks.tracks[tasks.trackOfRow[row]].worker;
  if (by === "status") return (row) => tasks.longestStatus(row);
  if (by === "class") {
    return (row) => {
      const split = tasks.gaps.split(row);
      return split.indexOf(Math.max(...split));
    };
  }
  if (by === "duration") {
    return (row) => DURATIONS.findIndex(({ below }) => tasks.durations[row] < below);
  }
  if (by === "step") return (row) => tasks.steps[row];
  if (by === "line") return (row) => tasks.lines[row];
  return by === "state" ? (row) => tasks.states[row] : (row) => tasks.functionOf(row);
}

export function rowColours(tasks, by) {
  const entries = coloured(tasks, by);
  const ofCode = new Uint8Array(Math.max(0, ...entries.map((entry) => entry.code)) + 1).fill(OTHER);
  for (const { code, colour } of entries) ofCode[code] = colour;
  const code = codeOf(tasks, by);
  const colours = new Uint8Array(tasks.count);
  for (let row = 0; row < tasks.count; row += 1) colours[row] = ofCode[code(row)];
  return colours;
}

/** The classes of the whole run as entries of a legend: those of bars, then those between them. */
export function gapLegend(gaps, rows) {
  const entry = (row) => ({
    name: row.Class,
    swatch: swatch(gaps.swatches[gaps.names.indexOf(row.Class)]),
    about: formatSeconds(row["Thread Time (s)"]),
    title: explained(row.Meaning, gaps.swatches[gaps.names.indexOf(row.Class)].helps),
  });
  const part = (title, own) => (own.length ? [title, ...own.map(entry)] : []);
  const running = ({ Class: name }) => gaps.names.indexOf(name) < DESERIALIZE;
  const others = gaps.swatches.slice(gaps.accounted).map(({ name, meaning, seconds }) => (
    { Class: name, Meaning: meaning, "Thread Time (s)": seconds }
  ));
  return [
    ...part("Under long bars:", rows.filter(running)),
    ...part("Between bars:", [...rows.filter((row) => !running(row)), ...others]),
  ];
}

/** The kinds of segments as entries of a legend. */
export function pathLegend(path) {
  const entries = pathTotals(path).map(([{ name, meaning, colour }, seconds]) => {
    const square = make("i", { class: name === WORK ? "work" : "wait" });
    if (name !== WORK) square.style.background = `var(--series-${colour})`;
    return { name, title: meaning, swatch: square, about: formatSeconds(seconds) };
  });
  return ["On the critical path:", ...entries];
}
