// The tracks of workers: their order, whether the threads of a worker share a track, and tracks of transfers.

import { shortened, visible } from "../format.js";
import { linksByGroup } from "./tasks.js";
import { rowsByStart, tracksOfRows } from "./views.js";
/** @import { Tasks } from "./tasks.js" */

export class Lanes {
  /** @type {Tasks} */ tasks;

  constructor(tasks) {
    this.tasks = tasks;
    /** By `name`, or by busy time: `most` or `least` first. */
    this.order = "name";
    /** Whether the threads of a worker share a track. */
    this.folded = false;
    /** The transfers, or null if they are not shown. */
    this.transfers = null;
    const threads = Map.groupBy(tasks.tracks.filter(({ thread }) => thread !== null), ({ worker }) => worker);
    /** Whether any worker has several threads. */
    this.foldable = [...threads.values()].some(({ length }) => length > 1);
  }

  /** Returns a view of threads with its tracks in this arrangement, and any other view unchanged. */
  arrange(view) {
    const lanes = [...view.tracks.keys()].filter((track) => view.tracks[track].lanes);
    if (!lanes.length || (this.order === "name" && !this.folded && !this.transfers)) return view;
    const others = [...view.tracks.keys()].filter((track) => !lanes.includes(track));
    const parts = others.map((track) => this.part(view, [track]));
    const byWorker = Map.groupBy(lanes, (track) => view.tracks[track].group);
    for (const worker of this.ordered([...byWorker.keys()])) {
      const tracks = byWorker.get(worker);
      const groups = this.folded ? this.merged(view, tracks) : tracks.map((track) => [track]);
      parts.push(...groups.map((group) => this.part(view, group)));
      const transfers = this.transfers?.tracksOf(worker, this.folded) ?? [];
      parts.push(...transfers.map((track) => ({ track, tracks: [] })));
    }
    return { ...view, ...this.filled(view, parts) };
  }

  /** Returns the indices of workers in their order. */
  ordered(workers) {
    if (this.order === "name") return workers;
    const busy = busySeconds(this.tasks);
    const sign = this.order === "most" ? -1 : 1;
    return workers.sort((one, other) => sign * (busy[one] - busy[other]) || one - other);
  }

  /** Returns the tracks of a worker: one of its threads, and one of its event loop. */
  merged(view, tracks) {
    const isThread = (track) => this.tasks.tracks[view.tracks[track].lanes[0]].thread !== null;
    return [tracks.filter(isThread), tracks.filter((track) => !isThread(track))].filter((group) => group.length);
  }

  /** Returns a track that replaces some tracks of a view. */
  part(view, tracks) {
    const first = view.tracks[tracks[0]];
    if (tracks.length === 1) return { track: first, tracks };
    const name = this.tasks.facts.workers[first.group];
    const about = `${tracks.length} threads`;
    const lanes = tracks.flatMap((track) => view.tracks[track].lanes);
    const titles = { title: `${shortened(name, 20)} · ${about}`, short: shortened(name, 24) };
    return { track: { ...first, ...titles, hint: `${visible(name)}, ${about}`, lanes }, tracks };
  }

  /** Returns the tracks with their rows, ordered by start. */
  filled(view, parts) {
    const { tasks } = this;
    const places = new Int32Array(view.tracks.length);
    for (const [place, { tracks }] of parts.entries()) for (const track of tracks) places[track] = place;
    const trackOfRow = tracksOfRows(view, tasks.count).map((track) => (track < 0 ? -1 : places[track]));
    const shown = rowsByStart(tasks).filter((row) => trackOfRow[row] >= 0);
    const { offsets, targets: rows } = linksByGroup(parts.length, shown.map((row) => trackOfRow[row]), shown);
    return { tracks: parts.map(({ track }) => track), rows, offsets, trackOfRow, longest: undefined };
  }
}

/** Returns the seconds of task runs of each worker. */
export function busySeconds(tasks) {
  const busy = new Float64Array(tasks.facts.workers.length);
  for (const [track, { worker }] of tasks.tracks.entries()) {
    const [first, end] = [tasks.trackOffsets[track], tasks.trackOffsets[track + 1]];
    for (let row = first; row < end; row += 1) busy[worker] += tasks.durations[row];
  }
  return busy;
}
