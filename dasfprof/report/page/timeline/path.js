// The critical path: the chain of tasks and waits that determined the run time.

import { lastAtMost } from "../numbers.js";
import { threadTracks, tracksOfRows } from "./views.js";

export const WORK = "Compute";
const MAX_LINKS = 300;

/**
 * Returns a view with the path in a separate track above all threads. Task runs on the path, and unfinished
 * ones, are highlighted.
 *
 * @returns {import("./views.js").View}
 */
export function criticalView(tasks) {
  const { path } = tasks;
  const lit = new Uint8Array(tasks.count);
  const chain = [];
  for (const row of path.rows) {
    if (row === tasks.count || lit[row]) continue;
    lit[row] = 1;
    chain.push(row);
  }
  for (let row = 0; row < tasks.count; row += 1) if (tasks.isOpen(row)) lit[row] = 1;
  const hint = "The chain of tasks and waits that determined the run time";
  const track = { title: "Critical path", hint, area: false, group: -1 };
  return {
    tracks: [track, ...threadTracks(tasks)],
    rows: tasks.rows,
    offsets: Uint32Array.from([0, ...tasks.trackOffsets]),
    lit,
    chain,
    path,
  };
}

/** Returns the index of the path's segment at a time, or -1. */
export function segmentAt({ starts, durations }, time) {
  const at = lastAtMost(starts, time);
  return at >= 0 && time <= starts[at] + durations[at] ? at : -1;
}

/** Paints the path's track: computing in full height, waits lower. */
export function paintPath(context, path, frame, colours, palette) {
  const first = Math.max(0, lastAtMost(path.starts, frame.from));
  const last = lastAtMost(path.starts, frame.to);
  const y = frame.y(0);
  const height = frame.heightOf(0) - 3;
  context.fillStyle = palette.background;
  context.fillRect(frame.left, y, frame.width, frame.heightOf(0));
  for (let at = first; at <= last; at += 1) {
    const x = Math.max(frame.x(path.starts[at]), frame.left - 2);
    const end = Math.min(frame.x(path.starts[at] + path.durations[at]), frame.left + frame.width + 2);
    const kind = path.kinds[at];
    const work = kind.name === WORK;
    const known = work && path.rows[at] < colours.length;
    const colour = known ? colours[path.rows[at]] : kind.colour;
    context.fillStyle = palette.series[colour];
    const high = work ? height : Math.max(2, Math.round(height * 0.45));
    context.fillRect(x, y + height - high, Math.max(end - x, 0.5), high);
  }
}

/** Paints lines where the path changes the track. */
export function paintChain(context, tasks, view, frame, palette) {
  const tracks = tracksOfRows(view, tasks.count);
  const seen = [];
  for (let at = 1; at < view.chain.length; at += 1) {
    const [from, to] = [view.chain[at - 1], view.chain[at]];
    const end = tasks.starts[from] + tasks.durations[from];
    if (tracks[from] === tracks[to]) continue;
    if (tasks.starts[to] >= frame.from && end <= frame.to) seen.push([from, end, to]);
  }
  if (seen.length > MAX_LINKS) return;
  context.strokeStyle = palette.text;
  context.globalAlpha = 0.8;
  context.lineWidth = 1;
  context.beginPath();
  for (const [from, end, to] of seen) {
    context.moveTo(frame.x(end), frame.y(tracks[from] + 0.5));
    context.lineTo(frame.x(tasks.starts[to]), frame.y(tracks[to] + 0.5));
  }
  context.stroke();
  context.globalAlpha = 1;
}

/** Returns the seconds of each kind of segment, the longest first. */
export function pathTotals({ kinds, durations }) {
  const totals = new Map();
  for (const [at, kind] of kinds.entries())
    totals.set(kind, (totals.get(kind) ?? 0) + durations[at]);
  return [...totals].sort((one, other) => other[1] - one[1]);
}
