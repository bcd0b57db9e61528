// Charts of resources below the timeline, for the same time.

import { absence, byId, inNextFrame, make } from "../dom.js";
import { formatSeconds, formatUnit, shortened } from "../format.js";
import { fitting, lastAtMost, sumOf } from "../numbers.js";
import { seriesSwatch } from "../timeline/colours.js";
import { Frame, GUTTER } from "../timeline/frame.js";
import { clip, fitCanvas, paintGrid } from "../timeline/marks.js";
import { currentPalette, OTHER } from "../timeline/palette.js";

const CHART_HEIGHT = 68;
/** Threshold: a limit is drawn if it is at most this multiple of the maximum, and always for percentages. */
const NEAR_LIMIT = 3;
/** Lines of limits, by kind. */
const LIMIT_LINES = {
  limit: { colour: "bad", dashes: [7, 4] },
  pause: { colour: "warn", dashes: [7, 4] },
  spill: { colour: "warn", dashes: [2, 3] },
};
/** Maximum characters in a line of a chart's title, which is next to the numbers of the axis. */
const TITLE_LETTERS = 18;

export class Resources {
  from; to;

  /** `events` has `pointed(time)`, with null if the pointer leaves, and `colourOf(name)` of a function. */
  constructor(metrics, columns, root, events) {
    this.events = events;
    this.metrics = metrics;
    this.columns = columns;
    this.root = root;
    this.pointed = null;
    this.charts = [];
    this.draw = inNextFrame(() => this.paintAll());
    new ResizeObserver(this.draw).observe(root);
  }

  async read() {
    const absent = new Map();
    for (const metric of this.metrics) {
      if (metric.absent) {
        absent.set(metric.absent, [...(absent.get(metric.absent) ?? []), metric.label]);
        continue;
      }
      const { times, values } = await this.columns.group(`metric-${metric.name}`);
      const ends = [...metric.series.slice(1).map(({ first }) => first), times.length];
      const series = metric.series.map(({ label, first }, at) => ({
        label,
        times: times.subarray(first, ends[at]),
        values: values.subarray(first, ends[at]),
      }));
      this.add(metric, series);
    }
    for (const [reason, labels] of absent) this.root.append(absence(`${labels.join(", ")}: ${reason}.`));
    this.draw();
  }

  add(metric, series) {
    const canvas = make("canvas", { role: "img", "aria-label": `${metric.label} over time` });
    const reading = make("output", { class: "reading" });
    const box = make("div", { class: "chart" }, reading, canvas);
    const mean = ({ values }) => sumOf(values) / values.length;
    const named = metric.stacked ? series : fitting(series, mean, OTHER);
    const chart = { metric, series, canvas, reading, box, named, peak: null };
    if (metric.anatomy) chart.peak = peakButton(metric);
    canvas.addEventListener("pointermove", (event) => {
      this.events.pointed(event.offsetX < GUTTER ? null : this.frame().time(event.offsetX));
    });
    canvas.addEventListener("pointerleave", () => this.events.pointed(null));
    this.charts.push(chart);
    this.root.append(box);
  }

  window(from, to) {
    [this.from, this.to] = [from, to];
    this.draw();
  }

  /** Shows the values at a time, or none for null. */
  point(time) {
    if (this.pointed === time) return;
    this.pointed = time;
    this.draw();
  }

  frame() {
    return new Frame({
      ...{ left: GUTTER, top: 6, width: this.root.clientWidth - GUTTER, height: CHART_HEIGHT - 12 },
      ...{ from: this.from, to: this.to, trackHeight: CHART_HEIGHT, scroll: 0 },
    });
  }

  paintAll() {
    const palette = currentPalette();
    for (const chart of this.charts) this.paint(chart, palette);
  }

  paint(chart, palette) {
    const width = this.root.clientWidth;
    if (width <= GUTTER) return;
    fitCanvas(chart.canvas, width, CHART_HEIGHT);
    const context = chart.canvas.getContext("2d");
    const frame = this.frame();
    context.fillStyle = palette.background;
    context.fillRect(0, 0, width, CHART_HEIGHT);
    const { metric, series, named } = chart;
    const { limits } = metric;
    const highest = topOf(metric.highest, limits, metric.unit);
    clip(context, frame.left, 0, frame.width, CHART_HEIGHT);
    paintGrid(context, frame, palette);
    paintAxisLines(context, metric, frame, highest, palette);
    const colourOf = (shown) => palette.series[this.colourIn(chart, shown)];
    if (metric.stacked) paintStacked(context, chart, frame, colourOf, palette);
    else paintLines(context, series, named, frame, highest || 1, palette);
    paintLimits(context, limits, frame, highest, palette);
    context.restore();
    context.fillStyle = palette.line;
    context.fillRect(frame.left, CHART_HEIGHT - 6, frame.width, 1);
    paintChartTitle(context, metric, frame, highest, palette);
    chart.canvas.setAttribute("aria-label", labelOf(metric, limits));
    const near = limits.filter(({ value }) => value <= highest);
    this.paintReading(chart, near, frame, context, palette);
  }

  /** Returns the colour of a series in the legend. */
  colourIn({ metric, named }, shown) {
    return metric.stacked ? this.events.colourOf(shown.label) : named.indexOf(shown);
  }

  /** Shows the legend, with the values at the pointer. */
  paintReading(chart, limits, frame, context, palette) {
    const { series, named } = chart;
    const inside = this.pointed !== null && this.pointed >= this.from && this.pointed <= this.to;
    const time = inside ? this.pointed : NaN;
    if (inside) {
      context.fillStyle = palette.faint;
      context.fillRect(Math.round(frame.x(time)), 0, 1, CHART_HEIGHT);
    }
    // A legend that is equal to the legend above is hidden.
    const above = this.charts[this.charts.indexOf(chart) - 1];
    const repeated = !inside && above && String(labelsOf(above)) === String(labelsOf(chart));
    const shown = named.map((one) => {
      const at = lastAtMost(one.times, time);
      const text = at < 0 ? "–" : formatUnit(one.values[at], chart.metric.unit);
      const value = make("b", {}, inside ? text : "");
      return make("span", {}, seriesSwatch(this.colourIn(chart, one)), `${shortened(one.label, 30)} `, value);
    });
    if (series.length > named.length)
      shown.push(make("span", {}, `${series.length - named.length} others are closer to the median`));
    const lines = limits.map(({ value, kind, name }) =>
      make("span", { class: "limit" }, make("i", { class: kind }), `${name}: ${formatUnit(value, chart.metric.unit)}`),
    );
    for (const entry of shown) entry.hidden = repeated;
    chart.reading.replaceChildren(...lines, ...shown, ...(chart.peak ? [chart.peak] : []));
  }
}

/** Creates a button that leads to the table of what held memory at the peak of the processes. */
function peakButton({ highest, peak, unit }) {
  const onclick = () => byId("memory-peak-table-title").scrollIntoView();
  const values = `${formatUnit(highest, unit)} at ${formatSeconds(peak)}`;
  const text = `Peak ${values}. Show what held memory when the processes used most`;
  return make("button", { type: "button", class: "peak", onclick }, text);
}

function labelsOf({ named }) {
  return named.map((one) => one.label);
}

/** Paints the series of the legend in their colours, and all others faint below them. */
function paintLines(context, series, named, frame, highest, palette) {
  context.globalAlpha = Math.max(0.25, 8 / series.length);
  for (const one of series)
    if (!named.includes(one)) paintSeries(context, one, frame, highest, palette.series[OTHER]);
  context.globalAlpha = 1;
  for (const [at, one] of named.entries())
    paintSeries(context, one, frame, highest, palette.series[at], series.length === 1);
}

/** Paints series of the same times on top of each other, and their peak. */
function paintStacked(context, { metric, series }, frame, colourOf, palette) {
  const { times } = series[0];
  const y = (value) => heightOf(value, frame, metric.highest || 1);
  const first = Math.max(0, lastAtMost(times, frame.from));
  const last = Math.min(times.length - 1, lastAtMost(times, frame.to) + 1);
  const below = new Float64Array(times.length);
  for (const one of series) {
    context.beginPath();
    for (let at = first; at <= last; at += 1) context.lineTo(frame.x(times[at]), y(below[at]));
    for (let at = last; at >= first; at -= 1) {
      below[at] += one.values[at];
      context.lineTo(frame.x(times[at]), y(below[at]));
    }
    context.fillStyle = colourOf(one);
    context.fill();
    // An edge separates series with the same colour.
    context.strokeStyle = palette.background;
    context.lineWidth = 0.5;
    context.stroke();
  }
  const x = Math.round(frame.x(metric.peak)) + 0.5;
  context.strokeStyle = palette.text;
  context.lineWidth = 1;
  context.setLineDash([3, 3]);
  context.strokeRect(x, frame.top, 0, frame.height);
  context.setLineDash([]);
}

function paintSeries(context, { times, values }, frame, highest, colour, filled) {
  const first = Math.max(0, lastAtMost(times, frame.from));
  const last = Math.min(times.length - 1, lastAtMost(times, frame.to) + 1);
  if (last < first) return;
  context.beginPath();
  for (let at = first; at <= last; at += 1) context.lineTo(frame.x(times[at]), heightOf(values[at], frame, highest));
  context.strokeStyle = colour;
  context.lineWidth = 1.4;
  context.lineJoin = "round";
  context.stroke();
  if (!filled) return;
  for (const at of [last, first]) context.lineTo(frame.x(times[at]), frame.top + frame.height);
  context.fillStyle = colour;
  context.globalAlpha *= 0.18;
  context.fill();
}

/** Returns the highest value of an axis: the maximum, or the highest limit near it. */
function topOf(highest, limits, unit) {
  const near = limits.filter(({ value }) => unit === "%" || value <= highest * NEAR_LIMIT);
  return Math.max(highest, ...near.map(({ value }) => value * 1.04));
}

/** Returns a description of a chart for screen readers. */
function labelOf({ label, unit, highest }, limits) {
  const values = limits.map(({ value, name }) => `, ${name}: ${formatUnit(value, unit)}`);
  return `${label} over time, at most ${formatUnit(highest, unit)}${values.join("")}`;
}

/** Returns one to three round values between 0 and the highest. */
export function axisValues(highest, unit) {
  if (highest <= 0) return [];
  const power = 10 ** Math.floor(Math.log10(highest / 2));
  const smallest = unit === "" || unit.startsWith("B") ? 1 : 0;
  const steps = [1, 2, 5, 10].map((times) => Math.max(times * power, smallest));
  const step = steps.find((each) => highest / each < 4);
  return Array.from({ length: Math.floor(highest / step + 1e-9) }, (_, at) => (at + 1) * step);
}

function heightOf(value, frame, highest) {
  return frame.top + frame.height * (1 - value / highest);
}

function paintAxisLines(context, { unit }, frame, highest, palette) {
  context.fillStyle = palette.line;
  for (const value of axisValues(highest, unit))
    context.fillRect(frame.left, Math.round(heightOf(value, frame, highest)), frame.width, 1);
}

/** Returns the title of a chart in lines that end before the numbers of its axis. */
export function linesOfTitle(title) {
  const lines = [""];
  for (const word of title.split(" ")) {
    const longer = `${lines.at(-1)} ${word}`.trim();
    if (longer.length > TITLE_LETTERS && lines.at(-1)) lines.push(word);
    else lines[lines.length - 1] = longer;
  }
  return lines;
}

/** Paints limits as dashed lines, without those above the axis. */
function paintLimits(context, limits, frame, highest, palette) {
  context.lineWidth = 1;
  for (const { value, kind } of limits) {
    if (value > highest) continue;
    const { colour, dashes } = LIMIT_LINES[kind];
    const y = Math.round(heightOf(value, frame, highest)) + 0.5;
    context.strokeStyle = palette[colour];
    context.setLineDash(dashes);
    context.beginPath();
    context.moveTo(frame.left, y);
    context.lineTo(frame.left + frame.width, y);
    context.stroke();
  }
  context.setLineDash([]);
}

function paintChartTitle(context, metric, frame, highest, palette) {
  context.textBaseline = "middle";
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = palette.text;
  for (const [at, line] of linesOfTitle(metric.label).entries()) context.fillText(line, 0, 12 + 15 * at);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = palette.faint;
  context.textAlign = "right";
  for (const value of [0, ...axisValues(highest, metric.unit)]) {
    const y = Math.min(Math.max(heightOf(value, frame, highest || 1), 6), CHART_HEIGHT - 6);
    context.fillText(formatUnit(value, metric.unit), frame.left - 6, y);
  }
  context.textAlign = "left";
}
