// The views of the timeline: which rows are shown in which tracks.

import { formatCount, formatSeconds, shortened, visible } from "../format.js";
import { ascending } from "../numbers.js";
import { byDuration } from "./tasks.js";

/**
 * @typedef {object} Track
 * @property {string} title
 * @property {string} [short] what low tracks have as a title
 * @property {string} hint
 * @property {*} group the worker, step or function that it is of
 * @property {boolean} area whether it shows how many tasks ran at a time instead of each
 * @property {number[]} [lanes] the places of its threads
 * @property {string} [branch] of one that opens and closes
 * @property {boolean} [strong] of a step
 * @property {number[]} [transfers] what it shows in place of task runs
 *
 * @typedef {object} View
 * @property {Track[]} tracks
 * @property {Uint32Array} rows by track and start
 * @property {Uint32Array} offsets of the tracks in the rows
 * @property {Uint8Array} [lit] a flag for each row: the others are dim
 * @property {number[]} [chain] rows on the critical path
 * @property {object} [path] shown in the first track, which stays in place while others scroll
 * @property {boolean} [byStep]
 * @property {Int32Array} [trackOfRow]
 * @property {Float64Array} [longest]
 */

/** More steps than this are closed at first. */
const MAX_OPEN = 12;

/**
 * All task runs on the threads of the workers.
 *
 * @returns {View}
 */
export function flattenView(tasks) {
  return { tracks: threadTracks(tasks), rows: tasks.rows, offsets: tasks.trackOffsets };
}

/** A threshold in milliseconds that leaves about one task in twenty. */
export function usualThreshold(tasks) {
  const order = byDuration(tasks);
  const seconds = order.length ? tasks.durations[order[Math.floor(order.length * 0.95)]] : 0;
  return Number((seconds * 1000).toPrecision(2));
}

/** Those of at least so many seconds, on the threads of the workers. */
export function compactView(tasks, threshold) {
  const rows = new Uint32Array(tasks.count);
  const offsets = new Uint32Array(tasks.tracks.length + 1);
  let count = 0;
  for (let track = 0; track < tasks.tracks.length; track += 1) {
    for (let row = tasks.trackOffsets[track]; row < tasks.trackOffsets[track + 1]; row += 1) {
      if (tasks.durations[row] >= threshold) rows[count++] = row;
    }
    offsets[track + 1] = count;
  }
  return { tracks: threadTracks(tasks), rows: rows.subarray(0, count), offsets };
}

/**
 * Steps with their functions, those with their tasks; without steps the functions alone, those
 * that took the most time first. What is not opened shows how many tasks ran at a time; `opened`
 * has the `branch` of each track that is.
 */
export function hierarchyView(tasks, opened) {
  const tracks = [];
  const offsets = [0];
  const parts = [];
  const add = (track, rows) => {
    tracks.push(track);
    parts.push(rows);
    offsets.push(offsets.at(-1) + rows.length);
  };
  const addFunctions = (rows, group, depth) => {
    const byFunction = grouped(tasks, rows, (row) => tasks.functionOf(row));
    for (const [code, own] of byFunction) {
      const branch = `${group}/${code}`;
      const open = opened.has(branch);
      const track = branchTrack(tasks.facts.functions[code], secondsOf(tasks, own), own, open, depth);
      for (const [at, part] of (open ? packed(tasks, own) : [own]).entries()) {
        add({ ...track, title: at ? "" : track.title, area: !open, branch, group: branch }, part);
      }
    }
  };
  const rows = rowsByStart(tasks);
  if (tasks.steps) {
    for (const [step, own] of stepsInOrder(tasks, rows)) {
      const branch = `${step}`;
      const open = opened.has(branch);
      const track = branchTrack(tasks.facts.steps[step], secondsOf(tasks, own), own, open, 0);
      add({ ...track, area: true, branch, group: branch, strong: true }, own);
      if (open) addFunctions(own, branch, 1);
    }
  } else addFunctions(rows, "", 0);
  const all = new Uint32Array(offsets.at(-1));
  for (const [at, part] of parts.entries()) all.set(part, offsets[at]);
  return { tracks, rows: all, offsets, byStep: true };
}

function branchTrack(name, seconds, rows, open, depth) {
  const mark = `${"\u2003".repeat(depth)}${open ? "▾" : "▸"}`;
  return {
    title: `${mark} ${shortened(name, 21 - 2 * depth)}`,
    hint: `${shortened(name, 100)}: ${formatCount(rows.length)} tasks, ${formatSeconds(seconds)}`,
  };
}

/** The branches that are open at first: the steps, if these are few. */
export function usuallyOpen(tasks) {
  return new Set(tasks.facts.steps.length <= MAX_OPEN ? tasks.facts.steps.map((_, at) => `${at}`) : []);
}

/** Steps with their rows in the order in which they began, the task runs of none last. */
function stepsInOrder(tasks, rows) {
  const none = tasks.facts.steps.length - 1;
  const groups = [...groupsOf(rows, (row) => tasks.steps[row])];
  return groups.sort(
    ([one, its], [other, others]) =>
      Number(one === none) - Number(other === none) || tasks.starts[its[0]] - tasks.starts[others[0]],
  );
}

/** Groups of rows by code, those that took the most time first. */
function grouped(tasks, rows, code) {
  const groups = [...groupsOf(rows, code)].map(([key, own]) => [key, own, secondsOf(tasks, own)]);
  return groups.sort((one, other) => other[2] - one[2]);
}

/** Rows by code, in their order. */
export function groupsOf(rows, code) {
  const sizes = new Map();
  for (const row of rows) sizes.set(code(row), (sizes.get(code(row)) ?? 0) + 1);
  const groups = new Map();
  const filled = new Map();
  for (const [key, size] of sizes) {
    groups.set(key, new Uint32Array(size));
    filled.set(key, 0);
  }
  for (const row of rows) {
    const key = code(row);
    const at = filled.get(key);
    groups.get(key)[at] = row;
    filled.set(key, at + 1);
  }
  return groups;
}

function secondsOf(tasks, rows) {
  let seconds = 0;
  for (const row of rows) seconds += tasks.durations[row];
  return seconds;
}

export function rowsByStart(tasks) {
  tasks.inOrder ??= ascending(tasks.starts);
  return tasks.inOrder;
}

export function threadTracks(tasks) {
  const counts = new Map();
  for (const { worker, thread } of tasks.tracks)
    if (thread !== null) counts.set(worker, (counts.get(worker) ?? 0) + 1);
  return tasks.tracks.map(({ worker, thread }, track) => {
    const titles = tasks.trackTitle(track);
    const first = track === 0 || tasks.tracks[track - 1].worker !== worker;
    const part = thread === null ? "event loop" : counts.get(worker) > 1 ? `thread ${thread}` : "";
    return {
      title: first
        ? [shortened(titles.worker, thread === null ? 14 : 20), part].filter(Boolean).join(" · ")
        : `\u2003${part}`,
      short: first ? shortened(titles.worker, 24) : "",
      hint: `${visible(titles.worker)}, ${thread === null ? "event loop" : `thread ${thread}`}`,
      area: false,
      group: worker,
      lanes: [track],
    };
  });
}

/** Spreads rows, ordered by start, over as few tracks as there are tasks at a time. */
export function packed(tasks, rows) {
  const tracks = [];
  const ends = [];
  for (const row of rows) {
    const start = tasks.starts[row];
    let track = 0;
    while (track < ends.length && ends[track] > start) track += 1;
    if (track === ends.length) tracks.push([]);
    tracks[track].push(row);
    ends[track] = start + tasks.durations[row];
  }
  return tracks;
}

/**
 * The place of each row's track in a view, -1 for rows that it does not show.
 *
 * @param {View} view
 */
export function tracksOfRows(view, count) {
  if (view.trackOfRow) return view.trackOfRow;
  const trackOfRow = new Int32Array(count).fill(-1);
  for (let track = 0; track < view.tracks.length; track += 1) {
    for (let at = view.offsets[track]; at < view.offsets[track + 1]; at += 1) {
      trackOfRow[view.rows[at]] = track;
    }
  }
  view.trackOfRow = trackOfRow;
  return trackOfRow;
}

/**
 * The longest task of each track: how far before a time a task that still runs can have begun.
 *
 * @param {View} view
 */
function longestOfTracks(view, tasks) {
  if (!view.longest) {
    view.longest = new Float64Array(view.tracks.length);
    for (let track = 0; track < view.tracks.length; track += 1) {
      let longest = 0;
      for (let at = view.offsets[track]; at < view.offsets[track + 1]; at += 1) {
        longest = Math.max(longest, tasks.durations[view.rows[at]]);
      }
      view.longest[track] = longest;
    }
  }
  return view.longest;
}

/**
 * The places in a view of the rows of a track that may be seen between two times.
 *
 * @param {View} view
 */
export function seenIn(view, tasks, track, from, to) {
  const earliest = from - longestOfTracks(view, tasks)[track];
  return [firstFrom(view, tasks, track, earliest), firstFrom(view, tasks, track, to)];
}

/** The first place in a view of a track's rows that start at a time or later. */
export function firstFrom(view, tasks, track, time) {
  let [low, high] = [view.offsets[track], view.offsets[track + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tasks.starts[view.rows[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
