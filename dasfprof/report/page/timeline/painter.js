// Painting of tracks: bars with names where few are seen, pixels where many are.

const MANY_BARS = 6000;
const LABEL_WIDTH = 44;
/** Pixels of the teeth at the end of a bar that had not ended. */
const OPEN_END = 6;
/** The place in a palette of what has no colour of its own. */
const OTHER = 7;
const DIM = 16;
const SHADES = 32;
const DARK = matchMedia("(prefers-color-scheme: dark)");
const palettes = new Map();

/** Colours of the page, for the light or the dark scheme, as CSS and as 32-bit pixels. */
class Palette {
  constructor() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.series = [0, 1, 2, 3, 4, 5, 6, 7].map((at) => colour(`--series-${at}`));
    this.background = colour("--canvas");
    this.band = colour("--band");
    this.text = colour("--text");
    this.faint = colour("--faint");
    this.line = colour("--line");
    this.accent = colour("--accent");
    this.needs = colour("--needs");
    this.needed = colour("--needed");
    this.rgb = this.series.map(rgbOf);
    const background = rgbOf(this.background);
    const dim = this.rgb.map((one) => mixed(background, one, 0.16));
    this.dimSeries = dim.map((one) => `rgb(${one.join(" ")})`);
    /** Pixels of each colour, and `DIM` further of each dimmed one, by how full they are. */
    this.shades = [];
    for (const [at, one] of [
      ...this.rgb.entries(),
      ...dim.map((other, place) => [place + DIM, other]),
    ]) {
      this.shades[at] = Array.from({ length: SHADES + 1 }, (_, full) =>
        pixelOf(mixed(background, one, 0.3 + (0.7 * full) / SHADES)),
      );
    }
    this.inks = this.rgb.map(([r, g, b]) =>
      r * 0.3 + g * 0.59 + b * 0.11 > 140 ? "#14171c" : "#fff",
    );
  }
}

/** The palette of the scheme that is in force. */
function currentPalette() {
  const dark = DARK.matches;
  palettes.set(dark, palettes.get(dark) ?? new Palette());
  return palettes.get(dark);
}

function rgbOf(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

function mixed(from, to, share) {
  return from.map((value, at) => Math.round(value + (to[at] - value) * share));
}

function pixelOf([r, g, b]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}

/** Where in a canvas the tracks are, and which time is where. */
class Frame {
  constructor({ left, top, width, height, from, to, trackHeight, scroll }) {
    Object.assign(this, { left, top, width, height, from, to, trackHeight, scroll });
    this.perSecond = width / (to - from || 1);
  }

  x(time) {
    return this.left + (time - this.from) * this.perSecond;
  }

  time(x) {
    return this.from + (x - this.left) / this.perSecond;
  }

  y(track) {
    return this.top + track * this.trackHeight - this.scroll;
  }

  track(y) {
    return Math.floor((y - this.top + this.scroll) / this.trackHeight);
  }

  /** First and last track that are seen, of so many. */
  tracks(count) {
    const last = Math.min(count - 1, this.track(this.top + this.height - 1));
    return [Math.max(0, this.track(this.top)), last];
  }
}

class Painter {
  constructor(tasks) {
    this.tasks = tasks;
  }

  /** Paints the bars of a view; `colours` has a place in the palette for each row, `matches` a
   * flag for each row or null. */
  paint(context, view, frame, colours, matches, palette) {
    const [first, last] = frame.tracks(view.tracks.length);
    const parts = [];
    let bars = 0;
    let areas = false;
    for (let track = first; track <= last; track += 1) {
      const [from, to] = seenIn(view, this.tasks, track, frame.from, frame.to);
      parts.push([track, from, to]);
      bars += to - from;
      areas ||= view.tracks[track].area;
    }
    if (bars > MANY_BARS || areas) {
      this.paintPixels(context, view, frame, parts, colours, matches, palette);
    } else this.paintBars(context, view, frame, parts, colours, matches, palette);
    return bars;
  }

  paintBars(context, view, frame, parts, colours, matches, palette) {
    const { tasks } = this;
    const gap = frame.trackHeight > 8 ? 1 : 0;
    const height = Math.max(1, frame.trackHeight - 2 * gap);
    const labels = frame.trackHeight >= 14;
    context.font = `${Math.min(12, frame.trackHeight - 6)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (const [track, from, to] of parts) {
      const y = frame.y(track) + gap;
      for (let at = from; at < to; at += 1) {
        const row = view.rows ? view.rows[at] : at;
        const x = Math.max(frame.x(tasks.starts[row]), frame.left - 2);
        const end = Math.min(
          frame.x(tasks.starts[row] + tasks.durations[row]),
          frame.left + frame.width + 2,
        );
        if (end < frame.left) continue;
        const width = Math.max(end - x, 0.75);
        const lit = matches ? matches[row] : !view.lit || view.lit[row];
        context.fillStyle = (lit ? palette.series : palette.dimSeries)[colours[row]];
        if (tasks.isOpen(row) && width > 2 * OPEN_END) paintOpenBar(context, x, y, width, height);
        else context.fillRect(x, y, width > 4 ? width - 1 : width, height);
        if (labels && width > LABEL_WIDTH && lit) {
          context.fillStyle = palette.inks[colours[row]];
          const most = Math.floor((width - 8) / 6.2);
          context.fillText(shortened(tasks.functionName(row), most), x + 4, y + height / 2 + 0.5);
        }
      }
    }
  }

  paintPixels(context, view, frame, parts, colours, matches, palette) {
    const scale = context.getTransform().a;
    const width = Math.round(frame.width * scale);
    const height = Math.round(frame.height * scale);
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(pixelOf(rgbOf(palette.background)));
    const line = new Float64Array(width);
    const longest = new Float64Array(width);
    const colour = new Uint8Array(width);
    for (const [track, from, to] of parts) {
      line.fill(0);
      longest.fill(0);
      this.cover(view, frame, from, to, colours, matches, { width, line, longest, colour });
      const top = Math.round((frame.y(track) - frame.top) * scale);
      const bottom = Math.round((frame.y(track + 1) - frame.top) * scale);
      const space = frame.trackHeight > 4 ? Math.round(scale) : 0;
      const paintTrack = view.tracks[track].area ? paintArea : paintShare;
      paintTrack(
        pixels,
        width,
        Math.max(top, 0),
        Math.min(bottom - space, height),
        top,
        bottom - space,
        {
          line,
          colour,
          palette,
        },
      );
    }
    context.putImageData(image, Math.round(frame.left * scale), Math.round(frame.top * scale));
  }

  /** Sums for each pixel how much of it tasks cover, and finds the colour of the longest one. */
  cover(view, frame, from, to, colours, matches, { width, line, longest, colour }) {
    const { starts, durations } = this.tasks;
    const { rows, lit } = view;
    const perSecond = width / (frame.to - frame.from || 1);
    for (let at = from; at < to; at += 1) {
      const row = rows ? rows[at] : at;
      const begin = (starts[row] - frame.from) * perSecond;
      const end = begin + durations[row] * perSecond;
      if (end < 0 || begin >= width) continue;
      // What is lit is worth more than anything that is not.
      const dim = matches ? !matches[row] : lit !== undefined && !lit[row];
      const tone = dim ? colours[row] + DIM : colours[row];
      const weight = dim ? 1e-6 : 1;
      const first = begin > 0 ? begin | 0 : 0;
      const last = end < width ? end | 0 : width - 1;
      for (let pixel = first; pixel <= last; pixel += 1) {
        const share = (end < pixel + 1 ? end : pixel + 1) - (begin > pixel ? begin : pixel);
        line[pixel] += share;
        const worth = share * weight + 1e-12;
        if (worth > longest[pixel]) {
          longest[pixel] = worth;
          colour[pixel] = tone;
        }
      }
    }
  }
}

/** A bar whose right end is torn: its task had not ended. */
function paintOpenBar(context, x, y, width, height) {
  const teeth = Math.max(1, Math.round(height / OPEN_END));
  context.beginPath();
  context.moveTo(x, y);
  for (let at = 0; at < teeth; at += 1) {
    context.lineTo(x + width, y + (at * height) / teeth);
    context.lineTo(x + width - OPEN_END, y + ((at + 0.5) * height) / teeth);
  }
  context.lineTo(x + width, y + height);
  context.lineTo(x, y + height);
  context.fill();
}

/** A track whose pixels are the fuller the more of their time is covered. */
function paintShare(pixels, width, top, bottom, _trackTop, _trackBottom, { line, colour, palette }) {
  if (bottom <= top) return;
  const begin = top * width;
  for (let x = 0; x < width; x += 1) {
    if (line[x] > 0)
      pixels[begin + x] = palette.shades[colour[x]][Math.min(SHADES, Math.ceil(line[x] * SHADES))];
  }
  for (let y = top + 1; y < bottom; y += 1) pixels.copyWithin(y * width, begin, begin + width);
}

/** A track that is the higher the more tasks ran at a time. */
function paintArea(pixels, width, top, bottom, trackTop, trackBottom, { line, colour, palette }) {
  let highest = 1;
  for (let x = 0; x < width; x += 1) highest = Math.max(highest, line[x]);
  const room = trackBottom - trackTop;
  for (let x = 0; x < width; x += 1) {
    if (line[x] <= 0) continue;
    const tone = palette.shades[colour[x]][SHADES];
    const high = Math.max(1, Math.round((line[x] / highest) * room));
    for (let y = Math.max(top, trackBottom - high); y < bottom; y += 1) pixels[y * width + x] = tone;
  }
}
