// What stands between the task runs on a thread: the classes of time accounting, from gap_data.py.
// A worker's cells tell which shares of its threads' free time each class has; around its function a
// run holds its thread too.

import { formatSeconds, shortened } from "../format.js";
import { lastAtMost, overlap, sumOf } from "../numbers.js";
import { OTHER } from "./palette.js";
import { flattenView, seenIn } from "./views.js";

/** The classes of a function's time, and of what holds its thread around that, by their ids. */
const INSIDE = ["COMPUTING", "WAITING_FOR_A_CORE", "WAITING_FOR_STORAGE", "BLOCKED", "RUNNING_CPU_UNKNOWN"];
const AROUND = ["TASK_OVERHEAD", "DESERIALIZE", "UNSPILL_AND_SPILL"];
/** Parts of the run in which runs and cells are summed up once, for pictures of much of it. */
const GAP_BINS = 16_384;
/** Fewer runs of a lane, or cells, are painted one by one. */
const FEW_PARTS = 400;

export class Gaps {
  constructor(tasks) {
    this.tasks = tasks;
    /** Name, meaning, colour and kind of each class. */
    this.swatches = tasks.facts.gaps.classes;
    this.names = this.swatches.map(({ name }) => name);
    const codeOf = (id) => this.swatches.findIndex((one) => one.id === id);
    /** The codes of `INSIDE`, and of `AROUND`, in the order in which `heldIn` gives their shares. */
    this.inside = INSIDE.map(codeOf);
    this.around = AROUND.map(codeOf);
    /** The classes of accounts; one behind them is told, and in no sum: accounts have it under what it ran. */
    this.accounted = this.swatches.filter(({ seconds }) => seconds === undefined).length;
    /** The track of all runs of a thread, whatever the view leaves out. */
    this.flat = flattenView(tasks);
    /** Sums by lane and by worker, made when they are first wanted. */
    this.heldUntil = [];
    this.idleUntil = [];
    /** The classes that are painted alone; null: all are. */
    this.only = null;
  }

  /** Whether a track of a view has threads with gaps to tell. */
  has(track) {
    return track?.lanes !== undefined && this.tasks.tracks[track.lanes[0]].thread !== null;
  }

  /** Whether a class is painted. */
  shows(code) {
    return this.only === null || this.only.has(code);
  }

  /** What a run's thread did in classes that are painted alone: the share of the run's time, and a colour. */
  chosenPart(row) {
    const split = this.split(row);
    const shown = [...split.keys()].filter((at) => this.only.has(this.inside[at]) && split[at] > 0);
    shown.sort((one, other) => split[other] - split[one]);
    const share = sumOf(shown.map((at) => split[at])) / (this.tasks.durations[row] || 1);
    return [share, shown.length ? this.swatches[this.inside[shown[0]]].colour : OTHER];
  }

  /** The first cell of a lane's worker, and the one behind the last. */
  cellsOf(lane) {
    const { first } = this.tasks.facts.gaps;
    const { worker } = this.tasks.tracks[lane];
    return [first[worker], first[worker + 1]];
  }

  /** Calls `each(from, to)` with the times between two at which no run holds a lane's thread. */
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

  /** The rows of a lane that can matter between two times: one more on each side. */
  rowsOf(lane, from, to) {
    const { trackOffsets } = this.tasks;
    const [first, end] = seenIn(this.flat, this.tasks, lane, from, to);
    return [Math.max(first - 1, trackOffsets[lane]), Math.min(end + 1, trackOffsets[lane + 1])];
  }

  /** Calls `each(code, share, from, to)` for the classes of a lane's idle time between two times. */
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

  /** Seconds of a lane by class between two times, those in which tasks run too. */
  seconds(lane, from, to, sums = new Float64Array(this.names.length)) {
    const { starts, durations, before, after, cells: { begins } } = this.tasks;
    const [first, last] = this.rowsOf(lane, from, to);
    const [firstCell, endCell] = this.cellsOf(lane);
    const cells = { at: Math.max(lastAtMost(begins, from, firstCell, endCell), firstCell), end: endCell - 1 };
    let free = from;
    for (let row = first; row < last; row += 1) {
      const held = Math.min(starts[row] - before[row], to);
      if (held > free) this.addIdle(cells, free, held, sums);
      free = Math.max(free, starts[row] + durations[row] + after[row]);
      this.addRun(row, from, to, sums);
    }
    if (to > free) this.addIdle(cells, free, to, sums);
    return sums;
  }

  /** Adds a lane's idle time between two times; `cells`: goes on to the one in which it ends. */
  addIdle(cells, from, to, sums) {
    const { begins, offsets, classes, shares } = this.tasks.cells;
    while (cells.at < cells.end && begins[cells.at + 1] <= from) cells.at += 1;
    for (; cells.at < cells.end; cells.at += 1) {
      const stop = begins[cells.at + 1];
      const seconds = Math.min(stop, to) - Math.max(begins[cells.at], from);
      for (let at = offsets[cells.at]; at < offsets[cells.at + 1] && seconds > 0; at += 1) {
        if (classes[at] < this.accounted) sums[classes[at]] += shares[at] * seconds;
      }
      if (stop >= to) return;
    }
  }

  /** Adds what a run held its thread for between two times. */
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

  /** Adds a share of what a run held its thread for before its function, or after it. */
  addSide(row, before, share, sums) {
    const { tasks } = this;
    const whole = before ? tasks.before[row] : tasks.after[row];
    const disk = Math.min(before ? tasks.disk_read[row] : tasks.disk_write[row], whole);
    const deserialize = before ? Math.min(tasks.deserialize[row], whole - disk) : 0;
    const parts = [whole - disk - deserialize, deserialize, disk];
    for (const [at, seconds] of parts.entries()) sums[this.around[at]] += seconds * share;
  }

  /** The seconds of a run's function by what its thread did, in the order of `inside`. */
  split(row) {
    const { durations, cpu, core_wait: waits, storage } = this.tasks;
    const whole = durations[row];
    if (Number.isNaN(cpu[row])) return [0, 0, 0, 0, whole];
    const computing = Math.min(cpu[row], whole);
    const waiting = Math.min(waits[row] || 0, whole - computing);
    const stored = Math.min(storage[row], whole - computing - waiting);
    return [computing, waiting, stored, whole - computing - waiting - stored, 0];
  }

  /** The share of each pixel in which runs hold the threads of lanes, and by `around` in which not for a function. */
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
    if (this.isFar(frame, width, end - first)) {
      this.heldUntil[lane] ??= this.heldExactly(lane, this.whole, GAP_BINS).map(summedUp);
      return this.heldUntil[lane].map((sums) => this.sampled(sums, frame, width));
    }
    return this.heldExactly(lane, frame, width);
  }

  heldExactly(lane, frame, width) {
    const { starts, durations, before, after, deserialize, disk_read: read, disk_write: written } = this.tasks;
    const [held, overhead, code, disk] = Array.from({ length: 1 + AROUND.length }, () => new Float64Array(width));
    // As in `addSide`: what was read, then what was deserialised, then all else.
    const share = (seconds, begin, end, most, pixels) => {
      const part = seconds > 0 && end > begin ? Math.min((seconds * perSecond) / (end - begin), most) : 0;
      if (part > 0) cover(pixels, begin, end, part);
      return most - part;
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

  /** The share that each class has of the idle time in each pixel, for a lane's worker. */
  idle(lane, frame, width) {
    // The lanes of a worker follow one another.
    const { worker } = this.tasks.tracks[lane];
    const wanted = [worker, frame.from, frame.to, width].join(" ");
    if (this.lastIdle?.wanted !== wanted)
      this.lastIdle = { wanted, shares: this.idleOfWorker(lane, frame, width) };
    return this.lastIdle.shares;
  }

  idleOfWorker(lane, frame, width) {
    const [first, end] = this.cellsOf(lane);
    if (this.isFar(frame, width, end - first)) {
      const { worker } = this.tasks.tracks[lane];
      this.idleUntil[worker] ??= this.idleExactly(lane, this.whole, GAP_BINS).map(
        ([code, shares]) => [code, summedUp(shares)],
      );
      return this.idleUntil[worker].map(([code, sums]) => [code, this.sampled(sums, frame, width)]);
    }
    return this.idleExactly(lane, frame, width);
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

  get whole() {
    return { from: 0, to: this.tasks.span || 1 };
  }

  /** Whether sums that were made once tell a picture as exactly as its pixels do. */
  isFar(frame, width, count) {
    return count > FEW_PARTS && (frame.to - frame.from) / width >= this.whole.to / GAP_BINS;
  }

  /** The mean in each pixel of what sums until the end of each part of the run are of. */
  sampled(sums, frame, width) {
    const means = new Float64Array(width);
    const perPixel = ((frame.to - frame.from) / this.whole.to / width) * GAP_BINS;
    const first = (frame.from / this.whole.to) * GAP_BINS;
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
   * What is told of a time at which no function runs on a lane's thread: from when to when that is,
   * and the seconds of each class; null: the time is in a function, or in no lane's.
   */
  told(lane, time) {
    const { tasks } = this;
    const [first, end] = this.rowsOf(lane, time, time);
    for (let row = first; row < end; row += 1) {
      const [start, stop] = [tasks.starts[row], tasks.starts[row] + tasks.durations[row]];
      const before = time >= start - tasks.before[row] && time < start;
      if (!before && !(time > stop && time <= stop + tasks.after[row])) continue;
      const spent = before ? tasks.before[row] : tasks.after[row];
      const where = `${before ? "before" : "after"} ${shortened(tasks.functionName(row), 40)}`;
      const sums = new Float64Array(this.names.length);
      this.addSide(row, before, 1, sums);
      const from = before ? start - spent : stop;
      return { title: `${formatSeconds(spent)} ${where}`, sums, lane, time, from, to: from + spent };
    }
    const found = [];
    this.free(lane, 0, tasks.span, (from, to) => {
      if (from <= time && time <= to) found.push({ from, to });
    });
    if (!found.length) return null;
    const free = found.at(-1);
    const sums = new Float64Array(this.names.length);
    this.causes(lane, free.from, free.to, (code, share, from, to) => {
      sums[code] += share * (to - from);
    });
    return { title: `${formatSeconds(free.to - free.from)} without a task`, sums, lane, time, ...free };
  }

  /** The first time behind a run at which its lane's thread is free, told so; null: there is none. */
  behind(row) {
    const { starts, durations, after, trackOfRow, span } = this.tasks;
    const found = [];
    this.free(trackOfRow[row], starts[row] + durations[row] + after[row], span, (from, to) => {
      if (to > from) found.push((from + to) / 2);
    });
    return found.length ? this.told(trackOfRow[row], found[0]) : null;
  }
}

/** Adds how much of each pixel lies between two places, times a weight. */
export function cover(pixels, begin, end, weight = 1) {
  const last = Math.min(end, pixels.length);
  for (let pixel = Math.max(0, Math.floor(begin)); pixel < last; pixel += 1) {
    pixels[pixel] += (Math.min(end, pixel + 1) - Math.max(begin, pixel)) * weight;
  }
}

/** The sums of numbers until each place, 0 first. */
function summedUp(numbers) {
  const sums = new Float32Array(numbers.length + 1);
  let sum = 0;
  for (let at = 0; at < numbers.length; at += 1) sums[at + 1] = sum += numbers[at];
  return sums;
}
