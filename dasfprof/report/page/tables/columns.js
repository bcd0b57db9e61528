// The columns of tables: what they show, export and are sorted by.

import { formatCell, shortened } from "../format.js";
import { ascending, median } from "../numbers.js";
import { byDuration, HEX, UUID } from "../timeline/tasks.js";
import { columnWords } from "../words.js";

/** Characters: labels of numbers that are longer need a wider column for their two lines. */
const LONG_LABEL = 20;
/** Maximum number of values from which the decimals of a column follow. */
const SAMPLED = 1000;

/** Columns that come first, in this order, in tables with one of the names. */
const NAMES = ["Task Key", "Function", "Step", "Line"];
const FIRST = [
  ...[...NAMES, "Text", "Thread Time (s)", "Client (s)", "Worker", "Duration (s)", "Failed Tasks"],
  ...["Exception", "Error Message", "Waiting for CPU (s)", "Waiting for storage (s)"],
  "Blocked (s)",
];

/**
 * Returns the columns of a table whose values are lists. Names of functions lead to `about`, and
 * `timeline` has the explanations of statuses. Only CSV files have columns with one text, without
 * values, or with the path of a file whose name is in the column of lines.
 */
export function listedColumns(facts, about = null, timeline = {}) {
  const has = (name) => facts.columns.some(({ label }) => label === name);
  const named = NAMES.some(has);
  return facts.columns.map(({ label, kind, values }) => {
    const repeated = label === "File" && has("Line");
    const hidden = repeated || isUnknown({ values }) || isOneText({ kind, values });
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
      width: numeric ? (label.length > LONG_LABEL ? 9 : 7) : ["Line", "Text"].includes(label) ? 15 : 11,
      grow: numeric ? 1 : label === "Text" ? 8 : 2,
      text: (row) => (numeric ? cellText(values[row], decimals) : shortened(values[row] ?? "NA", 200)),
      value: (row) => values[row],
    };
  });
}

/** Returns a number with three digits and at most so many decimals. Smaller numbers get a bound. */
export function cellText(value, decimals) {
  if (value === null || Number.isNaN(value)) return "NA";
  const smallest = 10 ** -decimals;
  if (value > 0 && value < smallest / 2) return `< ${formatCell(smallest, decimals)}`;
  const digits = value === 0 ? 0 : 2 - Math.floor(Math.log10(Math.abs(value)));
  return formatCell(value, Math.min(Math.max(digits, 0), decimals));
}

/** Returns whether several rows have the same text. */
export function isOneText({ kind, values }) {
  return kind === "text" && values.length > 1 && values.every((value) => value === values[0]);
}

export function isUnknown({ values }) {
  return values.length > 0 && values.every((value) => value === null);
}

/** Returns the decimals with which the median has three digits, or 0 for integers. */
export function decimalsOf(values) {
  const step = Math.ceil(values.length / SAMPLED);
  const sample = Array.from({ length: Math.ceil(values.length / (step || 1)) }, (_, at) => values[at * step]);
  const sizes = sample.filter(Boolean).map(Math.abs);
  if (sizes.every(Number.isInteger)) return 0;
  return Math.min(6, Math.max(1, 2 - Math.floor(Math.log10(median(sizes)))));
}

/** Returns the columns of the table of task runs. A click on a function calls `about(name)`. */
export function taskColumns(tasks, about) {
  const seconds = (label, values) => {
    const decimals = decimalsOf(values);
    return {
      label,
      title: columnWords(label, tasks.facts)[1],
      numeric: true,
      width: 7,
      grow: 1,
      text: (row) => cellText(values[row], decimals),
      value: (row) => values[row],
      order: () => ascending(values),
    };
  };
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
    ...(tasks.failed ? [named("Exception", (row) => tasks.detail("exceptions", row) ?? "", 12, 2)] : []),
    seconds("CPU (s)", tasks.cpu),
    ...tasks.statuses
      .filter((status) => !status.running)
      .map((status) => seconds(`${status.name} (s)`, status.seconds)),
    { ...seconds("Total (s)", totalSeconds(tasks)), title: TOTAL },
    {
      ...seconds("Memory usage (Mb)", tasks.details.sizes.map((size) => size / 1e6)),
      head: columnWords("Memory usage (Mb)", tasks.facts)[0],
    },
    ranked("State", (row) => tasks.stateName(row), 6, (row) => tasks.states[row], [...states, "unknown"]),
  ];
}

const TOTAL = "From its submission until the scheduler learned that it finished: the sum of its known statuses.";

/** Returns the sum of the known statuses of each task run, in seconds. */
function totalSeconds({ count, statuses }) {
  const total = (row) => statuses.reduce((sum, { seconds }) => sum + (seconds[row] || 0), 0);
  return Float64Array.from({ length: count }, (_, row) => total(row));
}

function rankedCodes(tasks, code, names) {
  const { compare } = new Intl.Collator("en", { numeric: true });
  const ranks = new Float64Array(names.length);
  const inOrder = Array.from(names.keys()).sort((one, other) => compare(names[one], names[other]));
  for (const [rank, place] of inOrder.entries()) ranks[place] = rank;
  return Float64Array.from({ length: tasks.count }, (_, row) => ranks[code(row)]);
}

/** Returns the rank of each row by its key: by the prefix, then by the numbers. */
function keyRanks(tasks) {
  const { firsts, texts, kinds } = tasks.heads;
  const { compare } = new Intl.Collator("en", { numeric: true });
  const heads = Array.from(texts.keys()).sort((one, other) => compare(texts[one], texts[other]));
  const rankOfKey = new Float64Array(tasks.facts.keys);
  let next = 0;
  for (const head of heads) {
    const [begin, end] = [firsts[head], firsts[head + 1]];
    const hashed = [HEX, UUID].includes(kinds[head]);
    // Keys that end in hashes have the order of their first runs.
    const order = hashed && tasks.tails[0] ? ascending(tasks.tails[0].subarray(begin, end)) : null;
    for (let at = 0; at < end - begin; at += 1) rankOfKey[begin + (order ? order[at] : at)] = next + at;
    next += end - begin;
  }
  return Float64Array.from(tasks.keys, (key) => rankOfKey[key]);
}
