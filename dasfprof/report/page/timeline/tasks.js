// The task runs. A row is a task run, by track and start; a key is the place of a Dask key.

import { breathe } from "../dom.js";
import { ascending, lastAtMost } from "../numbers.js";

/** Kinds of keys' beginnings, as dasfprof.database.keys numbers them. */
export const [NUMBERED, HEX, UUID, FLOAT, TUPLE] = [1, 2, 3, 4, 8];
const TICKS_PER_SECOND = 2 ** 22;

export class Tasks {
  constructor(facts, columns) {
    this.facts = facts;
    this.columns = columns;
    this.count = facts.tasks;
    this.tracks = facts.tracks;
    this.span = facts.span;
    this.trackOffsets = Uint32Array.from([...facts.tracks.map((track) => track.first), this.count]);
  }

  /** Reads what a picture needs. */
  async readPicture() {
    const { columns } = this;
    this.starts = await columns.amounts("starts");
    this.durations = await columns.amounts("durations");
    this.keys = await columns.read("keys");
    this.functionOfKey = await columns.read("functions");
    this.states = await columns.read("states");
    const { states, open_states: open } = this.facts;
    this.openStates = states.map((state) => open.includes(state));
    const erred = states.indexOf("erred");
    /** A flag for each row that failed; null: none did. */
    this.failed = erred < 0 ? null : Uint8Array.from(this.states, (state) => Number(state === erred));
    this.steps = columns.has("steps") ? await columns.read("steps") : null;
    const kinds = await columns.read("path_kinds");
    this.path = {
      starts: await columns.amounts("path_starts"),
      durations: await columns.amounts("path_durations"),
      kinds: Array.from(kinds, (code) => this.facts.path.kinds[code]),
      rows: await columns.read("path_rows"),
    };
    this.trackOfRow = new (this.tracks.length > 0xffff ? Uint32Array : Uint16Array)(this.count);
    for (let track = 0; track < this.tracks.length; track += 1) {
      this.trackOfRow.fill(track, this.trackOffsets[track], this.trackOffsets[track + 1]);
    }
    this.secondsOfFunction = new Float64Array(this.facts.functions.length);
    for (let row = 0; row < this.count; row += 1) {
      this.secondsOfFunction[this.functionOfKey[this.keys[row]]] += this.durations[row];
    }
    this.functionsByTime = Array.from(this.secondsOfFunction.keys())
      .filter((code) => this.secondsOfFunction[code] > 0)
      .sort((one, other) => this.secondsOfFunction[other] - this.secondsOfFunction[one]);
  }

  /** Reads why threads were idle, and for how long runs held theirs around their functions. */
  async readGaps() {
    const { columns } = this;
    for (const name of ["before", "after", "deserialize", "disk_read", "disk_write", "core_wait"])
      this[name] = await columns.amounts(name);
    this.cpu = await columns.amounts("cpu");
    this.gapBegins = await columns.amounts("gap_begins");
    this.gapClasses = await columns.read("gap_classes");
    const { whole } = this.facts.gaps;
    this.gapShares = Float64Array.from(await columns.read("gap_shares"), (parts) => parts / whole);
    const counts = await columns.read("gap_counts");
    this.gapOffsets = new Uint32Array(counts.length + 1);
    for (let cell = 0; cell < counts.length; cell += 1)
      this.gapOffsets[cell + 1] = this.gapOffsets[cell] + counts[cell];
  }

  /** Reads the keys' texts. */
  async readKeys() {
    const { columns } = this;
    const texts = await columns.read("head_texts");
    this.headKinds = await columns.read("head_kinds");
    this.headFirsts = await columns.read("head_firsts");
    this.tails = [];
    for (let word = 0; word < 4; word += 1) {
      this.tails.push(columns.has(`tail${word}`) ? await columns.read(`tail${word}`) : null);
    }
    this.headTexts = texts;
  }

  /** Reads the rest, with breaks in which the page answers. */
  async readRest() {
    const { columns } = this;
    await this.readKeys();
    await breathe();
    const counts = await columns.read("dependency_counts");
    const distances = await columns.read("dependency_distances");
    this.dependencies = keyLinks(counts, distances);
    this.dependents = null;
    this.runs = runsOfKeys(this.keys, this.starts, this.facts.keys);
    await this.readLinks();
    await breathe();
    this.sizes = await columns.amounts("sizes");
    this.inputSizes = await columns.amounts("input_sizes");
    this.results = await columns.read("results");
    this.resultTexts = await columns.read("result_texts");
    this.exceptions = await columns.read("exceptions");
    this.exceptionTexts = await columns.read("exception_texts");
    this.raised = await columns.read("raised");
    this.raisedTexts = await columns.read("raised_texts");
    this.arguments = await columns.read("arguments");
    this.argumentTexts = await columns.read("argument_texts");
    this.annotations = await columns.read("annotations");
    this.annotationTexts = await columns.read("annotation_texts");
    this.statuses = [];
    for (const name of this.facts.statuses) {
      const running = !columns.has(`status:${name}`);
      const seconds = running ? this.durations : await columns.amounts(`status:${name}`);
      this.statuses.push({ name, seconds, running });
      await breathe();
    }
    this.whole = true;
  }

  /** Reads the inputs of the task runs that have others than their keys tell. */
  async readLinks() {
    const { columns } = this;
    this.linked = await columns.read("linked_rows");
    const counts = await columns.read("link_counts");
    this.linkOffsets = new Uint32Array(counts.length + 1);
    for (let at = 0; at < counts.length; at += 1) this.linkOffsets[at + 1] = this.linkOffsets[at] + counts[at];
    this.linkKeys = await columns.read("link_keys");
    this.linkProducers = await columns.read("link_producers");
  }

  /** The place of a task run among those that have other inputs than their keys tell; -1: it has not. */
  linkedAt(row) {
    const at = lastAtMost(this.linked, row);
    return this.linked[at] === row ? at : -1;
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

  workerName(row) {
    return this.facts.workers[this.tracks[this.trackOfRow[row]].worker];
  }

  trackTitle(track) {
    const { worker, thread } = this.tracks[track];
    return { worker: this.facts.workers[worker], thread: thread === null ? "loop" : `${thread}` };
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
    return this.exceptionTexts[this.exceptions[row]] ?? null;
  }

  /** The last line of the user's code in its traceback; null: unknown. */
  raisedAt(row) {
    return this.raisedTexts[this.raised[row]] ?? null;
  }

  /** What a task run was called with, by name and type; "" if unknown. */
  argumentsOf(row) {
    return this.argumentTexts[this.arguments[row]];
  }

  /** What Dask was asked of it: priority, retries, resources; "" if nothing is known. */
  annotationsOf(row) {
    return this.annotationTexts[this.annotations[row]];
  }

  /** The type, dtype and shape of the result, each "" if unknown. */
  result(row) {
    return this.resultTexts[this.results[row]];
  }

  keyText(key) {
    const head = lastAtMost(this.headFirsts, key);
    return this.headTexts[head] + this.tailText(this.headKinds[head], key);
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
      const [begin, end] = [this.linkOffsets[at], this.linkOffsets[at + 1]];
      return Array.from(this.linkKeys.subarray(begin, end), (key, place) => ({
        key,
        row: this.linkProducers[begin + place] - 1,
      }));
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
    for (let at = this.linkProducers.indexOf(row + 1); at >= 0; at = this.linkProducers.indexOf(row + 1, at + 1)) {
      takers.push(this.linked[lastAtMost(this.linkOffsets, at)]);
    }
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

function keyLinks(counts, distances) {
  const offsets = new Uint32Array(counts.length + 1);
  const targets = new Uint32Array(distances.length);
  for (let key = 0, at = 0; key < counts.length; key += 1) {
    for (const end = at + counts[key]; at < end; at += 1) targets[at] = key - (distances[at] | 0);
    offsets[key + 1] = at;
  }
  return { offsets, targets };
}

function reversed({ offsets, targets }) {
  const back = {
    offsets: new Uint32Array(offsets.length),
    targets: new Uint32Array(targets.length),
  };
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
