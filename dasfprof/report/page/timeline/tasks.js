// The task runs. A row is a task run, ordered by track and start. A key is the index of a Dask key.

import { breathe } from "../dom.js";
import { ascending, lastAtMost } from "../numbers.js";

/** Kinds of prefixes of keys, see dasfprof.database.keys. */
export const [NUMBERED, HEX, UUID, FLOAT, TUPLE] = [1, 2, 3, 4, 8];
const TICKS_PER_SECOND = 2 ** 22;
/** Maximum seconds by which a result seems to be used before its task run ended. */
const CLOCK_ERROR = 0.001;

export class Tasks {
  /** @type {Float64Array} */ starts;
  /** @type {Float64Array} */ durations;
  /** @type {Uint32Array} */ keys;
  /** @type {Uint8Array} */ states;
  /** @type {?Uint16Array} The index of each row's step, or null if no step is known. */ steps;
  /** @type {?Uint16Array} The index of the line that built each row, or null if no line is known. */ lines;
  /** @type {Uint16Array} */ functionOfKey;
  /** @type {import("./gaps.js").Gaps} */ gaps;
  /** @type {import("./transfers.js").Transfers} */ transfers;
  // Set by `readGaps`, for each row.
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

  /** Reads the columns that the bars need. */
  async readPicture() {
    const picture = await this.columns.group("picture");
    const { starts, durations, keys, functions, states, steps = null, lines = null } = picture;
    Object.assign(this, { starts, durations, keys, states, steps, lines, functionOfKey: functions });
    const { states: names, open_states: open, path } = this.facts;
    this.openStates = names.map((state) => open.includes(state));
    const erred = names.indexOf("erred");
    /** A flag for each row, 1 if it failed, or null if none did. */
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

  /** Reads the reasons of idle time, and for how long runs occupied their threads around their functions. */
  async readGaps() {
    this.cells = await this.columns.group("cells");
    Object.assign(this, await this.columns.group("held"));
  }

  /** Reads the texts of keys. */
  async readKeys() {
    this.heads = await this.columns.group("keys");
    this.tails = [0, 1, 2, 3].map((word) => this.heads[`tail${word}`] ?? null);
  }

  /** Reads all other columns, with breaks in which the page handles events. */
  async readDetails() {
    await this.readKeys();
    await breathe();
    this.dependencies = keyLinks(await this.columns.group("links"));
    this.dependents = null;
    this.runs = runsOfKeys(this);
    await breathe();
    this.details = await this.columns.group("details");
    await breathe();
    const spent = await this.columns.group("statuses");
    this.statuses = this.facts.statuses.map((name) => {
      const running = !Object.hasOwn(spent, name);
      return { name, running, seconds: running ? this.durations : spent[name] };
    });
    this.complete = true;
  }

  functionOf(row) {
    return this.functionOfKey[this.keys[row]];
  }

  functionName(row) {
    return this.facts.functions[this.functionOf(row)];
  }

  /** Returns the step of a task run, or null if no step is known. */
  stepName(row) {
    return this.steps ? this.facts.steps[this.steps[row]] : null;
  }

  /** Returns the line that built a task run, or null if no line is known. */
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

  /** Returns whether a task run was unfinished when the recording ended. */
  isOpen(row) {
    return this.openStates[this.states[row]] === true;
  }

  stateName(row) {
    return this.facts.states[this.states[row]] ?? "unknown";
  }

  /** Returns the index of the longest status of a task run, or the number of statuses if none is known. */
  longestStatus(row) {
    let [longest, place] = [-1, this.statuses.length];
    for (const [at, { seconds }] of this.statuses.entries()) {
      if (seconds[row] > longest) [longest, place] = [seconds[row], at];
    }
    return place;
  }

  /** Returns the location, source, file and line of each function that tasks of a name call. */
  codeOf(name) {
    return Object.hasOwn(this.facts.code, name) ? this.facts.code[name] : [];
  }

  /** Returns the value of a task run in a column of texts, such as arguments or exceptions, if known. */
  detail(name, row) {
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
    const complete = !this.facts.crowded;
    const words = complete ? [0, 1, 2, 3] : [0, 1];
    const digits = words.map((at) => word(at).toString(16).padStart(8, "0")).join("");
    if (kind === HEX) return complete ? digits : `${digits}…`;
    if (complete) return digits.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
    return digits.replace(/^(.{8})(.{4})/, "$1-$2-") + "…";
  }

  /** Returns the task runs of a key, ordered by start. */
  runsOf(key) {
    return targetsOf(this.runs, key);
  }

  /** Returns the task run of a key whose result another task run used, or -1 if none ended before it. */
  producerOf(key, row) {
    const start = this.starts[row];
    const runs = this.runsOf(key).filter((run) => this.starts[run] < start);
    const ended = runs.filter((run) => this.starts[run] + this.durations[run] <= start + CLOCK_ERROR);
    return ended.at(-1) ?? runs.at(-1) ?? -1;
  }

  /** Returns the inputs of a task run: their keys, and the row that made each, or -1 if unknown. */
  inputsOf(row) {
    const keys = targetsOf(this.dependencies, this.keys[row]);
    return Array.from(keys, (key) => ({ key, row: this.producerOf(key, row) }));
  }

  /** Returns the task runs that used the result of a task run, with their keys. */
  takersOf(row) {
    this.dependents ??= reversed(this.dependencies);
    const takers = [];
    for (const key of targetsOf(this.dependents, this.keys[row])) {
      for (const run of this.runsOf(key)) {
        if (this.producerOf(this.keys[row], run) === row) takers.push({ key, row: run });
      }
    }
    return takers;
  }
}

/** Returns a float with a decimal point, as Python prints it. */
function floatText(number) {
  return Number.isInteger(number) ? `${number}.0` : String(number);
}

/** Returns the targets of an index. */
function targetsOf({ offsets, targets }, place) {
  return targets.subarray(offsets[place], offsets[place + 1]);
}

/** Returns links from each group to its members: `groups` has the group of each member. */
export function linksByGroup(count, groups, members) {
  const offsets = new Uint32Array(count + 1);
  for (const group of groups) offsets[group + 1] += 1;
  for (let group = 0; group < count; group += 1) offsets[group + 1] += offsets[group];
  const targets = new Uint32Array(groups.length);
  const free = offsets.slice();
  for (let at = 0; at < groups.length; at += 1) targets[free[groups[at]]++] = members[at];
  return { offsets, targets };
}

/** Returns links from each key to its task runs, ordered by start. */
function runsOfKeys({ keys, rows, starts, facts }) {
  const links = linksByGroup(facts.keys, keys, rows);
  for (let key = 0; key < facts.keys; key += 1) {
    const runs = targetsOf(links, key);
    if (runs.length > 1) runs.sort((one, other) => starts[one] - starts[other]);
  }
  return links;
}

function keyLinks({ offsets, distances }) {
  const targets = new Uint32Array(distances.length);
  for (let key = 0; key + 1 < offsets.length; key += 1)
    for (let at = offsets[key]; at < offsets[key + 1]; at += 1) targets[at] = key - (distances[at] | 0);
  return { offsets, targets };
}

function reversed({ offsets, targets }) {
  const sources = new Uint32Array(targets.length);
  for (let key = 0; key + 1 < offsets.length; key += 1) sources.fill(key, offsets[key], offsets[key + 1]);
  return linksByGroup(offsets.length - 1, targets, sources);
}

/** Returns the rows ordered by duration. */
export function byDuration(tasks) {
  tasks.inLength ??= ascending(tasks.durations);
  return tasks.inLength;
}
