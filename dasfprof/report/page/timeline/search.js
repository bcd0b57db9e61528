// The search for task runs: by the texts of their keys, by their errors, logs, workers, steps,
// functions and these functions' files.

import { breathe } from "../dom.js";

/** How long a search may hold up the page. */
const SLICE_MS = 40;

/** A text that may be a key as this page tells keys. */
export function asTold(tasks, text) {
  return tasks.facts.crowded ? halved(text) : text;
}

/**
 * Finds the task runs about which a text tells that holds the query, whatever the case of its letters.
 *
 * Gives a flag for each row, or null if `isStale()` became true meanwhile.
 */
export async function findRows(tasks, query, isStale) {
  const keys = await findKeys(tasks, asTold(tasks, query).toLowerCase(), isStale);
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
    [(row) => tasks.details.exceptions[row], tasks.details.exceptions_texts],
    [(row) => tasks.details.raised[row], tasks.details.raised_texts],
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
    ...(tasks.lines ? [[(row) => tasks.lines[row], facts.lines]] : []),
  ];
}

/** A flag for each key whose text holds some small letters; null if `isStale()` became true meanwhile. */
async function findKeys(tasks, wanted, isStale) {
  const { texts, kinds, firsts } = tasks.heads;
  const found = new Uint8Array(tasks.facts.keys);
  let pause = performance.now() + SLICE_MS;
  for (const [head, text] of texts.entries()) {
    const begin = text.toLowerCase();
    if (begin.includes(wanted)) found.fill(1, firsts[head], firsts[head + 1]);
    else for (let key = firsts[head]; key < firsts[head + 1]; key += 1) {
      if ((begin + tasks.tailText(kinds[head], key)).includes(wanted)) found[key] = 1;
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
