// Charts of resources under the timeline, over the same window of time.

const CHART_HEIGHT = 68;

class Resources {
  constructor(metrics, columns, root) {
    this.metrics = metrics;
    this.columns = columns;
    this.root = root;
    this.summed = false;
    this.charts = [];
    new ResizeObserver(() => this.draw()).observe(root);
  }

  async read() {
    const absent = new Map();
    for (const metric of this.metrics) {
      if (metric.absent) {
        absent.set(metric.absent, [...(absent.get(metric.absent) ?? []), metric.label]);
        continue;
      }
      const times = await this.columns.amounts(`times:${metric.name}`);
      const steps = await this.columns.read(`values:${metric.name}`);
      const values = Float64Array.from(steps, (step) => (step / metric.steps) * metric.highest);
      const ends = [...metric.series.slice(1).map((one) => one.first), times.length];
      const series = metric.series.map(({ label, first }, at) => ({
        label,
        times: times.subarray(first, ends[at]),
        values: values.subarray(first, ends[at]),
      }));
      this.add(metric, series);
    }
    for (const [reason, labels] of absent) {
      this.root.append(make("p", { class: "absent" }, `${labels.join(", ")}: ${reason}.`));
    }
    this.draw();
  }

  add(metric, series) {
    const canvas = make("canvas", { role: "img", "aria-label": `${metric.label} over time` });
    const reading = make("output", { class: "reading" });
    const box = make("div", { class: "chart" }, canvas, reading);
    const chart = { metric, series, canvas, reading, box };
    canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    canvas.addEventListener("pointerleave", () => this.point(null));
    this.charts.push(chart);
    this.root.append(box);
  }

  sum(summed) {
    this.summed = summed;
    this.draw();
  }

  window(from, to) {
    [this.from, this.to] = [from, to];
    this.draw();
  }

  point(x) {
    this.pointer = x;
    this.draw();
  }

  draw() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = null;
      const palette = currentPalette();
      for (const chart of this.charts) this.paint(chart, palette);
    });
  }

  paint(chart, palette) {
    const width = this.root.clientWidth;
    if (width <= GUTTER) return;
    fitCanvas(chart.canvas, width, CHART_HEIGHT);
    const context = chart.canvas.getContext("2d");
    const frame = new Frame({
      ...{ left: GUTTER, top: 6, width: width - GUTTER, height: CHART_HEIGHT - 12 },
      ...{ from: this.from, to: this.to, trackHeight: CHART_HEIGHT, scroll: 0 },
    });
    context.fillStyle = palette.background;
    context.fillRect(0, 0, width, CHART_HEIGHT);
    const { metric } = chart;
    const series = this.summed ? [summed(chart, frame)] : chart.series;
    const highest = this.summed ? Math.max(...series[0].values, 0) : metric.highest;
    context.save();
    context.beginPath();
    context.rect(frame.left, 0, frame.width, CHART_HEIGHT);
    context.clip();
    for (const [at, one] of series.entries()) {
      const colour = series.length > OTHER ? palette.accent : palette.series[at];
      context.globalAlpha = series.length > OTHER ? Math.max(0.15, 4 / series.length) : 1;
      paintSeries(context, one, frame, highest || 1, colour, series.length === 1);
    }
    context.restore();
    context.fillStyle = palette.line;
    context.fillRect(frame.left, CHART_HEIGHT - 6, frame.width, 1);
    paintChartTitle(context, metric, highest, palette);
    this.paintReading(chart, series, frame, context, palette);
  }

  /** Names the series, and tells their values where the pointer is. */
  paintReading(chart, series, frame, context, palette) {
    const inside = this.pointer != null && this.pointer >= frame.left;
    const time = inside ? frame.time(this.pointer) : NaN;
    if (inside) {
      context.fillStyle = palette.faint;
      context.fillRect(Math.round(this.pointer), 0, 1, CHART_HEIGHT);
    }
    // Charts that show the same workers as the one above do not name them again.
    const before = this.charts[this.charts.indexOf(chart) - 1];
    const named = !inside && before && String(labelsOf(before)) === String(labelsOf(chart));
    const shown = series.slice(0, named ? 0 : OTHER).map((one, at) => {
      const place = lastAtMost(one.times, time);
      const text = !inside
        ? ""
        : place < 0
          ? "–"
          : formatUnit(one.values[place], chart.metric.unit);
      const colour = make("i");
      colour.style.background = series.length > OTHER ? palette.accent : palette.series[at];
      return make("span", {}, colour, `${shortened(one.label, 30)} ${text}`);
    });
    if (series.length > OTHER && !named)
      shown.push(make("span", {}, `and ${series.length - OTHER} more`));
    chart.reading.replaceChildren(...shown);
  }
}

function labelsOf({ series }) {
  return series.map((one) => one.label);
}

function paintSeries(context, { times, values }, frame, highest, colour, filled) {
  const base = frame.top + frame.height;
  const y = (value) => base - (value / highest) * frame.height;
  const first = Math.max(0, lastAtMost(times, frame.from));
  const last = Math.min(times.length - 1, lastAtMost(times, frame.to) + 1);
  if (last < first) return;
  context.beginPath();
  for (let at = first; at <= last; at += 1) context.lineTo(frame.x(times[at]), y(values[at]));
  context.strokeStyle = colour;
  context.lineWidth = 1.4;
  context.lineJoin = "round";
  context.stroke();
  if (!filled) return;
  context.lineTo(frame.x(times[last]), base);
  context.lineTo(frame.x(times[first]), base);
  context.fillStyle = colour;
  context.globalAlpha *= 0.18;
  context.fill();
}

function paintChartTitle(context, metric, highest, palette) {
  context.textBaseline = "middle";
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = palette.text;
  context.fillText(metric.label, 0, CHART_HEIGHT / 2 - 8);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = palette.faint;
  context.fillText(`up to ${formatUnit(highest, metric.unit)}`, 0, CHART_HEIGHT / 2 + 9);
}

/** The sum of all series at each second pixel; each counts from its first to its last reading. */
function summed({ series }, frame) {
  const points = Math.max(2, Math.floor(frame.width / 2));
  const times = Float64Array.from({ length: points }, (_, at) => frame.time(frame.left + at * 2));
  const values = new Float64Array(points);
  for (const one of series) {
    const end = one.times.at(-1);
    for (let at = 0; at < points && times[at] <= end; at += 1) {
      const place = lastAtMost(one.times, times[at]);
      if (place >= 0) values[at] += one.values[place];
    }
  }
  return { label: "all together", times, values };
}
