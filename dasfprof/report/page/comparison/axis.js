// One axis for two runs: which time of each is where on it.

import { shortened } from "../format.js";
import { lastAtMost } from "../numbers.js";
import { codeOf } from "../timeline/colours.js";
import { paintRuler } from "../timeline/marks.js";
import { SIDES } from "./names.js";

/** Task runs whose times are places on an axis; `recorded` has them as they were. */
export function onAxis(tasks, place) {
  const moved = (starts, durations) => {
    const at = starts.map((start) => place(start));
    return [at, durations.map((seconds, row) => place(starts[row] + seconds) - at[row])];
  };
  const placed = Object.create(tasks);
  const { path } = tasks;
  [placed.starts, placed.durations] = moved(tasks.starts, tasks.durations);
  placed.path = { ...path };
  [placed.path.starts, placed.path.durations] = moved(path.starts, path.durations);
  placed.recorded = tasks;
  return placed;
}

/** From the first submission to the last end of a task. */
export function boundsOf({ path, starts, durations }) {
  let begin = path.starts[0] ?? Infinity;
  let end = 0;
  for (let row = 0; row < starts.length; row += 1) {
    begin = Math.min(begin, starts[row]);
    end = Math.max(end, starts[row] + durations[row]);
  }
  return [Math.min(begin, end), end];
}

/** Both runs from their first submission on. */
export function wallAxis(runs) {
  const bounds = runs.map(boundsOf);
  return {
    whole: Math.max(...bounds.map(([begin, end]) => end - begin)) || 1,
    places: bounds.map(([begin]) => (time) => time - begin),
    ruler: paintRuler,
  };
}

/**
 * Both runs so that the steps that both have (without steps, the functions) begin at the same
 * place: in the middle of where they begin in each. Between them time is stretched.
 */
export function stepAxis(runs, names) {
  const bounds = runs.map(boundsOf);
  const marks = commonBegins(runs, names, bounds);
  const known = [[...bounds.map(() => 0), ""], ...marks, [...bounds.map(([a, b]) => b - a), ""]];
  const middles = known.map(([before, after]) => (before + after) / 2);
  const places = bounds.map(([begin], side) => {
    const times = known.map((mark) => mark[side]);
    return (time) => stretched(time - begin, times, middles);
  });
  const titles = known.map(([, , title], at) => ({ title, time: middles[at] }));
  return {
    whole: middles.at(-1) || 1,
    places,
    ruler: (context, frame, palette) => paintSteps(context, frame, palette, titles),
  };
}

/** Where in each run what both have begins, and its name: what comes in the same order. */
function commonBegins(runs, names, bounds) {
  const steps = runs.every((tasks) => tasks.steps);
  const begins = runs.map((tasks, side) => {
    const list = steps ? tasks.facts.steps : tasks.facts.functions;
    const code = codeOf(tasks, steps ? "step" : "function");
    const found = new Map();
    for (let row = 0; row < tasks.count; row += 1) {
      const name = names.label(SIDES[side], list[code(row)]);
      const start = tasks.starts[row] - bounds[side][0];
      found.set(name, Math.min(found.get(name) ?? Infinity, start));
    }
    return found;
  });
  const common = [...begins[0]]
    .filter(([name]) => begins[1].has(name))
    .map(([name, start]) => [start, begins[1].get(name), name])
    .sort(([one], [other]) => one - other);
  const ends = bounds.map(([begin, end]) => end - begin);
  const inOrder = [];
  for (const mark of common) {
    const [before, after] = inOrder.at(-1) ?? [0, 0];
    if (mark[0] > before && mark[1] > after && mark[0] < ends[0] && mark[1] < ends[1])
      inOrder.push(mark);
    else if (!inOrder.length && mark[0] === 0 && mark[1] === 0) inOrder.push(mark);
  }
  return inOrder;
}

/** A time between known ones, put as far between their places. */
export function stretched(time, times, places) {
  const at = Math.min(Math.max(lastAtMost(times, time), 0), times.length - 2);
  const length = times[at + 1] - times[at];
  const share = length > 0 ? (time - times[at]) / length : 0;
  return places[at] + share * (places[at + 1] - places[at]);
}

function paintSteps(context, frame, palette, titles) {
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const [at, { title, time }] of titles.entries()) {
    const x = Math.round(frame.x(time));
    const end = at + 1 < titles.length ? frame.x(titles[at + 1].time) : x;
    const room = Math.floor((Math.min(end, frame.left + frame.width) - x - 8) / 6);
    if (x < frame.left - 1 || x > frame.left + frame.width) continue;
    context.fillStyle = palette.line;
    context.fillRect(x, 0, 1, frame.top + frame.height);
    context.fillStyle = palette.faint;
    if (title && room > 2) context.fillText(shortened(title, room), x + 4, 11);
  }
}
