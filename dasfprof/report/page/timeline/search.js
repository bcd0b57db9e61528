// The search for task runs by their keys, errors, logs, workers, steps, functions, and the files of these.

import { breathe } from "../dom.js";

/** Maximum milliseconds for which a search blocks the page. */
const SLICE_MS = 40;

/** Returns a text in the form in which the page shows keys. */
export function asShown(tasks, text) {
  return tasks.facts.crowded ? halved(text) : text;
}

/** Returns a flag for each row, 1 if a text about it contains the query. Null if `isStale()` became true. */
export async function findRows(tasks, query, isStale) {
  const keys = await findKeys(tasks, asShown(tasks, query).toLowerCase(), isStale);
  if (keys === null) return null;
  const matches = Uint8Array.from(tasks.keys, (key) => keys[key]);
  const wanted = query.toLowerCase();
  const holds = (text) => Number(Boolean(text) && text.toLowerCase().includes(wanted));
  for (const [codeOfRow, texts] of textsOfRows(tasks, query)) {
    const codes = Uint8Array.from(texts, holds);
    if (!codes.includes(1)) continue;
    for (let row = 0; row < tasks.count; row += 1) if (codes[codeOfRow(row)]) matches[row] = 1;
  }
  for (const [row, text] of Object.entries(tasks.facts.tracebacks)) if (holds(text)) matches[row] = 1;
  for (const [row, records] of Object.entries(tasks.facts.logs)) {
    if (records.some((record) => holds(record.join(" ")))) matches[row] = 1;
  }
  return matches;
}

/** Returns lists of texts, each with a function from a row to its text. Numbers are not searched in names. */
function textsOfRows(tasks, query) {
  const { facts } = tasks;
  const errors = [
    [(row) => tasks.details.exceptions[row], tasks.details.exceptions_texts],
    [(row) => tasks.details.raised[row], tasks.details.raised_texts],
  ];
  if (/^[0-9]*$/.test(query)) return errors;
  const functions = facts.functions.map((name) => [name, ...tasks.codeOf(name).map(([place]) => place)].join("\n"));
  const workers = tasks.tracks.map(({ worker }) => facts.workers[worker]);
  return [
    ...errors,
    [(row) => tasks.functionOf(row), functions],
    [(row) => tasks.trackOfRow[row], workers],
    ...(tasks.steps ? [[(row) => tasks.steps[row], facts.steps]] : []),
    ...(tasks.lines ? [[(row) => tasks.lines[row], facts.lines]] : []),
  ];
}

/** Returns a flag for each key, 1 if its text contains the query. Null if `isStale()` became true. */
async function findKeys(tasks, wanted, isStale) {
  const { texts, kinds, firsts } = tasks.heads;
  const matches = new Uint8Array(tasks.facts.keys);
  let pause = performance.now() + SLICE_MS;
  for (const [head, text] of texts.entries()) {
    const begin = text.toLowerCase();
    if (begin.includes(wanted)) matches.fill(1, firsts[head], firsts[head + 1]);
    else for (let key = firsts[head]; key < firsts[head + 1]; key += 1) {
      if ((begin + tasks.tailText(kinds[head], key)).includes(wanted)) matches[key] = 1;
      if ((key & 0xfff) === 0 && performance.now() > pause) {
        await breathe();
        if (isStale()) return null;
        pause = performance.now() + SLICE_MS;
      }
    }
  }
  return matches;
}

/** Returns a complete key with only the first half of its hash. */
function halved(text) {
  return text
    .replace(/([0-9a-f]{16})[0-9a-f]{16}$/i, "$1…")
    .replace(/([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4})-[0-9a-f]{4}-[0-9a-f]{12}$/i, "$1…");
}
