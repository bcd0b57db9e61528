// The views of the timeline: the rows in each track.

import { formatCount, formatSeconds, shortened, visible } from "../format.js";
import { ascending, lastAtMost } from "../numbers.js";
import { byDuration } from "./tasks.js";

/**
 * @typedef {object} Track
 * @property {string} title
 * @property {string} [short] title of low tracks
 * @property {string} hint
 * @property {*} group its worker, step or function
 * @property {boolean} area whether it shows the number of running tasks instead of bars
 * @property {number[]} [lanes] indices of its threads
 * @property {string} [branch] id of a track that can be expanded
 * @property {boolean} [strong] whether it is a step
 * @property {number[]} [transfers] transfers that it shows instead of task runs
 *
 * @typedef {object} View
 * @property {Track[]} tracks
 * @property {Uint32Array} rows by track and start
 * @property {Uint32Array} offsets of the tracks in the rows
 * @property {Uint8Array} [lit] a flag for each row, 0 if it is dim
 * @property {number[]} [chain] rows on the critical path
 * @property {object} [path] the critical path in the first track, which does not scroll
 * @property {boolean} [byStep]
 * @property {Int32Array} [trackOfRow]
 * @property {Float64Array} [longest]
 */

/** Maximum number of steps that are expanded at first. */
const MAX_OPEN = 12;

/**
 * Returns a view of all task runs by thread.
 *
 * @returns {View}
 */
export function flattenView(tasks) {
  return { tracks: threadTracks(tasks), rows: tasks.rows, offsets: tasks.trackOffsets };
}

/** Returns the threshold in milliseconds that 5 % of the task runs exceed. */
export function usualThreshold(tasks) {
  const order = byDuration(tasks);
  const seconds = order.length ? tasks.durations[order[Math.floor(order.length * 0.95)]] : 0;
  return Number((seconds * 1000).toPrecision(2));
}

/** Returns a view by thread of the task runs of at least so many seconds. */
export function compactView(tasks, threshold) {
  const rows = tasks.rows.filter((row) => tasks.durations[row] >= threshold);
  const offsets = tasks.trackOffsets.map((first) => lastAtMost(rows, first - 1) + 1);
  return { tracks: threadTracks(tasks), rows, offsets };
}

/**
 * Returns a view of steps, their functions, and the task runs of these. Without steps, it has the functions,
 * those with the longest time first. Collapsed tracks show the number of running tasks. `opened` has the
 * `branch` of each expanded track.
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
    for (const [code, ofFunction, seconds] of byFunction) {
      const branch = `${group}/${code}`;
      const open = opened.has(branch);
      const track = branchTrack(tasks.facts.functions[code], seconds, ofFunction, open, depth);
      for (const [at, part] of (open ? packed(tasks, ofFunction) : [ofFunction]).entries()) {
        add({ ...track, title: at ? "" : track.title, area: !open, branch, group: branch }, part);
      }
    }
  };
  const rows = rowsByStart(tasks);
  if (tasks.steps) {
    for (const [step, ofStep] of stepsInOrder(tasks, rows)) {
      const branch = `${step}`;
      const open = opened.has(branch);
      const track = branchTrack(tasks.facts.steps[step], secondsOf(tasks, ofStep), ofStep, open, 0);
      add({ ...track, area: true, branch, group: branch, strong: true }, ofStep);
      if (open) addFunctions(ofStep, branch, 1);
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

/** Returns the branches that are expanded at first: the steps, if they are few. */
export function usuallyOpen(tasks) {
  return new Set(tasks.facts.steps.length <= MAX_OPEN ? tasks.facts.steps.map((_, at) => `${at}`) : []);
}

/** Returns the steps with their rows, ordered by their first task run. Task runs without a step are last. */
function stepsInOrder(tasks, rows) {
  const none = tasks.facts.steps.length - 1;
  const groups = [...groupsOf(rows, (row) => tasks.steps[row])];
  return groups.sort(
    ([one, its], [other, others]) =>
      Number(one === none) - Number(other === none) || tasks.starts[its[0]] - tasks.starts[others[0]],
  );
}

/** Returns groups of rows by code with their seconds, the longest first. */
function grouped(tasks, rows, code) {
  const groups = [...groupsOf(rows, code)].map(([key, members]) => [key, members, secondsOf(tasks, members)]);
  return groups.sort((one, other) => other[2] - one[2]);
}

/** Returns the rows of each code, in their order. */
export function groupsOf(rows, code) {
  return new Map([...Map.groupBy(rows, code)].map(([key, members]) => [key, Uint32Array.from(members)]));
}

function secondsOf(tasks, rows) {
  return rows.reduce((seconds, row) => seconds + tasks.durations[row], 0);
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

/** Distributes rows, ordered by start, over the smallest number of tracks without overlaps. */
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
 * Returns the index of each row's track in a view, or -1 for rows that it does not show.
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
 * Returns the longest duration in each track, which limits how early a running task started.
 *
 * @param {View} view
 */
function longestOfTracks(view, tasks) {
  view.longest ??= Float64Array.from(view.tracks, (_, track) =>
    view.rows
      .subarray(view.offsets[track], view.offsets[track + 1])
      .reduce((longest, row) => Math.max(longest, tasks.durations[row]), 0),
  );
  return view.longest;
}

/**
 * Returns the range of a track's rows in a view that may be visible between two times.
 *
 * @param {View} view
 */
export function seenIn(view, tasks, track, from, to) {
  const earliest = from - longestOfTracks(view, tasks)[track];
  return [firstFrom(view, tasks, track, earliest), firstFrom(view, tasks, track, to)];
}

/** Returns the index of a track's first row in a view that starts at a time or later. */
export function firstFrom(view, tasks, track, time) {
  let [low, high] = [view.offsets[track], view.offsets[track + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tasks.starts[view.rows[middle]] < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
