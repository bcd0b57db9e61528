// The search for task runs: by their keys, among the texts of their begins and the numbers that they
// end in; by their errors, logs, workers, steps, functions and these functions' files.

import { breathe } from "../dom.js";
import { HEX, NUMBERED, TUPLE } from "./tasks.js";

/** A key's numbers are written with these alone. */
const TAIL_CHARACTERS = /^[0-9a-f, ).…-]*$/;
/** How long a search may hold up the page. */
const SLICE_MS = 40;

/** A text that may be a key as this page tells keys. */
export function asTold(tasks, text) {
  return tasks.facts.crowded ? halved(text) : text;
}

/**
 * A test of whether the hash of a key has some digits, at its begin or anywhere: it compares
 * numbers, as texts of a million hashes take a second to make.
 */
function hashTest(tasks, text, atBegin) {
  const digits = text.replace(/…$/, "");
  if (!/^[0-9a-f]+$/.test(digits)) return () => 0;
  tasks.noTail ??= new Uint32Array(tasks.facts.keys);
  const words = tasks.tails.map((tail) => tail ?? tasks.noTail);
  const last = atBegin ? 0 : (tasks.facts.crowded ? 16 : 32) - digits.length;
  const value = Number.parseInt(digits.slice(0, 8).padEnd(8, "0"), 16) | 0;
  const mask = digits.length < 8 ? ~(0xffffffff >>> (4 * digits.length)) : -1;
  return (key) => {
    for (let at = 0; at <= last; at += 1) {
      const word = at >> 3;
      const shift = (at & 7) * 4;
      let window = words[word][key] << shift;
      if (shift && word < 3) window |= words[word + 1][key] >>> (32 - shift);
      if (((window ^ value) & mask) !== 0) continue;
      if (digits.length <= 8 || tasks.tailText(HEX, key).startsWith(digits, at)) return 1;
    }
    return 0;
  };
}

/**
 * Finds the task runs about which a text tells that holds the query, whatever the case of its letters.
 *
 * Gives a flag for each row, or null if `isStale()` became true meanwhile.
 */
export async function findRows(tasks, query, isStale) {
  const keys = await findKeys(tasks, query, isStale);
  if (keys === null) return null;
  const found = new Uint8Array(tasks.count);
  for (let row = 0; row < tasks.count; row += 1) found[row] = keys[tasks.keys[row]];
  const wanted = query.toLowerCase();
  const holds = (text) => Number(Boolean(text) && text.toLowerCase().includes(wanted));
  for (const [codeOfRow, texts] of toldOfRows(tasks, query)) {
    const codes = Uint8Array.from(texts, holds);
    if (!codes.includes(1)) continue;
    for (let row = 0; row < tasks.count; row += 1) if (codes[codeOfRow(row)]) found[row] = 1;
  }
  for (const [row, text] of Object.entries(tasks.facts.tracebacks)) if (holds(text)) found[row] = 1;
  for (const [row, records] of Object.entries(tasks.facts.logs)) {
    if (records.some((record) => holds(record.join(" ")))) found[row] = 1;
  }
  return found;
}

/** Lists of texts, each with which of them is about a row. Mere digits are no one's name. */
function toldOfRows(tasks, query) {
  const { facts } = tasks;
  const errors = [
    [(row) => tasks.exceptions[row], tasks.exceptionTexts],
    [(row) => tasks.raised[row], tasks.raisedTexts],
  ];
  if (/^[0-9]*$/.test(query)) return errors;
  const placesOf = (name) => (Object.hasOwn(facts.code, name) ? facts.code[name] : []);
  const functions = facts.functions.map((name) => [name, ...placesOf(name).map(([place]) => place)].join("\n"));
  const workers = tasks.tracks.map(({ worker }) => facts.workers[worker]);
  return [
    ...errors,
    [(row) => tasks.functionOf(row), functions],
    [(row) => tasks.trackOfRow[row], workers],
    ...(tasks.steps ? [[(row) => tasks.steps[row], facts.steps]] : []),
  ];
}

/** A flag for each key whose text holds the query; null if `isStale()` became true meanwhile. */
async function findKeys(tasks, query, isStale) {
  const wanted = asTold(tasks, query).toLowerCase();
  const found = new Uint8Array(tasks.facts.keys);
  const digits = /^[0-9]+$/.test(wanted) ? new NumbersWith(wanted) : null;
  let pause = performance.now() + SLICE_MS;
  for (let head = 0; head < tasks.headTexts.length; head += 1) {
    const begin = tasks.headFirsts[head];
    const end = head + 1 < tasks.headFirsts.length ? tasks.headFirsts[head + 1] : tasks.facts.keys;
    const text = tasks.headTexts[head].toLowerCase();
    const kind = tasks.headKinds[head];
    if (text.includes(wanted)) {
      found.fill(1, begin, end);
      continue;
    }
    const overlap = longestOverlap(text, wanted);
    if (overlap < 0) continue;
    const words = kind > TUPLE ? kind - TUPLE : kind === NUMBERED ? 1 : 0;
    const ending = text.slice(text.length - overlap);
    const hashed = kind === HEX ? hashTest(tasks, wanted.slice(overlap), overlap > 0) : null;
    for (let key = begin; key < end; key += 1) {
      if (digits && words && overlap === 0) {
        for (let word = 0; word < words; word += 1) {
          if (digits.has(tasks.tails[word] ? tasks.tails[word][key] : 0)) found[key] = 1;
        }
      } else if (hashed) found[key] = hashed(key);
      else if ((ending + tasks.tailText(kind, key)).includes(wanted)) found[key] = 1;
      if ((key & 0xfff) === 0 && performance.now() > pause) {
        await breathe();
        if (isStale()) return null;
        pause = performance.now() + SLICE_MS;
      }
    }
  }
  return found;
}

/** A complete key as the page tells it, where it has the first half of each hash alone. */
function halved(text) {
  return text
    .replace(/([0-9a-f]{16})[0-9a-f]{16}$/i, "$1…")
    .replace(/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4})-[0-9a-f]{4}-[0-9a-f]{12}$/i, "$1…");
}

/** Remembers which small numbers have some digits in them. */
class NumbersWith {
  constructor(digits) {
    this.digits = digits;
    this.known = new Uint8Array(1 << 16);
  }

  has(number) {
    if (number >= this.known.length) return String(number).includes(this.digits);
    if (!this.known[number]) this.known[number] = String(number).includes(this.digits) ? 2 : 1;
    return this.known[number] === 2;
  }
}

/**
 * How much of the text's end the query may begin with if the rest of it is a key's numbers: the
 * most such characters, -1 if there is no such way.
 */
function longestOverlap(text, query) {
  for (let length = Math.min(text.length, query.length - 1); length >= 0; length -= 1) {
    if (text.endsWith(query.slice(0, length)) && TAIL_CHARACTERS.test(query.slice(length))) {
      return length;
    }
  }
  return -1;
}
