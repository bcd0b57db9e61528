// The selection over the bars: the selected task run, its arrows, areas and times.

import { clip, paintArrow } from "./marks.js";
import { currentPalette } from "./palette.js";
import { paintChain } from "./path.js";
import { tracksOfRows } from "./views.js";

const MAX_ARROWS = 400;

export function paintSelection(timeline, palette = currentPalette()) {
  const { tasks, view, selected, hovered, width, height } = timeline;
  const context = timeline.overlay.getContext("2d");
  const frame = timeline.frame();
  context.clearRect(0, 0, width, height);
  clip(context, frame.left, frame.top, frame.width, frame.height);
  if (timeline.marked) paintMarked(context, timeline.marked, frame, palette);
  if (view.chain) paintChain(context, tasks, view, frame, palette);
  if (selected >= 0 && tasks.complete) paintArrows(context, timeline, frame, palette);
  if (hovered >= 0) outline(context, timeline, frame, hovered, palette.text, 1);
  if (selected >= 0) outline(context, timeline, frame, selected, palette.accent, 2.5);
  if (timeline.gap) paintGap(context, timeline, frame, palette);
  if (timeline.area) paintChosen(context, timeline.area, frame, palette);
  if (timeline.cursor !== null) paintCursor(context, frame, timeline.cursor, palette);
  context.restore();
}

/** Paints the bounds of the times of a finding, and shades all other time. */
function paintMarked(context, spans, frame, palette) {
  const fill = (colour, alpha, x, end) => {
    context.fillStyle = colour;
    context.globalAlpha = alpha;
    context.fillRect(x, frame.top, Math.max(0, end - x), frame.height);
  };
  let shaded = frame.left;
  for (const [from, to] of spans) {
    const [x, end] = [Math.round(frame.x(from)), Math.round(frame.x(to))];
    fill(palette.background, 0.5, shaded, x);
    fill(palette.accent, 0.08, x, end);
    for (const edge of [x - 2, end]) fill(palette.accent, 1, edge, edge + 2);
    shaded = Math.max(shaded, end);
  }
  fill(palette.background, 0.5, shaded, frame.left + frame.width);
  context.globalAlpha = 1;
}

function paintChosen(context, { from, to, first, last }, frame, palette) {
  const [x, end] = [frame.x(from), frame.x(to)];
  const bottom = frame.y(last) + frame.heightOf(last);
  const place = [x, frame.y(first), end - x, bottom - frame.y(first)];
  context.fillStyle = context.strokeStyle = palette.accent;
  context.globalAlpha = 0.12;
  context.fillRect(...place);
  context.globalAlpha = 1;
  context.lineWidth = 1.5;
  context.strokeRect(...place);
}

function paintGap(context, { gap, view }, frame, palette) {
  const track = view.tracks.findIndex(({ lanes }) => lanes?.includes(gap.lane));
  if (track < 0) return;
  const width = Math.max((gap.to - gap.from) * frame.perSecond, 3);
  context.strokeStyle = palette.accent;
  context.lineWidth = 2.5;
  context.strokeRect(frame.x(gap.from), frame.y(track), width, Math.max(frame.heightOf(track) - 1, 3));
}

function paintCursor(context, frame, time, palette) {
  context.fillStyle = palette.faint;
  context.fillRect(Math.round(frame.x(time)), frame.top, 1, frame.height);
}

function outline(context, { tasks, view }, frame, row, colour, thickness) {
  const track = tracksOfRows(view, tasks.count)[row];
  if (track < 0) return;
  const width = Math.max(tasks.durations[row] * frame.perSecond, 3);
  context.strokeStyle = colour;
  context.lineWidth = thickness;
  const height = Math.max(frame.heightOf(track) - 1, 3);
  context.strokeRect(frame.x(tasks.starts[row]) - 1, frame.y(track), width + 1, height);
}

/** Paints arrows from the dependencies of the selected task run, and dashed arrows to its dependents. */
function paintArrows(context, { tasks, view, selected }, frame, palette) {
  const tracks = tracksOfRows(view, tasks.count);
  const arrow = (from, to, colour, dashes) => {
    if (from < 0 || to < 0 || tracks[from] < 0 || tracks[to] < 0) return;
    // Clocks may disagree about a result that is used before it was made.
    if (tasks.starts[to] < tasks.starts[from]) return;
    const end = tasks.starts[from] + tasks.durations[from];
    const x1 = frame.x(tasks.starts[to]);
    const x0 = Math.min(frame.x(end), x1);
    // Arrows end at the edges of bars, so that names stay readable.
    const down = Math.sign(tracks[to] - tracks[from]) || 1;
    const y0 = frame.y(tracks[from] + 0.5 + 0.45 * down);
    const y1 = frame.y(tracks[to] + 0.5 - 0.45 * (tracks[to] === tracks[from] ? -1 : down));
    paintArrow(context, x0, y0, x1, y1, colour, dashes);
  };
  for (const { row } of tasks.inputsOf(selected).slice(0, MAX_ARROWS)) {
    arrow(row, selected, palette.needs, []);
  }
  for (const { row } of tasks.takersOf(selected).slice(0, MAX_ARROWS)) {
    arrow(selected, row, palette.needed, [5, 3]);
  }
}
