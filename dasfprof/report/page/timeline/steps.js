// The band of steps above the tracks: from the first to the last task run of each.

import { shortened } from "../format.js";
import { clip } from "./marks.js";
import { OTHER } from "./palette.js";

const STEP_HEIGHT = 16;
/** Maximum number of lines for steps at the same time. Further steps share the last line. */
const STEP_LINES = 3;

export class StepBand {
  constructor(tasks) {
    /** Name, begin, end, number of task runs, line and colour of each step with task runs. */
    this.spans = spansOfSteps(tasks);
    const ends = [];
    for (const span of this.spans) {
      const free = ends.findIndex((end) => end <= span.begin);
      span.line = Math.min(free < 0 ? ends.length : free, STEP_LINES - 1);
      ends[span.line] = Math.max(ends[span.line] ?? 0, span.end);
    }
    this.height = ends.length * STEP_HEIGHT;
  }

  /** Paints the steps in grey, or in their colours if task runs have these. */
  paint(context, frame, palette, by) {
    const top = frame.top - this.height;
    clip(context, frame.left, top, frame.width, this.height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    for (const { name, begin, end, line, colour } of this.spans) {
      const x = Math.max(frame.x(begin), frame.left);
      const width = Math.min(frame.x(end), frame.left + frame.width) - x;
      if (width <= 0) continue;
      const y = top + line * STEP_HEIGHT;
      context.fillStyle = palette.series[by === "step" ? colour : OTHER];
      context.globalAlpha = 0.3;
      context.fillRect(x, y, Math.max(width, 1), STEP_HEIGHT - 2);
      context.globalAlpha = 1;
      context.fillRect(x, y, Math.min(3, Math.max(width, 1)), STEP_HEIGHT - 2);
      context.fillStyle = palette.text;
      const most = Math.floor((width - 10) / 6);
      if (most >= 3) context.fillText(shortened(name, most), x + 6, y + STEP_HEIGHT / 2 - 0.5);
    }
    context.restore();
  }

  /** Returns the step at a point, or null. */
  at(frame, x, y) {
    const line = Math.floor((y - frame.top + this.height) / STEP_HEIGHT);
    const time = frame.time(x);
    if (x < frame.left || y >= frame.top) return null;
    return this.spans.findLast((span) => span.line === line && span.begin <= time && time <= span.end) ?? null;
  }
}

/** Returns the steps ordered by begin. */
function spansOfSteps({ facts, steps, starts, durations, count }) {
  const spans = facts.steps.slice(0, -1).map((name, at) => {
    return { name, colour: at % OTHER, begin: Infinity, end: 0, runs: 0 };
  });
  for (let row = 0; row < count; row += 1) {
    const span = spans[steps[row]];
    if (!span) continue;
    span.begin = Math.min(span.begin, starts[row]);
    span.end = Math.max(span.end, starts[row] + durations[row]);
    span.runs += 1;
  }
  return spans.filter(({ runs }) => runs > 0).sort((one, other) => one.begin - other.begin);
}
