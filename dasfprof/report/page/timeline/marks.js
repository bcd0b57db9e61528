// What surrounds the bars: ruler, tracks' titles, arrows, the first picture before the bars, and
// which colour each task has.

function fitCanvas(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  if (canvas.width !== wide || canvas.height !== high)
    Object.assign(canvas, { width: wide, height: high });
  canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
}

/** Round times within a window, so that about so many pixels lie between two of them. */
function ticks(from, to, width, apart) {
  const least = ((to - from) / Math.max(width, 1)) * apart;
  const power = 10 ** Math.floor(Math.log10(least));
  let step = [1, 2, 5, 10].map((times) => times * power).find((one) => one >= least);
  if (step > 30)
    step = [60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find((one) => one >= least) ?? step;
  const times = [];
  for (let at = Math.ceil(from / step); at * step <= to; at += 1) times.push(at * step);
  return { step, times };
}

/** A time from the run's begin, as exact as the distance of the ruler's marks needs. */
function clockText(seconds, step) {
  if (step >= 60) {
    const minutes = Math.round(seconds / 60);
    const hours = Math.floor(minutes / 60);
    return step < 3600 && !hours
      ? `${minutes} min`
      : `${hours}:${String(minutes % 60).padStart(2, "0")} h`;
  }
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return `${seconds.toFixed(Math.min(decimals, 6))} s`;
}

/** As `clockText`, but rounded down: the end of what is shown is no later than it is. */
function endText(seconds, step) {
  const places = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 6);
  const unit = step >= 60 ? 60 : 10 ** -places;
  return clockText(Math.floor(seconds / unit + 1e-6) * unit, step);
}

function paintRuler(context, frame, palette) {
  const { step, times } = ticks(frame.from, frame.to, frame.width, 92);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const time of times) {
    const x = Math.round(frame.x(time)) + 0.5;
    context.fillStyle = palette.line;
    context.fillRect(x - 0.5, 0, 1, frame.top - 2);
    context.fillStyle = palette.faint;
    context.fillText(clockText(time, step), x + 4, 11);
  }
}

function paintTitles(context, view, frame, palette) {
  context.fillStyle = palette.background;
  context.fillRect(0, 0, frame.left, frame.top + frame.height);
  context.save();
  context.beginPath();
  context.rect(0, frame.top, frame.left - 8, frame.height);
  context.clip();
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  const [first, last] = frame.tracks(view.tracks.length);
  let free = frame.top - 99;
  for (let track = first; track <= last; track += 1) {
    const { group, title: full, short, strong } = view.tracks[track];
    const title = frame.trackHeight < 14 ? (short ?? full) : full;
    const y = Math.max(frame.y(track + 0.5), frame.top + 7);
    const begins = track === 0 || view.tracks[track - 1].group !== group;
    if (begins && frame.trackHeight >= 14) {
      context.fillStyle = palette.line;
      context.fillRect(0, Math.round(frame.y(track)) - 1, frame.left, 1);
    }
    if (!title || y - free < 14) continue;
    context.fillStyle = palette.text;
    context.font = `${strong ? 600 : 400} 12px system-ui, sans-serif`;
    context.fillText(title, 0, y);
    free = y;
  }
  context.restore();
  paintScroll(context, view, frame, palette);
}

/** Shows which part of the tracks is seen, where not all are. */
function paintScroll(context, view, frame, palette) {
  const whole = view.tracks.length * frame.trackHeight;
  if (whole <= frame.height) return;
  const high = Math.max(12, (frame.height / whole) * frame.height);
  const y = frame.top + (frame.scroll / (whole - frame.height)) * (frame.height - high);
  context.fillStyle = palette.faint;
  context.fillRect(frame.left + frame.width - 4, y, 4, high);
}

/** The picture before the task runs are read: how busy each thread was. */
function paintOverview(context, tasks, frame, palette) {
  const shares = tasks.facts.overview;
  const [background, accent] = [rgbOf(palette.background), rgbOf(palette.accent)];
  const colours = [..."0123456789"].map(
    (tenth) => `rgb(${mixed(background, accent, tenth / 9).join(" ")})`,
  );
  const [first, last] = frame.tracks(shares.length);
  for (let track = first; track <= last; track += 1) {
    const width = frame.width / shares[track].length;
    for (let at = 0; at < shares[track].length; at += 1) {
      if (shares[track][at] === "0") continue;
      context.fillStyle = colours[shares[track][at]];
      context.fillRect(
        frame.left + at * width,
        frame.y(track),
        width + 0.5,
        Math.max(frame.trackHeight - 2, 1),
      );
    }
  }
}

function paintArrow(context, x0, y0, x1, y1, colour, dashes) {
  const bend = Math.max(12, Math.abs(x1 - x0) / 2);
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 1.5;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 7, y1 - 4);
  context.lineTo(x1 - 7, y1 + 4);
  context.fill();
}

/** States of task runs by what they mean; any other is grey. */
const STATE_COLOURS = { memory: 2, erred: 5, cancelled: 1, rescheduled: 3, released: 4 };

/** What a task run spent its time on. */
const STATUS_COLOURS = { Inqueue: 6, Preparing: 1, Running: 0, Finalizing: 3 };

function statusLegend(statuses) {
  return statuses.map((name) => {
    const swatch = make("i");
    swatch.style.background = `var(--series-${STATUS_COLOURS[name] ?? OTHER})`;
    return make("li", {}, swatch, visible(name));
  });
}

/** The place in the palette of each value that tasks are coloured by, and its name. */
function legend(tasks, by) {
  if (by === "worker") {
    return tasks.facts.workers.map((name, at) => ({ name, colour: at % OTHER, code: at }));
  }
  if (by === "status") {
    return [...tasks.facts.statuses, "unknown"].map((name, at) => ({
      name,
      colour: STATUS_COLOURS[name] ?? OTHER,
      code: at,
    }));
  }
  if (by === "state") {
    return [...tasks.facts.states, "unknown"].map((name, at) => ({
      name,
      colour: STATE_COLOURS[name] ?? OTHER,
      code: at,
    }));
  }
  if (by === "step") {
    const last = tasks.facts.steps.length - 1;
    return tasks.facts.steps.map((name, at) => ({
      name,
      colour: at === last ? OTHER : at % OTHER,
      code: at,
    }));
  }
  return tasks.functionsByTime.map((code, rank) => ({
    name: tasks.facts.functions[code],
    colour: Math.min(rank, OTHER),
    code,
    seconds: tasks.secondsOfFunction[code],
  }));
}

/** The value that a task is coloured by: what `legend` calls its code. */
function codeOf(tasks, by) {
  if (by === "worker") return (row) => tasks.tracks[tasks.trackOfRow[row]].worker;
  if (by === "status") return (row) => tasks.longestStatus(row);
  if (by === "step") return (row) => tasks.steps[row];
  return by === "state" ? (row) => tasks.states[row] : (row) => tasks.functionOf(row);
}

function rowColours(tasks, by) {
  const entries = legend(tasks, by);
  const ofCode = new Uint8Array(Math.max(0, ...entries.map((entry) => entry.code)) + 1).fill(OTHER);
  for (const { code, colour } of entries) ofCode[code] = colour;
  const code = codeOf(tasks, by);
  const colours = new Uint8Array(tasks.count);
  for (let row = 0; row < tasks.count; row += 1) colours[row] = ofCode[code(row)];
  return colours;
}
