// The columns of the tables: what each shows, exports and is sorted by.

import { formatCell, shortened } from "../format.js";
import { ascending } from "../numbers.js";
import { byDuration, HEX, UUID } from "../timeline/tasks.js";
import { columnWords } from "../words.js";

/** Longer labels of numbers need more room for their two lines. */
const LONG_LABEL = 20;

/** What explains a row: these stand behind its name and its seconds, before what describes it. */
const NAMES = ["Task Key", "Function", "Step", "Line"];
const FIRST = [
  ...[...NAMES, "Text", "Thread Time (s)", "Client (s)", "Worker", "Duration (s)", "Failed Tasks"],
  ...["Exception", "Error Message", "Waiting for CPU (s)", "Waiting for storage (s)"],
  "Blocked (s)",
];

/**
 * Columns of a table that the page holds as lists, what explains first; the names of functions lead
 * to `about`; `timeline` has the words of statuses. Those of one text, or without any, are hidden.
 */
export function listedColumns(facts, about = null, timeline = {}) {
  const named = facts.columns.some(({ label }) => NAMES.includes(label));
  return facts.columns.map(({ label, kind, values }) => {
    const hidden = isUnknown({ values }) || isOneText({ kind, values });
    const numeric = kind === "number";
    const decimals = numeric ? decimalsOf(values) : 0;
    const [head, title] = columnWords(label, timeline);
    return {
      label,
      head,
      title,
      hidden,
      numeric,
      place: named && FIRST.includes(label) ? FIRST.indexOf(label) : FIRST.length,
      isKey: label === "Task Key",
      follow: about && label === "Function" ? (row) => about(values[row]) : null,
      width: numeric ? (label.length > LONG_LABEL ? 9 : 7) : label === "Line" ? 15 : 11,
      grow: numeric ? 1 : 2,
      text: (row) =>
        numeric
          ? cellText(values[row], decimals)
          : values[row] === null
            ? "NA"
            : shortened(values[row], 200),
      value: (row) => values[row],
    };
  });
}

/** A number of a column; one that would show as 0, and is none, as less than what shows. */
export function cellText(value, decimals) {
  const least = 10 ** -decimals;
  if (value > 0 && value < least / 2) return `< ${formatCell(least, decimals)}`;
  return formatCell(value, decimals);
}

/** Whether all of several rows have the same text. */
export function isOneText({ kind, values }) {
  return kind === "text" && values.length > 1 && values.every((value) => value === values[0]);
}

export function isUnknown({ values }) {
  return values.length > 0 && values.every((value) => value === null);
}

/** So many decimals that the middling value has four digits; none for whole numbers. */
export function decimalsOf(values) {
  const known = values.filter((value) => value !== null && value !== 0);
  if (known.every(Number.isInteger)) return 0;
  const sizes = known.map(Math.abs).sort((one, other) => one - other);
  const digits = Math.floor(Math.log10(sizes[sizes.length >> 1])) + 1;
  return Math.min(6, Math.max(1, 4 - digits));
}

/** Columns of the table of task runs; `about(name)` is called when a function is followed. */
export function taskColumns(tasks, about) {
  const seconds = (label, values) => ({
    label,
    title: columnWords(label, tasks.facts)[1],
    numeric: true,
    width: 7,
    grow: 1,
    text: (row) => formatCell(values[row], 6),
    value: (row) => values[row],
    order: () => ascending(values),
  });
  const named = (label, name, width, grow = 1) => ({
    label,
    width,
    grow,
    text: (row) => shortened(name(row), 200),
    value: name,
  });
  const ranked = (label, name, width, code, names) => ({
    ...named(label, name, width),
    order: () => ascending(rankedCodes(tasks, code, names)),
  });
  const { functions, steps, workers, states } = tasks.facts;
  const workerOf = (row) => tasks.tracks[tasks.trackOfRow[row]].worker;
  return [
    {
      ...named("Task Key", (row) => tasks.keyText(tasks.keys[row]), 15, 3),
      isKey: true,
      order: () => ascending(keyRanks(tasks)),
    },
    {
      ...ranked("Function", (row) => tasks.functionName(row), 10, (row) => tasks.functionOf(row), functions),
      follow: (row) => about(tasks.functionName(row)),
    },
    ...(tasks.steps ? [ranked("Step", (row) => tasks.stepName(row), 8, (row) => tasks.steps[row], steps)] : []),
    ranked("Worker", (row) => tasks.workerName(row), 9, workerOf, workers),
    seconds("Start (s)", tasks.starts),
    { ...seconds("Duration (s)", tasks.durations), order: () => byDuration(tasks).slice() },
    ...(tasks.failed ? [named("Exception", (row) => tasks.exceptionText(row) ?? "", 12, 2)] : []),
    seconds("CPU (s)", tasks.cpu),
    ...tasks.statuses
      .filter((status) => !status.running)
      .map((status) => seconds(`${status.name} (s)`, status.seconds)),
    totalSeconds(tasks),
    {
      ...seconds("Memory usage (Mb)", tasks.details.sizes),
      head: columnWords("Memory usage (Mb)", tasks.facts)[0],
      text: (row) => formatCell(tasks.details.sizes[row] / 1e6, 3),
      value: (row) => tasks.details.sizes[row] / 1e6,
    },
    ranked("State", (row) => tasks.stateName(row), 6, (row) => tasks.states[row], [...states, "unknown"]),
  ];
}

/** The column of the seconds of all statuses of a task run, as far as they are known. */
function totalSeconds(tasks) {
  const value = (row) => tasks.statuses.reduce((sum, { seconds }) => sum + (seconds[row] || 0), 0);
  return {
    label: "Total (s)",
    title: "From when the scheduler knew it until it knew its end: the sum of its statuses, as far as they are known.",
    numeric: true,
    width: 7,
    grow: 1,
    text: (row) => formatCell(value(row), 6),
    value,
    order: () => ascending(Float64Array.from({ length: tasks.count }, (_, row) => value(row))),
  };
}

function rankedCodes(tasks, code, names) {
  const { compare } = new Intl.Collator("en", { numeric: true });
  const ranks = new Float64Array(names.length);
  const inOrder = Array.from(names.keys()).sort((one, other) => compare(names[one], names[other]));
  for (const [rank, place] of inOrder.entries()) ranks[place] = rank;
  return Float64Array.from({ length: tasks.count }, (_, row) => ranks[code(row)]);
}

/** Each row's place if sorted by key: by the text's begin, then by the numbers. */
function keyRanks(tasks) {
  const { firsts, texts, kinds } = tasks.heads;
  const { compare } = new Intl.Collator("en", { numeric: true });
  const heads = Array.from(texts.keys()).sort((one, other) => compare(texts[one], texts[other]));
  const rankOfKey = new Float64Array(tasks.facts.keys);
  let next = 0;
  for (const head of heads) {
    const [begin, end] = [firsts[head], firsts[head + 1]];
    const hashed = [HEX, UUID].includes(kinds[head]);
    // Keys that end in hashes come as they first ran.
    const order = hashed && tasks.tails[0] ? ascending(tasks.tails[0].subarray(begin, end)) : null;
    for (let at = 0; at < end - begin; at += 1) rankOfKey[begin + (order ? order[at] : at)] = next + at;
    next += end - begin;
  }
  return Float64Array.from(tasks.keys, (key) => rankOfKey[key]);
}
