// How long the task runs of each function took, as small histograms for a table.

import { make } from "../dom.js";
import { counted, formatSeconds } from "../format.js";

const SMALL_BINS = 14;
/** From this ratio of the longest to the shortest on, the bins grow as the times do. */
const FAR = 30;

/** Counts of the durations of ended task runs by function, in bins between its shortest and its longest. */
export class Durations {
  constructor(tasks) {
    this.tasks = tasks;
    this.counted = null;
  }

  /** Counted once, when first wanted: two ways through all task runs. */
  get counts() {
    this.counted ??= this.count();
    return this.counted;
  }

  count() {
    const { tasks } = this;
    const { length } = tasks.facts.functions;
    const least = new Float64Array(length).fill(Infinity);
    const [most, bins] = [new Float64Array(length), new Uint32Array(length * SMALL_BINS)];
    const ended = (each) => {
      for (let row = 0; row < tasks.count; row += 1)
        if (!tasks.isOpen(row)) each(tasks.functionOf(row), tasks.durations[row]);
    };
    ended((code, seconds) => {
      if (seconds < least[code]) least[code] = seconds;
      if (seconds > most[code]) most[code] = seconds;
    });
    ended((code, seconds) => (bins[code * SMALL_BINS + binOf(seconds, least[code], most[code])] += 1));
    return { least, most, bins };
  }

  /** The picture of a function; an empty one of a name that has no task run here. */
  picture(name) {
    const { least, most, bins } = this.counts;
    const code = this.tasks.facts.functions.indexOf(name);
    const own = code < 0 ? [] : [...bins.subarray(code * SMALL_BINS, (code + 1) * SMALL_BINS)];
    const highest = Math.max(0, ...own);
    if (!highest) return make("span", {}, "");
    const all = own.reduce((sum, number) => sum + number, 0);
    const [from, to] = [least[code], most[code]].map(formatSeconds);
    const scale = isWide(least[code], most[code]) ? ", bins that grow with the time" : "";
    const title = `${counted(all, "task run")} of all workers from ${from} to ${to}${scale}`;
    const bars = own.map((number) => {
      const bar = make("i");
      bar.style.height = `${number ? Math.max((number / highest) * 100, 8) : 0}%`;
      return bar;
    });
    return make("div", { class: "durations", role: "img", "aria-label": title, title }, ...bars);
  }

  /** A table's columns with the pictures behind the names of functions. */
  columnIn(columns, names) {
    const column = {
      label: "Durations",
      title: "How many task runs of the function took how long, on all workers. Sorted by the longest.",
      width: 8,
      grow: 1,
      place: columns.find(({ label }) => label === "Function")?.place ?? 0,
      cell: (row) => this.picture(names[row]),
      value: (row) => this.counts.most[this.tasks.facts.functions.indexOf(names[row])] ?? 0,
      numeric: true,
    };
    const at = columns.findIndex(({ label }) => label === "Function") + 1;
    return at ? [...columns.slice(0, at), column, ...columns.slice(at)] : columns;
  }
}

function isWide(least, most) {
  return least > 0 && most / least > FAR;
}

function binOf(seconds, least, most) {
  if (!(most > least)) return SMALL_BINS >> 1;
  const share = isWide(least, most)
    ? Math.log(seconds / least) / Math.log(most / least)
    : (seconds - least) / (most - least);
  return Math.min(Math.floor(share * SMALL_BINS), SMALL_BINS - 1);
}
