// The lanes of workers: their order, whether the threads of a worker share one, lanes of transfers.

import { shortened, visible } from "../format.js";
import { rowsByStart, tracksOfRows } from "./views.js";
/** @import { Tasks } from "./tasks.js" */

export class Lanes {
  /** @type {Tasks} */ tasks;

  constructor(tasks) {
    this.tasks = tasks;
    /** By `name`, or by how long their threads ran tasks: `most` or `least` first. */
    this.order = "name";
    /** Whether the threads of a worker share a lane. */
    this.folded = false;
    /** Lanes of transfers; null: none are shown. */
    this.transfers = null;
    const threads = Map.groupBy(tasks.tracks.filter(({ thread }) => thread !== null), ({ worker }) => worker);
    /** Whether any worker has several threads. */
    this.foldable = [...threads.values()].some(({ length }) => length > 1);
  }

  /** A view of threads with its lanes in this arrangement; any other view unchanged. */
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
      const transfers = this.transfers?.lanesOf(worker, this.folded) ?? [];
      parts.push(...transfers.map((track) => ({ track, tracks: [] })));
    }
    return { ...view, ...this.filled(view, parts) };
  }

  /** Indices of workers in their order. */
  ordered(workers) {
    if (this.order === "name") return workers;
    const busy = busySeconds(this.tasks);
    const sign = this.order === "most" ? -1 : 1;
    return workers.sort((one, other) => sign * (busy[one] - busy[other]) || one - other);
  }

  /** The tracks of a worker, its threads' as one; tasks in its event loop keep their own. */
  merged(view, tracks) {
    const isThread = (track) => this.tasks.tracks[view.tracks[track].lanes[0]].thread !== null;
    return [tracks.filter(isThread), tracks.filter((track) => !isThread(track))].filter((group) => group.length);
  }

  /** One track in place of some of a view. */
  part(view, tracks) {
    const first = view.tracks[tracks[0]];
    if (tracks.length === 1) return { track: first, tracks };
    const name = this.tasks.facts.workers[first.group];
    const about = `${tracks.length} threads`;
    const lanes = tracks.flatMap((track) => view.tracks[track].lanes);
    const titles = { title: `${shortened(name, 20)} · ${about}`, short: shortened(name, 24) };
    return { track: { ...first, ...titles, hint: `${visible(name)}, ${about}`, lanes }, tracks };
  }

  /** Tracks with their rows, by start. */
  filled(view, parts) {
    const { tasks } = this;
    const places = new Int32Array(view.tracks.length);
    for (const [place, { tracks }] of parts.entries()) for (const track of tracks) places[track] = place;
    const trackOfRow = tracksOfRows(view, tasks.count).map((track) => (track < 0 ? -1 : places[track]));
    const offsets = new Uint32Array(parts.length + 1);
    for (const place of trackOfRow) if (place >= 0) offsets[place + 1] += 1;
    for (let place = 0; place < parts.length; place += 1) offsets[place + 1] += offsets[place];
    const rows = new Uint32Array(offsets[parts.length]);
    const free = offsets.slice();
    for (const row of rowsByStart(tasks)) if (trackOfRow[row] >= 0) rows[free[trackOfRow[row]]++] = row;
    return { tracks: parts.map(({ track }) => track), rows, offsets, trackOfRow, longest: undefined };
  }
}

/** For how long the threads of each worker ran tasks. */
export function busySeconds(tasks) {
  const busy = new Float64Array(tasks.facts.workers.length);
  for (const [track, { worker }] of tasks.tracks.entries()) {
    const [first, end] = [tasks.trackOffsets[track], tasks.trackOffsets[track + 1]];
    for (let row = first; row < end; row += 1) busy[worker] += tasks.durations[row];
  }
  return busy;
}
