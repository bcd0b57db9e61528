// Task runs for tests, as in the page after it has read its columns.

import { NUMBERED, HEX, Tasks, TUPLE } from "../../dasfprof/report/page/timeline/tasks.js";

/** Returns task runs with different keys: `runs` are [track, start, duration] by track and start. */
export function tasksOf(runs, tracks = Math.max(...runs.map(([track]) => track), 0) + 1, facts = {}) {
  const first = (track) => runs.filter(([own]) => own < track).length;
  const tasks = new Tasks(
    {
      tasks: runs.length,
      span: Math.max(0, ...runs.map(([, start, duration]) => start + duration)),
      tracks: Array.from({ length: tracks }, (_, track) => ({ worker: track, thread: 0, first: first(track) })),
      workers: Array.from({ length: tracks }, (_, track) => `worker-${track}`),
      ...{ functions: ["load"], steps: [], states: ["memory"], code: {}, logs: {}, tracebacks: {} },
      ...facts,
    },
    null,
  );
  return Object.assign(tasks, {
    starts: Float64Array.from(runs, ([, start]) => start),
    durations: Float64Array.from(runs, ([, , duration]) => duration),
    keys: Uint32Array.from(runs, (_, at) => at),
    functionOfKey: new Uint16Array(runs.length),
    trackOfRow: Uint16Array.from(runs, ([track]) => track),
    states: new Uint8Array(runs.length),
    steps: null,
  });
}

/** Returns task runs with keys of each kind: chunks of a layer, numbers, hashes, and a text. */
export function tasksWithKeys() {
  const keys = 7;
  const tasks = tasksOf(Array.from({ length: keys }, (_, at) => [0, at, 1]), 1, { keys });
  return Object.assign(tasks, {
    heads: {
      texts: ["('Load-ab', ", "sum-", "mean-", "whole key"],
      kinds: [TUPLE + 2, NUMBERED, HEX, 0],
      firsts: Uint32Array.from([0, 3, 4, 6, 7]),
    },
    tails: [
      Uint32Array.from([0, 0, 12, 345, 0xdeadbeef, 0x00c0ffee, 0]),
      Uint32Array.from([0, 1, 7, 0, 1, 2, 0]),
      null,
      null,
    ],
    details: {
      ...{ exceptions: [0, 1, 1, 1, 1, 1, 1], exceptions_texts: ["ValueError: 7"] },
      ...{ raised: [1, 1, 1, 1, 1, 1, 0], raised_texts: ["mine.py:99"] },
    },
  });
}
