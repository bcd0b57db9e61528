// What is told where the pointer is: of a task run, of the time between two, of a step.

import { swatch } from "../accounting.js";
import { make } from "../dom.js";
import { counted, formatCell, formatSeconds, shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";
import { GUTTER } from "./frame.js";
import { groupsOf, seenIn } from "./views.js";

/** Classes of time between task runs that are told where the pointer is. */
export const TOLD_CLASSES = 3;

export class Tip {
  constructor(timeline, element) {
    this.timeline = timeline;
    this.element = element;
  }

  /** Tells of a task run; -1: of what else is at a point of the canvas. */
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
    return tasks.heads ? told(tasks.recorded ?? tasks, row, this.timeline.segmentAt(x, y)) : null;
  }

  between(x, y) {
    const { timeline } = this;
    if (!timeline.view || x < GUTTER || y < 0) return null;
    const frame = timeline.frame();
    const step = timeline.shownBand?.at(frame, x, y);
    if (step) return toldStep(step);
    const { gaps } = timeline.painter;
    const track = y >= frame.top ? timeline.view.tracks[frame.track(y)] : null;
    if (track?.transfers) return timeline.tasks.transfers.told(track, frame.time(x), 2 / frame.perSecond);
    if (!gaps?.has(track)) return null;
    if (track.lanes.length > 1) return toldThreads(timeline, frame.track(y), frame.time(x));
    const gap = this.gapAt(x, y);
    return gap && toldGap(gaps, gap);
  }

  /** The time between task runs at a point, of threads that share a lane the shortest; null: none. */
  gapAt(x, y) {
    const { timeline } = this;
    const { gaps } = timeline.painter;
    const frame = timeline.frame();
    const track = x < frame.left || y < frame.top ? null : timeline.view.tracks[frame.track(y)];
    if (!gaps?.has(track)) return null;
    const found = track.lanes.map((lane) => gaps.told(lane, frame.time(x))).filter((gap) => gap !== null);
    return found.sort((one, other) => one.to - one.from - (other.to - other.from))[0] ?? null;
  }
}

/** What is told of threads that share a lane: what they run at a time. */
function toldThreads({ view, tasks }, track, time) {
  const [first, end] = seenIn(view, tasks, track, time, time);
  const rows = Array.from({ length: end - first }, (_, at) => view.rows[first + at]);
  const running = rows.filter((row) => tasks.starts[row] + tasks.durations[row] >= time);
  const counts = [...groupsOf(running, (row) => tasks.functionOf(row))].map(([code, { length }]) =>
    make("span", {}, `${shortened(tasks.facts.functions[code], 60)}: ${length}`),
  );
  const threads = view.tracks[track].lanes.length;
  return [make("strong", {}, `${running.length} of ${threads} threads run tasks`), ...counts.slice(0, TOLD_CLASSES)];
}

/** What is told of the step under the pointer. */
function toldStep({ name, begin, end, runs }) {
  const about = `${counted(runs, "task run")} from ${formatCell(begin, 2)} s to ${formatCell(end, 2)} s`;
  return [
    make("strong", {}, shortened(name, 100)),
    make("span", {}, about),
    make("span", {}, "A click lights its task runs alone."),
  ];
}

/** The classes that have seconds, the longest first. */
export function classesOf(sums) {
  const codes = [...sums.keys()].filter((code) => sums[code] > 0);
  return codes.sort((one, other) => sums[other] - sums[one]);
}

/** What is told of time between task runs: its classes, the longest first. */
function toldGap(gaps, { title, sums }) {
  const codes = classesOf(sums);
  const lines = codes.slice(0, TOLD_CLASSES).map((code) =>
    make(
      "span",
      {},
      swatch(gaps.swatches[code]),
      make("b", {}, visible(gaps.names[code])),
      ` ${formatSeconds(sums[code])}: ${visible(gaps.swatches[code].meaning)}`,
    ),
  );
  const rest = sumOf(codes.slice(TOLD_CLASSES).map((code) => sums[code]));
  if (rest > 0) lines.push(make("span", {}, `Others: ${formatSeconds(rest)}`));
  const nothing = make("span", {}, "Nothing is known of this time: no file tells that the worker was there.");
  return [make("strong", {}, title), ...(lines.length ? lines : [nothing])];
}

/** What is told of the task run under the pointer, and of the critical path's segment there. */
function told(tasks, row, segment) {
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
