// What lies over the bars: the selected task, its arrows, the one under the pointer.

const MAX_ARROWS = 400;

function paintSelection(timeline, palette = currentPalette()) {
  const { tasks, view, selected, hovered, width, height } = timeline;
  const context = timeline.overlay.getContext("2d");
  const frame = timeline.frame();
  context.clearRect(0, 0, width, height);
  context.save();
  context.beginPath();
  context.rect(frame.left, frame.top, frame.width, frame.height);
  context.clip();
  if (timeline.marked) paintMarked(context, timeline.marked, frame, palette);
  if (view.chain) paintChain(context, tasks, view, frame, palette);
  if (selected >= 0 && tasks.whole) paintArrows(context, timeline, frame, palette);
  if (hovered >= 0) outline(context, timeline, frame, hovered, palette.text, 1);
  if (selected >= 0) outline(context, timeline, frame, selected, palette.accent, 2.5);
  if (timeline.cursor !== null) paintCursor(context, frame, timeline.cursor, palette);
  context.restore();
}

/** Paints the bounds of the time that a finding speaks of, and shades what is outside of it. */
function paintMarked(context, [from, to], frame, palette) {
  const bottom = frame.top + frame.height;
  const [x, end] = [Math.round(frame.x(from)), Math.round(frame.x(to))];
  context.globalAlpha = 0.5;
  context.fillStyle = palette.background;
  context.fillRect(frame.left, frame.top, Math.max(0, x - frame.left), frame.height);
  context.fillRect(end, frame.top, Math.max(0, frame.left + frame.width - end), frame.height);
  context.fillStyle = palette.accent;
  context.globalAlpha = 0.08;
  context.fillRect(x, frame.top, end - x, frame.height);
  context.globalAlpha = 1;
  for (const edge of [x - 2, end]) context.fillRect(edge, frame.top, 2, bottom - frame.top);
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
  const height = Math.max(frame.trackHeight - 1, 3);
  context.strokeRect(frame.x(tasks.starts[row]) - 1, frame.y(track), width + 1, height);
}

/** Paints arrows from the runs whose results the selected one took, dashed to those that took its. */
function paintArrows(context, { tasks, view, selected }, frame, palette) {
  const tracks = tracksOfRows(view, tasks.count);
  const arrow = (from, to, colour, dashes) => {
    if (from < 0 || to < 0 || tracks[from] < 0 || tracks[to] < 0) return;
    const end = tasks.starts[from] + tasks.durations[from];
    const [x0, x1] = [frame.x(end), frame.x(tasks.starts[to])];
    const [y0, y1] = [tracks[from], tracks[to]].map((track) => frame.y(track + 0.5));
    paintArrow(context, x0, y0, x1, y1, colour, dashes);
  };
  for (const { row } of tasks.inputsOf(selected).slice(0, MAX_ARROWS)) {
    arrow(row, selected, palette.needs, []);
  }
  for (const { row } of tasks.takersOf(selected).slice(0, MAX_ARROWS)) {
    arrow(selected, row, palette.needed, [5, 3]);
  }
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
