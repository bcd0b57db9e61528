// Explanations of words on the page, for tooltips: the meaning, and what usually helps.

import { visible } from "./format.js";

/** Final states of task runs by Dask's names: a plain word, and the meaning. */
const STATES = {
  memory: ["succeeded", "It finished, and its worker kept the result."],
  erred: ["failed", "Its function raised an error, or its worker died too often while it ran."],
  running: ["unfinished", "Its function was running when the recording ended, or when its worker died."],
  waiting: ["not started", "It was submitted, and had no thread when the recording ended."],
  "released by the client": ["released", "The client released it before it finished."],
  cancelled: ["cancelled", "The client cancelled it, or no client needed it any more."],
  released: ["released", "No client needed its result any more."],
  rescheduled: ["rescheduled", "It asked to run again on another worker."],
};

/** Column labels that the page replaces, with their meanings. */
const COLUMNS = {
  "Memory usage (Mb)": ["Result (MB)", "The size of its result in memory, in millions of bytes."],
  p: ["p-value", "How often a difference at least this large would occur by chance."],
};

/** Returns a meaning with what usually helps, as the text of a tooltip. */
export function explained(meaning, helps) {
  return visible(helps ? `${meaning} What usually helps: ${helps}` : meaning);
}

/** Returns the explanation of a status of task runs, or an empty text for another word. */
export function statusTitle(facts, name) {
  const [meaning, helps] = facts?.status_words?.[name] ?? ["", ""];
  return explained(meaning, helps);
}

/** Returns a plain word for a state with Dask's name, or only one of them if they are equal. */
export function stateText(state) {
  const [word] = Object.hasOwn(STATES, state) ? STATES[state] : [state];
  return visible(word === state ? state : `${word} (${state})`);
}

/** Returns the meaning of a state, or an empty text. */
export function stateTitle(state) {
  return Object.hasOwn(STATES, state) ? STATES[state][1] : "";
}

/** Returns the heading of a column and its tooltip. */
export function columnWords(label, facts) {
  const status = label.replace(/ \((s|%)\)$/, "");
  return Object.hasOwn(COLUMNS, label) ? COLUMNS[label] : [label, statusTitle(facts, status)];
}
