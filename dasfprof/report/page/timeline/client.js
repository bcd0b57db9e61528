// The client's calls of Dask and its sampled lines, from flame_data.py.

import { overlap } from "../numbers.js";

/** @typedef {{kind: string, place: object, seconds: number, count: number, total: number, main: boolean}} Call */

export class ClientTimes {
  facts; places; columns;

  constructor(facts) {
    this.facts = facts;
    this.places = facts.places.map(([file, line, name]) => ({ file, line, name }));
  }

  async read(columns) {
    this.columns = await columns.group("client");
  }

  /** Returns whether calls (`called`) or samples (`sampled`) were recorded at a time. */
  knows(what, from, to) {
    const span = this.facts[what];
    return span !== null && from < span[1] && to > span[0];
  }

  /**
   * Returns the calls between two times, the longest first. The times of single calls in a row are not
   * known, so their seconds are at most those of all of them.
   *
   * @returns {Call[]}
   */
  callsWithin(from, to) {
    const { call_begins: begins = [], call_lengths: lengths, ...columns } = this.columns;
    const calls = [];
    for (const [at, begin] of begins.entries()) {
      const inside = overlap(begin, begin + lengths[at], from, to);
      if (!(inside > 0)) continue;
      calls.push({
        kind: this.facts.kinds[columns.call_kinds[at]],
        place: this.places[columns.call_places[at]],
        seconds: Math.min(inside, columns.call_seconds[at]),
        count: columns.call_counts[at],
        total: columns.call_seconds[at],
        main: columns.call_main[at] === 1,
      });
    }
    return calls.sort((one, other) => other.seconds - one.seconds);
  }

  /** Returns the sampled lines between two times, the longest first. Computing seconds are unknown. */
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
