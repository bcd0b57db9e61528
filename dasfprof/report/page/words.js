// What the words of the page mean, for who meets them first: a sentence, and what usually helps.

import { visible } from "./format.js";

/** How task runs end, by Dask's own names; and what open ones were at. */
const STATES = {
  memory: ["has a result", "It ended, and its worker kept the result."],
  erred: ["failed", "Its function raised an error, or its worker died too often with it."],
  running: ["had not ended", "Its function ran when the recording ended, or when its worker was lost."],
  waiting: ["had not begun", "It was known, and had no thread yet when the recording ended."],
  "released by the client": ["let go", "The client gave it up before it ended."],
  cancelled: ["let go", "The client gave it up, or nobody wanted it any more."],
  released: ["let go", "Nobody wanted its result any more."],
  rescheduled: ["sent back", "It asked to run again, elsewhere."],
};

/** What the columns of tables mean that do not say so themselves. */
const COLUMNS = {
  "Memory usage (Mb)": ["Result (MB)", "The size of its result in memory, in millions of bytes."],
  p: ["p-value", "How often so large a difference, or a larger one, would come about if nothing had changed."],
};

/** A sentence with what usually helps, as the text of a tooltip. */
export function explained(meaning, helps) {
  return visible(helps ? `${meaning} What usually helps: ${helps}` : meaning);
}

/** The same of a status of task runs; empty of a word that is none. */
export function statusTitle(facts, name) {
  const [meaning, helps] = facts?.status_words?.[name] ?? ["", ""];
  return explained(meaning, helps);
}

/** How Dask's name of a state reads: with what it means, if that is another word. */
export function stateText(state) {
  const [word] = Object.hasOwn(STATES, state) ? STATES[state] : [""];
  return visible(word ? `${word} (${state})` : state);
}

/** What a state means. */
export function stateTitle(state) {
  return Object.hasOwn(STATES, state) ? STATES[state][1] : "";
}

/** What is shown in the head of a column, and what that means. */
export function columnWords(label, facts) {
  const status = label.replace(/ \((s|%)\)$/, "");
  return Object.hasOwn(COLUMNS, label) ? COLUMNS[label] : [label, statusTitle(facts, status)];
}
