// Tooltips of the timeline: for a task run, the time between two, a step, or transfers.

import { swatch } from "../accounting.js";
import { make } from "../dom.js";
import { counted, formatCell, formatSeconds, shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";
import { GUTTER } from "./frame.js";
import { groupsOf, seenIn } from "./views.js";

/** Maximum number of lines of a tooltip. */
export const TIP_LINES = 3;

export class Tip {
  constructor(timeline, element) {
    this.timeline = timeline;
    this.element = element;
  }

  /** Shows the tooltip of a task run, or for -1 of what is at a point of the canvas. */
  show(row, x, y) {
    const lines = row < 0 ? this.between(x, y) : this.run(row, x, y);
    this.element.hidden = lines === null;
    if (lines === null) return;
    this.element.replaceChildren(...lines);
    const { offsetWidth, offsetHeight } = this.element;
    const below = y + 18 + offsetHeight < this.timeline.height;
    this.element.style.left = `${Math.min(x + 14, this.timeline.width - offsetWidth - 4)}px`;
    this.element.style.top = `${below ? y + 16 : y - offsetHeight - 10}px`;
  }

  run(row, x, y) {
    const { tasks } = this.timeline;
    return tasks.heads ? taskLines(tasks.recorded ?? tasks, row, this.timeline.segmentAt(x, y)) : null;
  }

  between(x, y) {
    const { timeline } = this;
    if (!timeline.view || x < GUTTER || y < 0) return null;
    const frame = timeline.frame();
    const step = timeline.shownBand?.at(frame, x, y);
    if (step) return stepLines(step);
    const { gaps } = timeline.painter;
    const track = y >= frame.top ? timeline.view.tracks[frame.track(y)] : null;
    if (track?.transfers) return timeline.tasks.transfers.linesAt(track, frame.time(x), 2 / frame.perSecond);
    if (!gaps?.has(track)) return null;
    if (track.lanes.length > 1) return threadLines(timeline, frame.track(y), frame.time(x));
    const gap = this.gapAt(x, y);
    return gap && [make("strong", {}, gap.title), ...categoryLines(gaps, gap.sums, TIP_LINES)];
  }

  /** Returns the time between task runs at a point, the shortest one of several threads, or null. */
  gapAt(x, y) {
    const { timeline } = this;
    const { gaps } = timeline.painter;
    const frame = timeline.frame();
    const track = x < frame.left || y < frame.top ? null : timeline.view.tracks[frame.track(y)];
    if (!gaps?.has(track)) return null;
    const times = track.lanes.map((lane) => gaps.at(lane, frame.time(x))).filter((gap) => gap !== null);
    return times.sort((one, other) => one.to - one.from - (other.to - other.from))[0] ?? null;
  }
}

/** Returns the functions that the threads of a shared track run at a time. */
function threadLines({ view, tasks }, track, time) {
  const [first, end] = seenIn(view, tasks, track, time, time);
  const rows = Array.from({ length: end - first }, (_, at) => view.rows[first + at]);
  const running = rows.filter((row) => tasks.starts[row] + tasks.durations[row] >= time);
  const counts = [...groupsOf(running, (row) => tasks.functionOf(row))].map(([code, { length }]) =>
    make("span", {}, `${shortened(tasks.facts.functions[code], 60)}: ${length}`),
  );
  const threads = view.tracks[track].lanes.length;
  return [make("strong", {}, `${running.length} of ${threads} threads run tasks`), ...counts.slice(0, TIP_LINES)];
}

function stepLines({ name, begin, end, runs }) {
  const about = `${counted(runs, "task run")} from ${formatCell(begin, 2)} s to ${formatCell(end, 2)} s`;
  return [
    make("strong", {}, shortened(name, 100)),
    make("span", {}, about),
    make("span", {}, "Click to highlight only its task runs."),
  ];
}

/** Returns the codes of the categories that have seconds, the largest first. */
export function categoriesOf(sums) {
  const codes = [...sums.keys()].filter((code) => sums[code] > 0);
  return codes.sort((one, other) => sums[other] - sums[one]);
}

/** Returns a line for each of the largest categories, with its seconds and meaning, and one for the others. */
export function categoryLines(gaps, sums, maximum = Infinity, explain = (category) => visible(category.meaning)) {
  const codes = categoriesOf(sums);
  if (!codes.length) return [make("span", {}, "Unknown, since no file covers this time of the worker.")];
  const lines = codes.slice(0, maximum).map((code) => {
    const category = gaps.swatches[code];
    const name = make("b", {}, visible(category.name));
    return make("span", {}, swatch(category), name, ` ${formatSeconds(sums[code])}: ${explain(category)}`);
  });
  const others = sumOf(codes.slice(maximum).map((code) => sums[code]));
  return others > 0 ? [...lines, make("span", {}, `Others: ${formatSeconds(others)}`)] : lines;
}

/** Returns facts about a task run, and the critical path's segment at the pointer. */
function taskLines(tasks, row, segment) {
  const { path } = tasks;
  const parts = [formatSeconds(tasks.durations[row]), visible(tasks.workerName(row))];
  if (tasks.steps) parts.push(shortened(tasks.stepName(row), 40));
  const lines = [
    make("strong", {}, shortened(tasks.functionName(row), 60)),
    make("span", {}, shortened(tasks.keyText(tasks.keys[row]), 70)),
    make("span", {}, parts.join(" · ")),
  ];
  if (segment >= 0) {
    const { name, meaning } = path.kinds[segment];
    const seconds = formatSeconds(path.durations[segment]);
    lines.push(make("span", {}, `${name} ${seconds}: ${meaning}`));
  }
  return lines;
}
