// The time between the functions of a thread's task runs, by category of thread time. A worker's cells, from
// gap_data.py, have the fraction of each category in the idle time of its threads. A task run also occupies
// its thread before and after its function.

import { formatSeconds, shortened } from "../format.js";
import { lastAtMost, overlap, sumOf } from "../numbers.js";
import { OTHER } from "./palette.js";
import { flattenView, seenIn } from "./views.js";

/** Ids of the categories of a function's time, and of the time around it in which its thread is occupied. */
const INSIDE = ["COMPUTING", "WAITING_FOR_A_CORE", "WAITING_FOR_STORAGE", "BLOCKED", "RUNNING_CPU_UNKNOWN"];
const AROUND = ["TASK_OVERHEAD", "DESERIALIZE", "UNSPILL_AND_SPILL"];
/** Parts of the run for which sums are cached, for pictures of long times. */
const GAP_BINS = 16_384;
/** Maximum number of task runs or cells that are added up for each picture. */
const FEW_PARTS = 400;

export class Gaps {
  constructor(tasks) {
    this.tasks = tasks;
    /** Name, meaning and colour of each category. */
    this.swatches = tasks.facts.gaps.classes;
    this.names = this.swatches.map(({ name }) => name);
    const codeOf = (id) => this.swatches.findIndex((category) => category.id === id);
    /** The codes of `INSIDE` and `AROUND`. */
    this.inside = INSIDE.map(codeOf);
    this.around = AROUND.map(codeOf);
    /** Number of categories in sums. A further one is only shown, since accounts have its time elsewhere. */
    this.accounted = this.swatches.filter(({ seconds }) => seconds === undefined).length;
    /** The view with all task runs of each thread. */
    this.flat = flattenView(tasks);
    /** Cached sums by track and by worker. */
    this.heldUntil = [];
    this.idleUntil = [];
    /** The only categories that are painted, or null if all are. */
    this.only = null;
  }

  /** Returns whether a track of a view has threads. */
  has(track) {
    return track?.lanes !== undefined && this.tasks.tracks[track.lanes[0]].thread !== null;
  }

  /** Returns whether a category is painted. */
  shows(code) {
    return this.only === null || this.only.has(code);
  }

  /** Returns the fraction of a run's time in the only painted categories, and the colour of the largest. */
  chosenPart(row) {
    const split = this.split(row);
    const shown = [...split.keys()].filter((at) => this.only.has(this.inside[at]) && split[at] > 0);
    shown.sort((one, other) => split[other] - split[one]);
    const share = sumOf(shown.map((at) => split[at])) / (this.tasks.durations[row] || 1);
    return [share, shown.length ? this.swatches[this.inside[shown[0]]].colour : OTHER];
  }

  /** Returns the range of cells of a track's worker. */
  cellsOf(lane) {
    const { first } = this.tasks.facts.gaps;
    const { worker } = this.tasks.tracks[lane];
    return [first[worker], first[worker + 1]];
  }

  /** Calls `each(from, to)` with the times within two times in which a track's thread is idle. */
  free(lane, from, to, each) {
    const { starts, durations, before, after } = this.tasks;
    const [first, end] = this.rowsOf(lane, from, to);
    let free = from;
    for (let row = first; row < end; row += 1) {
      const held = starts[row] - before[row];
      if (held > free) each(free, Math.min(held, to));
      free = Math.max(free, starts[row] + durations[row] + after[row]);
      if (free >= to) return;
    }
    each(free, to);
  }

  /** Returns the range of a track's rows between two times, and one more on each side. */
  rowsOf(lane, from, to) {
    const { trackOffsets } = this.tasks;
    const [first, end] = seenIn(this.flat, this.tasks, lane, from, to);
    return [Math.max(first - 1, trackOffsets[lane]), Math.min(end + 1, trackOffsets[lane + 1])];
  }

  /** Calls `each(code, share, from, to)` for the categories of a track's idle time between two times. */
  causes(lane, from, to, each) {
    const { begins, offsets, classes, shares } = this.tasks.cells;
    const [first, end] = this.cellsOf(lane);
    for (let cell = Math.max(lastAtMost(begins, from, first, end), first); cell < end - 1; cell += 1) {
      if (begins[cell] >= to) return;
      const [begin, stop] = [Math.max(begins[cell], from), Math.min(begins[cell + 1], to)];
      if (stop <= begin) continue;
      for (let at = offsets[cell]; at < offsets[cell + 1]; at += 1) {
        each(classes[at], shares[at], begin, stop);
      }
    }
  }

  /** Returns the seconds of a track by category between two times, with those in task runs. */
  seconds(lane, from, to, sums = new Float64Array(this.names.length)) {
    const add = (code, share, begin, end) => {
      if (code < this.accounted) sums[code] += share * (end - begin);
    };
    this.free(lane, from, to, (begin, end) => this.causes(lane, begin, end, add));
    const [first, last] = this.rowsOf(lane, from, to);
    for (let row = first; row < last; row += 1) this.addRun(row, from, to, sums);
    return sums;
  }

  /** Adds the time between two times in which a run occupied its thread. */
  addRun(row, from, to, sums) {
    const { starts, durations, before, after } = this.tasks;
    const start = starts[row];
    const end = start + durations[row];
    const inside = overlap(start, end, from, to);
    const split = inside > 0 ? this.split(row) : [];
    for (const [at, seconds] of split.entries()) sums[this.inside[at]] += (seconds * inside) / durations[row];
    const earlier = overlap(start - before[row], start, from, to);
    if (earlier > 0) this.addSide(row, true, earlier / before[row], sums);
    const later = overlap(end, end + after[row], from, to);
    if (later > 0) this.addSide(row, false, later / after[row], sums);
  }

  /** Adds a fraction of the time in which a run occupied its thread before its function, or after it. */
  addSide(row, before, share, sums) {
    const { tasks } = this;
    const total = before ? tasks.before[row] : tasks.after[row];
    const disk = Math.min(before ? tasks.disk_read[row] : tasks.disk_write[row], total);
    const deserialize = before ? Math.min(tasks.deserialize[row], total - disk) : 0;
    const parts = [total - disk - deserialize, deserialize, disk];
    for (const [at, seconds] of parts.entries()) sums[this.around[at]] += seconds * share;
  }

  /** Returns the seconds of a run's function by category, in the order of `inside`. */
  split(row) {
    const { durations, cpu, core_wait: waits, storage } = this.tasks;
    const total = durations[row];
    if (Number.isNaN(cpu[row])) return [0, 0, 0, 0, total];
    const computing = Math.min(cpu[row], total);
    const waiting = Math.min(waits[row] || 0, total - computing);
    const stored = Math.min(storage[row], total - computing - waiting);
    return [computing, waiting, stored, total - computing - waiting - stored, 0];
  }

  /** Returns the fraction of each pixel in which runs occupy the threads of tracks, and those of `around`. */
  heldIn(lanes, frame, width) {
    const [held, ...others] = lanes.map((lane) => this.held(lane, frame, width));
    for (const [part, shares] of others.length ? held.entries() : []) {
      for (let x = 0; x < width; x += 1) {
        for (const other of others) shares[x] += other[part][x];
        shares[x] /= lanes.length;
      }
    }
    return held;
  }

  held(lane, frame, width) {
    const [first, end] = this.rowsOf(lane, frame.from, frame.to);
    if (!this.isFar(frame, width, end - first)) return this.heldExactly(lane, frame, width);
    this.heldUntil[lane] ??= this.heldExactly(lane, this.fullRun, GAP_BINS).map(summedUp);
    return this.heldUntil[lane].map((sums) => this.sampled(sums, frame, width));
  }

  heldExactly(lane, frame, width) {
    const { starts, durations, before, after, deserialize, disk_read: read, disk_write: written } = this.tasks;
    const [held, overhead, code, disk] = Array.from({ length: 1 + AROUND.length }, () => new Float64Array(width));
    // As in `addSide`: first the time of reading, then of deserializing, then the remainder.
    const share = (seconds, begin, end, maximum, pixels) => {
      const part = seconds > 0 && end > begin ? Math.min((seconds * perSecond) / (end - begin), maximum) : 0;
      if (part > 0) cover(pixels, begin, end, part);
      return maximum - part;
    };
    const perSecond = width / (frame.to - frame.from || 1);
    const [first, end] = this.rowsOf(lane, frame.from, frame.to);
    for (let row = first; row < end; row += 1) {
      const start = (starts[row] - frame.from) * perSecond;
      const stop = start + durations[row] * perSecond;
      const [begin, last] = [start - before[row] * perSecond, stop + after[row] * perSecond];
      cover(held, begin, last);
      if (begin < start) {
        const left = share(read[row], begin, start, 1, disk);
        cover(overhead, begin, start, share(deserialize[row], begin, start, left, code));
      }
      if (stop < last) cover(overhead, stop, last, share(written[row], stop, last, 1, disk));
    }
    return [held, overhead, code, disk];
  }

  /** Returns the fraction of each category in the idle time of each pixel, for a track's worker. */
  idle(lane, frame, width) {
    // The tracks of a worker are painted in succession.
    const { worker } = this.tasks.tracks[lane];
    const wanted = [worker, frame.from, frame.to, width].join(" ");
    if (this.lastIdle?.wanted !== wanted)
      this.lastIdle = { wanted, shares: this.idleOfWorker(lane, frame, width) };
    return this.lastIdle.shares;
  }

  idleOfWorker(lane, frame, width) {
    const [first, end] = this.cellsOf(lane);
    if (!this.isFar(frame, width, end - first)) return this.idleExactly(lane, frame, width);
    const { worker } = this.tasks.tracks[lane];
    const exact = () => this.idleExactly(lane, this.fullRun, GAP_BINS);
    this.idleUntil[worker] ??= exact().map(([code, shares]) => [code, summedUp(shares)]);
    return this.idleUntil[worker].map(([code, sums]) => [code, this.sampled(sums, frame, width)]);
  }

  idleExactly(lane, frame, width) {
    const shares = new Map();
    const perSecond = width / (frame.to - frame.from || 1);
    this.causes(lane, frame.from, frame.to, (code, share, from, to) => {
      if (!shares.has(code)) shares.set(code, new Float64Array(width));
      cover(shares.get(code), (from - frame.from) * perSecond, (to - frame.from) * perSecond, share);
    });
    return [...shares].sort(([one], [other]) => one - other);
  }

  get fullRun() {
    return { from: 0, to: this.tasks.span || 1 };
  }

  /** Returns whether cached sums are exact enough for the pixels of a picture. */
  isFar(frame, width, count) {
    return count > FEW_PARTS && (frame.to - frame.from) / width >= this.fullRun.to / GAP_BINS;
  }

  /** Returns the mean in each pixel, from sums until the end of each part of the run. */
  sampled(sums, frame, width) {
    const means = new Float64Array(width);
    const perPixel = ((frame.to - frame.from) / this.fullRun.to / width) * GAP_BINS;
    const first = (frame.from / this.fullRun.to) * GAP_BINS;
    let last = 0;
    for (let x = -1; x < width; x += 1) {
      const place = Math.min(first + (x + 1) * perPixel, GAP_BINS - 1e-3);
      const at = place | 0;
      const next = sums[at] + (sums[at + 1] - sums[at]) * (place - at);
      if (x >= 0) means[x] = (next - last) / perPixel;
      last = next;
    }
    return means;
  }

  /**
   * Returns the time between two functions on a track at a point in time: its title, its bounds, and the
   * seconds of each category. Null if a function runs, or there is no such track.
   */
  at(lane, time) {
    const { tasks } = this;
    const [first, end] = this.rowsOf(lane, time, time);
    const sums = new Float64Array(this.names.length);
    for (let row = first; row < end; row += 1) {
      const [start, stop] = [tasks.starts[row], tasks.starts[row] + tasks.durations[row]];
      const before = time >= start - tasks.before[row] && time < start;
      if (!before && !(time > stop && time <= stop + tasks.after[row])) continue;
      const spent = before ? tasks.before[row] : tasks.after[row];
      const where = `${before ? "before" : "after"} ${shortened(tasks.functionName(row), 40)}`;
      this.addSide(row, before, 1, sums);
      const from = before ? start - spent : stop;
      return { title: `${formatSeconds(spent)} ${where}`, sums, lane, time, from, to: from + spent };
    }
    const idle = { from: NaN, to: NaN };
    this.free(lane, 0, tasks.span, (from, to) => {
      if (from <= time && time <= to) Object.assign(idle, { from, to });
    });
    if (Number.isNaN(idle.from)) return null;
    this.causes(lane, idle.from, idle.to, (code, share, from, to) => {
      sums[code] += share * (to - from);
    });
    return { title: `${formatSeconds(idle.to - idle.from)} without a task`, sums, lane, time, ...idle };
  }

  /** Returns the first idle time of a run's thread after the run, see `at`, or null. */
  after(row) {
    const { starts, durations, after, trackOfRow, span } = this.tasks;
    let middle = null;
    this.free(trackOfRow[row], starts[row] + durations[row] + after[row], span, (from, to) => {
      if (to > from) middle ??= (from + to) / 2;
    });
    return middle === null ? null : this.at(trackOfRow[row], middle);
  }
}

/** Adds the fraction of each pixel between two positions, times a weight. */
export function cover(pixels, begin, end, weight = 1) {
  const last = Math.min(end, pixels.length);
  for (let pixel = Math.max(0, Math.floor(begin)); pixel < last; pixel += 1) {
    pixels[pixel] += (Math.min(end, pixel + 1) - Math.max(begin, pixel)) * weight;
  }
}

/** Returns the sums of numbers up to each index, beginning with 0. */
function summedUp(numbers) {
  const sums = new Float32Array(numbers.length + 1);
  let sum = 0;
  for (let at = 0; at < numbers.length; at += 1) sums[at + 1] = sum += numbers[at];
  return sums;
}
