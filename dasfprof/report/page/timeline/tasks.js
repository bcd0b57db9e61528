// The task runs. A row is a task run, by track and start; a key is the place of a Dask key.

import { breathe } from "../dom.js";
import { ascending, lastAtMost } from "../numbers.js";

/** Kinds of keys' beginnings, as dasfprof.database.keys numbers them. */
export const [NUMBERED, HEX, UUID, FLOAT, TUPLE] = [1, 2, 3, 4, 8];
const TICKS_PER_SECOND = 2 ** 22;

export class Tasks {
  /** @type {Float64Array} */ starts;
  /** @type {Float64Array} */ durations;
  /** @type {Uint32Array} */ keys;
  /** @type {Uint8Array} */ states;
  /** @type {?Uint16Array} The place of each row's step; null: none is known. */ steps;
  /** @type {?Uint16Array} The place of the line that built each row; null: none is known. */ lines;
  /** @type {Uint16Array} */ functionOfKey;
  /** @type {import("./gaps.js").Gaps} */ gaps;
  /** @type {import("./transfers.js").Transfers} */ transfers;
  // By `readGaps`, of each row.
  before; after; deserialize; disk_read; disk_write; core_wait; storage; cpu;

  constructor(facts, columns) {
    this.facts = facts;
    this.columns = columns;
    this.count = facts.tasks;
    this.tracks = facts.tracks;
    this.span = facts.span;
    /** All rows. */
    this.rows = Uint32Array.from({ length: this.count }, (_, row) => row);
    this.trackOffsets = Uint32Array.from([...facts.tracks.map((track) => track.first), this.count]);
  }

  /** Reads what a picture needs. */
  async readPicture() {
    const picture = await this.columns.group("picture");
    const { starts, durations, keys, functions, states, steps = null, lines = null } = picture;
    Object.assign(this, { starts, durations, keys, states, steps, lines, functionOfKey: functions });
    const { states: names, open_states: open, path } = this.facts;
    this.openStates = names.map((state) => open.includes(state));
    const erred = names.indexOf("erred");
    /** A flag for each row that failed; null: none did. */
    this.failed = erred < 0 ? null : Uint8Array.from(states, (state) => Number(state === erred));
    const { kinds, ...segments } = await this.columns.group("path");
    this.path = { ...segments, kinds: Array.from(kinds, (code) => path.kinds[code]) };
    this.trackOfRow = new (this.tracks.length > 0xffff ? Uint32Array : Uint16Array)(this.count);
    for (let track = 0; track < this.tracks.length; track += 1) {
      this.trackOfRow.fill(track, this.trackOffsets[track], this.trackOffsets[track + 1]);
    }
    this.secondsOfFunction = new Float64Array(this.facts.functions.length);
    for (let row = 0; row < this.count; row += 1) {
      this.secondsOfFunction[functions[keys[row]]] += durations[row];
    }
    this.functionsByTime = Array.from(this.secondsOfFunction.keys())
      .filter((code) => this.secondsOfFunction[code] > 0)
      .sort((one, other) => this.secondsOfFunction[other] - this.secondsOfFunction[one]);
  }

  /** Reads why threads were idle, and for how long runs held theirs, in and around their functions. */
  async readGaps() {
    this.cells = await this.columns.group("cells");
    Object.assign(this, await this.columns.group("held"));
  }

  /** Reads the keys' texts. */
  async readKeys() {
    this.heads = await this.columns.group("keys");
    this.tails = [0, 1, 2, 3].map((word) => this.heads[`tail${word}`] ?? null);
  }

  /** Reads the rest, with breaks in which the page answers. */
  async readRest() {
    await this.readKeys();
    await breathe();
    this.links = await this.columns.group("links");
    this.dependencies = keyLinks(this.links);
    this.dependents = null;
    this.runs = runsOfKeys(this.keys, this.starts, this.facts.keys);
    await breathe();
    this.details = await this.columns.group("details");
    await breathe();
    const spent = await this.columns.group("statuses");
    this.statuses = this.facts.statuses.map((name) => {
      const running = !Object.hasOwn(spent, name);
      return { name, running, seconds: running ? this.durations : spent[name] };
    });
    this.whole = true;
  }

  /** The place of a task run among those that have other inputs than their keys tell; -1: it has not. */
  linkedAt(row) {
    const at = lastAtMost(this.links.rows, row);
    return this.links.rows[at] === row ? at : -1;
  }

  functionOf(row) {
    return this.functionOfKey[this.keys[row]];
  }

  functionName(row) {
    return this.facts.functions[this.functionOf(row)];
  }

  /** The step of the pipeline, null if none is known of any task run. */
  stepName(row) {
    return this.steps ? this.facts.steps[this.steps[row]] : null;
  }

  /** The line of the program that built it, null if none is known of any task run. */
  lineName(row) {
    return this.lines ? this.facts.lines[this.lines[row]] : null;
  }

  workerName(row) {
    return this.facts.workers[this.tracks[this.trackOfRow[row]].worker];
  }

  trackTitle(track) {
    const { worker, thread } = this.tracks[track];
    return { worker: this.facts.workers[worker], thread: thread === null ? "event loop" : `${thread}` };
  }

  /** Whether a task run had not ended when the evidence does. */
  isOpen(row) {
    return this.openStates[this.states[row]] === true;
  }

  stateName(row) {
    return this.facts.states[this.states[row]] ?? "unknown";
  }

  /** The place of the status that a task run had longest; behind the last if nothing is known. */
  longestStatus(row) {
    let [longest, place] = [-1, this.statuses.length];
    for (const [at, { seconds }] of this.statuses.entries()) {
      if (seconds[row] > longest) [longest, place] = [seconds[row], at];
    }
    return place;
  }

  /** The functions that a task run calls: the place and the source of each. */
  codeOf(row) {
    const [known, name] = [this.facts.code, this.functionName(row)];
    return Object.hasOwn(known, name) ? known[name] : [];
  }

  /** What a task run logged: level, message, exception and line of each record. */
  logsOf(row) {
    return this.facts.logs[row] ?? [];
  }

  /** The traceback of a failed task run; empty: it has none here. */
  tracebackOf(row) {
    return this.facts.tracebacks[row] ?? "";
  }

  /** How the process ended of the worker on which a task run had not; empty: nothing tells. */
  exitOf(row) {
    return this.facts.exits[row] ?? "";
  }

  exceptionText(row) {
    return this.told("exceptions", row) ?? null;
  }

  /** The last line of the user's code in its traceback; null: unknown. */
  raisedAt(row) {
    return this.told("raised", row) ?? null;
  }

  /** What a task run was called with, by name and type; "" if unknown. */
  argumentsOf(row) {
    return this.told("arguments", row);
  }

  /** What Dask was asked of it: priority, retries, resources; "" if nothing is known. */
  annotationsOf(row) {
    return this.told("annotations", row);
  }

  /** The type, dtype and shape of the result, each "" if unknown. */
  result(row) {
    return this.told("results", row);
  }

  /** What a column of details has of a task run, in a list of texts. */
  told(name, row) {
    return this.details[`${name}_texts`][this.details[name][row]];
  }

  keyText(key) {
    const head = lastAtMost(this.heads.firsts, key);
    return this.heads.texts[head] + this.tailText(this.heads.kinds[head], key);
  }

  tailText(kind, key) {
    const word = (at) => (this.tails[at] ? this.tails[at][key] : 0);
    if (kind > TUPLE) {
      let text = String(word(0));
      for (let at = 1; at < kind - TUPLE; at += 1) text += `, ${word(at)}`;
      return `${text})`;
    }
    if (kind === NUMBERED) return String(word(0));
    if (kind === FLOAT) return floatText((word(0) * 2 ** 32 + word(1)) / TICKS_PER_SECOND);
    if (kind !== HEX && kind !== UUID) return "";
    const whole = !this.facts.crowded;
    const words = whole ? [0, 1, 2, 3] : [0, 1];
    const digits = words.map((at) => word(at).toString(16).padStart(8, "0")).join("");
    if (kind === HEX) return whole ? digits : `${digits}…`;
    if (whole) return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
    return digits.replace(/^(.{8})(.{4})/, "$1-$2-") + "…";
  }

  /** The task runs of a key, by their start. */
  runsOf(key) {
    return targetsOf(this.runs, key);
  }

  /** What a task run took: keys, and the run that made each (-1: none that is known). */
  inputsOf(row) {
    const at = this.linkedAt(row);
    if (at >= 0) {
      const { inputs, keys, producers } = this.links;
      const begin = inputs[at];
      const own = keys.subarray(begin, inputs[at + 1]);
      return Array.from(own, (key, place) => ({ key, row: producers[begin + place] - 1 }));
    }
    return Array.from(targetsOf(this.dependencies, this.keys[row]), (key) => {
      const runs = this.runsOf(key);
      return { key, row: runs.length === 1 ? runs[0] : -1 };
    });
  }

  /** The task runs that took the result of one, with their keys. */
  takersOf(row) {
    const key = this.keys[row];
    const takers = [];
    if (this.runsOf(key).length === 1) {
      this.dependents ??= reversed(this.dependencies);
      for (const taker of targetsOf(this.dependents, key)) {
        for (const run of this.runsOf(taker)) if (this.linkedAt(run) < 0) takers.push(run);
      }
    }
    const { rows, inputs, producers } = this.links;
    for (let at = producers.indexOf(row + 1); at >= 0; at = producers.indexOf(row + 1, at + 1))
      takers.push(rows[lastAtMost(inputs, at)]);
    return takers.map((taker) => ({ key: this.keys[taker], row: taker }));
  }
}

/** Writes a float as Python does: with a point. */
function floatText(number) {
  return Number.isInteger(number) ? `${number}.0` : String(number);
}

/** The places that another one is linked to. */
function targetsOf({ offsets, targets }, place) {
  return targets.subarray(offsets[place], offsets[place + 1]);
}

/** Links from each key to its task runs, by their start. */
function runsOfKeys(keys, starts, count) {
  const offsets = new Uint32Array(count + 1);
  for (const key of keys) offsets[key + 1] += 1;
  for (let key = 0; key < count; key += 1) offsets[key + 1] += offsets[key];
  const targets = new Uint32Array(keys.length);
  const free = offsets.slice();
  for (let row = 0; row < keys.length; row += 1) targets[free[keys[row]]++] = row;
  for (let key = 0; key < count; key += 1) {
    if (offsets[key + 1] - offsets[key] > 1) {
      const runs = targets.subarray(offsets[key], offsets[key + 1]);
      runs.sort((one, other) => starts[one] - starts[other]);
    }
  }
  return { offsets, targets };
}

function keyLinks({ offsets, distances }) {
  const targets = new Uint32Array(distances.length);
  for (let key = 0; key + 1 < offsets.length; key += 1)
    for (let at = offsets[key]; at < offsets[key + 1]; at += 1) targets[at] = key - (distances[at] | 0);
  return { offsets, targets };
}

function reversed({ offsets, targets }) {
  const back = { offsets: new Uint32Array(offsets.length), targets: new Uint32Array(targets.length) };
  for (const target of targets) back.offsets[target + 1] += 1;
  for (let key = 1; key < offsets.length; key += 1) back.offsets[key] += back.offsets[key - 1];
  const free = back.offsets.slice();
  for (let key = 0; key + 1 < offsets.length; key += 1) {
    for (let at = offsets[key]; at < offsets[key + 1]; at += 1) {
      back.targets[free[targets[at]]++] = key;
    }
  }
  return back;
}

/** The task runs by their duration, the shortest first. */
export function byDuration(tasks) {
  tasks.inLength ??= ascending(tasks.durations);
  return tasks.inLength;
}
