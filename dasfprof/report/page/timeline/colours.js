// Which colour each task run has, and what the colours are of.

import { swatch } from "../accounting.js";
import { make } from "../dom.js";
import { formatCount, formatSeconds, shortened } from "../format.js";
import { outliersFirst } from "../numbers.js";
import { explained } from "../words.js";
import { busySeconds } from "./lanes.js";
import { OTHER } from "./palette.js";
import { pathTotals, WORK } from "./path.js";

/** States of task runs by what they mean; any other is grey. */
const STATE_COLOURS = { memory: 2, erred: 5, cancelled: 1, rescheduled: 3, released: 4 };

/** What a task run spent its time on. */
const STATUS_COLOURS = { Inqueue: 6, Preparing: 1, Running: 0, Finalizing: 3 };

/** By what the first have colours of their own, and all others one. */
const RANKED = ["function", "worker"];

export function seriesSwatch(colour) {
  const square = make("i");
  square.style.background = `var(--series-${colour})`;
  return square;
}

/** Values with a colour that is told; more of them share one, or repeat colours. */
const MAX_LEGEND = 7;

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
    const { inside, swatches } = tasks.gaps;
    return inside.map((code, at) => ({ name: swatches[code].name, colour: swatches[code].colour, code: at }));
  }
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

/** The entries of the legend. */
export function legendOf(tasks, by) {
  const all = coloured(tasks, by);
  const shown = all.filter(({ colour }) => colour !== OTHER || !RANKED.includes(by)).slice(0, MAX_LEGEND);
  const rest = all.filter((entry) => !shown.includes(entry));
  const entries = shown.map(({ name, colour, seconds }) => ({
    swatch: seriesSwatch(colour),
    text: shortened(name, 28),
    about: seconds === undefined ? "" : formatSeconds(seconds),
  }));
  if (rest.length) {
    const alike = RANKED.includes(by);
    const text = alike ? `${rest.length} others` : `and ${rest.length} more, colours repeat`;
    entries.push({ swatch: alike ? seriesSwatch(OTHER) : "", text, about: "" });
  }
  if (tasks.failed) {
    const about = formatCount(tasks.failed.reduce((sum, flag) => sum + flag, 0));
    entries.push({ swatch: make("i", { class: "failed" }), text: "failed", about });
  }
  return entries;
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
  const running = ({ Class: name }) => gaps.inside.includes(gaps.names.indexOf(name));
  const others = gaps.swatches.slice(gaps.accounted).map(({ name, meaning, seconds }) => (
    { Class: name, Meaning: meaning, "Thread Time (s)": seconds }
  ));
  return [
    ...part("Overhead:", rows.filter(running)),
    ...part("Idle:", [...rows.filter((row) => !running(row)), ...others]),
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
