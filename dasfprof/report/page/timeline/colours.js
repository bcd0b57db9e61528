// The colours of task runs, and the entries of the legends.

import { swatch } from "../accounting.js";
import { make } from "../dom.js";
import { counted, formatCount, formatSeconds, shortened } from "../format.js";
import { outliersFirst } from "../numbers.js";
import { explained } from "../words.js";
import { busySeconds } from "./lanes.js";
import { OTHER } from "./palette.js";
import { pathTotals, WORK } from "./path.js";

/** Colours of final states. Other states are grey. */
const STATE_COLOURS = { memory: 2, erred: 5, cancelled: 1, rescheduled: 3, released: 4 };

/** Colours of statuses. */
const STATUS_COLOURS = { Inqueue: 6, Preparing: 1, Running: 0, Finalizing: 3 };

/** Values of which only the first have separate colours. */
const RANKED = ["function", "worker"];

export function seriesSwatch(colour) {
  const square = make("i");
  square.style.background = `var(--series-${colour})`;
  return square;
}

/** Maximum number of values in a legend. */
const MAX_LEGEND = 7;

/** Returns name, colour, code and any meaning of each value that determines the colours of task runs. */
function coloured(tasks, by) {
  const listed = (names, colour) => names.map((name, code) => ({ name, colour: colour(name, code), code }));
  const { workers, statuses, status_words: words, states, steps, functions } = tasks.facts;
  if (by === "worker") {
    const busy = busySeconds(tasks);
    const places = [...workers.keys()];
    const order = places.length > OTHER ? outliersFirst(places, (at) => busy[at]) : places;
    return order.map((code, rank) => ({ name: workers[code], colour: Math.min(rank, OTHER), code }));
  }
  if (by === "status") {
    const entries = listed([...statuses, "unknown"], (name) => STATUS_COLOURS[name] ?? OTHER);
    return entries.map((entry) => ({ ...entry, title: words[entry.name]?.[0] }));
  }
  if (by === "class") {
    const { inside, swatches } = tasks.gaps;
    return inside.map((code, at) => {
      const { name, colour, meaning } = swatches[code];
      return { name, colour, code: at, title: meaning };
    });
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

/** Returns a function from the name of a function to its colour. */
export function functionColours(tasks) {
  let byName = null;
  return (name) => {
    byName ??= new Map(coloured(tasks, "function").map((entry) => [entry.name, entry.colour]));
    return byName.get(name) ?? OTHER;
  };
}

/** Returns the entries of the legend. */
export function legendOf(tasks, by) {
  const all = coloured(tasks, by);
  const shown = all.filter(({ colour }) => colour !== OTHER || !RANKED.includes(by)).slice(0, MAX_LEGEND);
  const others = all.length - shown.length;
  const entries = shown.map(({ name, colour, seconds, title = null }) => ({
    swatch: seriesSwatch(colour),
    title,
    // A category is not shortened, because a missing word could change its meaning.
    text: title === null ? shortened(name, 28) : name,
    about: seconds === undefined ? "" : formatSeconds(seconds),
  }));
  if (others) {
    const isGrey = RANKED.includes(by);
    const text = isGrey ? counted(others, "other") : `and ${others} more, with repeated colours`;
    entries.push({ swatch: isGrey ? seriesSwatch(OTHER) : "", text, about: "" });
  }
  if (tasks.failed) {
    const about = formatCount(tasks.failed.reduce((sum, flag) => sum + flag, 0));
    entries.push({ swatch: make("i", { class: "failed" }), text: "failed", about });
  }
  return entries;
}

/** Returns a function from a row to the code of its value, see `coloured`. */
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

/** Returns the categories of thread time as entries of a legend: those in functions, then all others. */
export function gapLegend(gaps, rows) {
  const entry = ({ Class: name, Meaning: meaning, "Thread Time (s)": seconds }) => {
    const category = gaps.swatches[gaps.names.indexOf(name)];
    return { name, swatch: swatch(category), about: formatSeconds(seconds), title: explained(meaning, category.helps) };
  };
  const part = (title, shown) => (shown.length ? [title, ...shown.map(entry)] : []);
  const inFunctions = ({ Class: name }) => gaps.inside.includes(gaps.names.indexOf(name));
  const others = gaps.swatches.slice(gaps.accounted).map(({ name, meaning, seconds }) => (
    { Class: name, Meaning: meaning, "Thread Time (s)": seconds }
  ));
  return [
    ...part("In functions:", rows.filter(inFunctions)),
    ...part("Between functions:", [...rows.filter((row) => !inFunctions(row)), ...others]),
  ];
}

/** Returns the kinds of segments as entries of a legend. */
export function pathLegend(path) {
  const entries = pathTotals(path).map(([{ name, meaning, colour }, seconds]) => {
    const square = make("i", { class: name === WORK ? "work" : "wait" });
    if (name !== WORK) square.style.background = `var(--series-${colour})`;
    return { name, title: meaning, swatch: square, about: formatSeconds(seconds) };
  });
  return ["On the critical path:", ...entries];
}
