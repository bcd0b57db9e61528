// The lanes of workers: their order, which are pinned and which are folded into one, lanes of transfers.

import { shortened, visible } from "../format.js";
import { rowsByStart, tracksOfRows } from "./views.js";
/** @import { Tasks } from "./tasks.js" */

export class Lanes {
  /** @type {Tasks} */ tasks;
  changed;

  /** `changed()` is called when the person arranges them otherwise. */
  constructor(tasks, changed) {
    Object.assign(this, { tasks, changed });
    /** By `name`, or by how long their threads ran tasks: `most` or `least` first. */
    this.order = "name";
    /** Places of workers: whose threads share a lane, and which stay on top. */
    this.folded = new Set();
    this.pinned = new Set();
    /** Lanes of transfers; null: none are shown. */
    this.transfers = null;
    const threads = Map.groupBy(tasks.tracks, ({ worker }) => worker);
    /** The workers with threads to fold. */
    this.foldable = [...threads.keys()].filter(
      (worker) => threads.get(worker).filter(({ thread }) => thread !== null).length > 1,
    );
  }

  fold(worker, folded = !this.folded.has(worker)) {
    this.set(this.folded, worker, folded && this.foldable.includes(worker));
  }

  pin(worker, pinned = !this.pinned.has(worker)) {
    this.set(this.pinned, worker, pinned);
  }

  set(workers, worker, within) {
    if (within) workers.add(worker);
    else workers.delete(worker);
    this.changed();
  }

  get allFolded() {
    return this.foldable.length > 0 && this.folded.size === this.foldable.length;
  }

  foldAll(folded) {
    this.folded = new Set(folded ? this.foldable : []);
    this.changed();
  }

  /** A view of threads with its lanes in this arrangement; any other as it is. */
  arrange(view) {
    const lanes = [...view.tracks.keys()].filter((track) => view.tracks[track].lanes);
    if (!lanes.length) return view;
    view.handles = true;
    const asTheyAre = this.order === "name" && !this.folded.size && !this.pinned.size && !this.transfers;
    if (asTheyAre) return view;
    const others = [...view.tracks.keys()].filter((track) => !lanes.includes(track));
    const parts = others.map((track) => this.part(view, [track]));
    const byWorker = Map.groupBy(lanes, (track) => view.tracks[track].group);
    const heads = parts.length;
    let staying = heads;
    for (const worker of this.ordered([...byWorker.keys()])) {
      const [own, folded] = [byWorker.get(worker), this.folded.has(worker)];
      const groups = folded ? this.merged(view, own) : own.map((track) => [track]);
      parts.push(...groups.map((tracks) => this.part(view, tracks)));
      const transfers = this.transfers?.lanesOf(worker, folded) ?? [];
      parts.push(...transfers.map((track) => ({ track, tracks: [] })));
      if (this.pinned.has(worker)) staying = parts.length;
    }
    return { ...view, ...this.filled(view, parts), staying };
  }

  /** Places of workers in their order, those that are pinned first. */
  ordered(workers) {
    const { order, pinned } = this;
    const busy = order === "name" ? null : busySeconds(this.tasks);
    const sign = order === "most" ? -1 : 1;
    const byBusy = (one, other) => (busy ? sign * (busy[one] - busy[other]) : 0);
    return workers.sort(
      (one, other) => Number(pinned.has(other)) - Number(pinned.has(one)) || byBusy(one, other) || one - other,
    );
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

  /** Puts into a link what is not as at first. */
  write(link) {
    const { workers } = this.tasks.facts;
    if (this.order !== "name") link.set("order", this.order);
    if (this.transfers) link.set("transfers", "1");
    if (this.allFolded) link.set("folded", "*");
    else for (const worker of this.folded) link.append("folded", workers[worker]);
    for (const worker of this.pinned) link.append("pinned", workers[worker]);
  }

  /** Takes an arrangement from a link, and tells whether it has one; what it does not name stays. */
  read(link) {
    const { workers } = this.tasks.facts;
    const places = (name) => link.getAll(name).map((one) => workers.indexOf(one)).filter((at) => at >= 0);
    if (["name", "most", "least"].includes(link.get("order"))) this.order = link.get("order");
    if (link.has("transfers")) this.transfers = link.get("transfers") === "1" ? this.tasks.transfers : null;
    if (link.has("pinned")) this.pinned = new Set(places("pinned"));
    const isFolded = (worker) => link.get("folded") === "*" || places("folded").includes(worker);
    if (link.has("folded")) this.folded = new Set(this.foldable.filter(isFolded));
    return ["order", "transfers", "pinned", "folded"].some((name) => link.has(name));
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
