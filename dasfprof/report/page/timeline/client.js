// What the client did and when, from flame_data.py: its calls of Dask, and the lines in which it was.

import { overlap } from "../numbers.js";

/** @typedef {{kind: string, place: object, seconds: number, count: number, whole: number, main: boolean}} Call */

export class ClientTimes {
  facts; places; columns;

  constructor(facts) {
    this.facts = facts;
    this.places = facts.places.map(([file, line, name]) => ({ file, line, name }));
  }

  async read(columns) {
    this.columns = await columns.group("client");
  }

  /** Whether a time lies within what was recorded of calls, or of samples: `called`, `sampled`. */
  knows(what, from, to) {
    const span = this.facts[what];
    return span !== null && from < span[1] && to > span[0];
  }

  /**
   * The calls that went on between two times, the longest first. Those of several calls in a row
   * have no more than their `seconds` of that time: nothing tells when each of them was.
   *
   * @returns {Call[]}
   */
  callsWithin(from, to) {
    const { call_begins: begins = [], call_lengths: lengths, ...rest } = this.columns;
    const found = [];
    for (const [at, begin] of begins.entries()) {
      const inside = overlap(begin, begin + lengths[at], from, to);
      if (!(inside > 0)) continue;
      found.push({
        kind: this.facts.kinds[rest.call_kinds[at]],
        place: this.places[rest.call_places[at]],
        seconds: Math.min(inside, rest.call_seconds[at]),
        count: rest.call_counts[at],
        whole: rest.call_seconds[at],
        main: rest.call_main[at] === 1,
      });
    }
    return found.sort((one, other) => other.seconds - one.seconds);
  }

  /** The lines at which it was between two times, the longest first; what with is not known. */
  linesWithin(from, to) {
    const { stay_ends: ends = [], stay_lengths: lengths, stay_places: places } = this.columns;
    const byPlace = new Map();
    for (const [at, end] of ends.entries()) {
      const inside = overlap(end - lengths[at], end, from, to);
      if (inside > 0) byPlace.set(places[at], (byPlace.get(places[at]) ?? 0) + inside);
    }
    const lines = [...byPlace].map(([place, seconds]) => ({ ...this.places[place], seconds, computing: NaN }));
    return lines.sort((one, other) => other.seconds - one.seconds);
  }
}
