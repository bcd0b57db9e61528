// Painting of tracks: bars with names if few are visible, or else pixels.

import { shortened } from "../format.js";
import { cover } from "./gaps.js";
import { clip } from "./marks.js";
import { DIM, FAILED, pixelOf, rgbOf, SHADES } from "./palette.js";
import { seenIn } from "./views.js";

const MANY_BARS = 6000;
export const LABEL_WIDTH = 44;
/** Pixels of the teeth at the end of an unfinished bar. */
const OPEN_END = 6;
/** Minimum width and height in pixels of bars that show the categories of their time. */
const SPLIT_SIZE = [30, 15];
const SPLIT_HEIGHT = 4;

export class Painter {
  constructor(tasks) {
    this.tasks = tasks;
    /** The time between the bars, or null if it is not painted. */
    this.gaps = null;
  }

  /** Paints the tracks of a view. `colours` and `matches` (or null) have a value for each row. */
  paint(context, view, frame, colours, matches, palette) {
    let bars = 0;
    const regions = frame.regions(view.tracks.length).map((region) => {
      const parts = region.tracks.map((track) => {
        const [from, to] = seenIn(view, this.tasks, track, frame.from, frame.to);
        const crowded = isCrowded(view.tracks[track]);
        if (!crowded) bars += to - from;
        return { track, from, to, crowded };
      });
      return { ...region, parts };
    });
    // If some bars are highlighted, the time between bars is not of interest.
    const dim = matches !== null || view.lit !== undefined;
    const look = { colours, matches, palette, dim };
    for (const region of regions) this.paintRegion(context, view, frame, region, bars > MANY_BARS, look);
  }

  /** Paints the tracks of a region, which may scroll below another region. */
  paintRegion(context, view, frame, { top, height, parts }, many, look) {
    clip(context, frame.left, top, frame.width, height);
    this.paintPixels(context, view, frame, { top, height, parts, many }, look);
    for (const part of parts) {
      const { transfers } = view.tracks[part.track];
      if (transfers) {
        const [y, high] = [frame.y(part.track), frame.heightOf(part.track)];
        this.tasks.transfers.paint(context, view.tracks[part.track], y, high, frame, look.palette);
      } else if (!many && !part.crowded) this.paintBars(context, view, frame, part, look);
    }
    context.restore();
  }

  paintBars(context, view, frame, { track, from, to }, look) {
    const { tasks } = this;
    const high = frame.heightOf(track);
    const gap = high > 8 ? 1 : 0;
    const [y, height] = [frame.y(track) + gap, Math.max(1, high - 2 * gap)];
    context.font = `${Math.min(12, high - 6)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    for (let at = from; at < to; at += 1) {
      const row = view.rows[at];
      const x = Math.max(frame.x(tasks.starts[row]), frame.left - 2);
      const end = Math.min(frame.x(tasks.starts[row] + tasks.durations[row]), frame.left + frame.width + 2);
      if (end < frame.left) continue;
      const place = { x, y, width: Math.max(end - x, 0.75), height, named: high >= 14 };
      this.paintBar(context, row, frame, place, this.isLit(view, row, look.matches), look);
    }
  }

  /** Paints a task run, `lit` or dim, with its categories and its name if they fit. */
  paintBar(context, row, frame, { x, y, width, height, named }, lit, { colours, matches, palette }) {
    const { tasks } = this;
    context.fillStyle = (lit ? palette.series : palette.dimSeries)[colours[row]];
    if (tasks.isOpen(row) && width > 2 * OPEN_END) paintOpenBar(context, x, y, width, height);
    else context.fillRect(x, y, width > 4 ? width - 1 : width, height);
    const split = this.gaps && lit && width > SPLIT_SIZE[0] && height > SPLIT_SIZE[1];
    if (split) this.paintSplit(context, row, frame, [y + height - SPLIT_HEIGHT, SPLIT_HEIGHT], palette);
    if (this.gaps?.only && (!matches || matches[row])) this.paintSplit(context, row, frame, [y, height], palette);
    if (tasks.failed?.[row]) paintFailed(context, x, y, width, height, palette);
    if (!named || width <= LABEL_WIDTH || !lit) return;
    context.fillStyle = palette.inks[colours[row]];
    const middle = y + (height - (split ? SPLIT_HEIGHT : 0)) / 2 + 0.5;
    context.fillText(shortened(tasks.functionName(row), Math.floor((width - 8) / 6.2)), x + 4, middle);
  }

  isLit({ lit }, row, matches) {
    if (this.gaps?.only) return false;
    return matches ? matches[row] === 1 : !lit || lit[row] === 1;
  }

  /** Paints the categories of a function's time as a part of its bar. */
  paintSplit(context, row, frame, [y, height], palette) {
    const { starts, durations } = this.tasks;
    const width = durations[row] * frame.perSecond - 1;
    let x = frame.x(starts[row]);
    context.fillStyle = palette.background;
    if (!this.gaps.only) context.fillRect(x, y - 1, width, 1);
    for (const [at, seconds] of this.gaps.split(row).entries()) {
      const code = this.gaps.inside[at];
      const part = (seconds / durations[row]) * width;
      context.fillStyle = palette.series[this.gaps.swatches[code].colour];
      if (this.gaps.shows(code)) context.fillRect(x, y, part, height);
      x += part;
    }
  }

  /** Paints everything that consists of pixels: tracks with many bars, and the time between bars. */
  paintPixels(context, view, frame, { top, height: high, parts, many }, look) {
    const inPixels = ({ track, crowded }) => many || crowded || this.gaps?.has(view.tracks[track]);
    if (!parts.some(inPixels)) return;
    const scale = context.getTransform().a;
    const [width, height] = [frame.width, high].map((size) => Math.round(size * scale));
    const image = context.createImageData(width, height);
    const pixels = new Uint32Array(image.data.buffer);
    pixels.fill(pixelOf(rgbOf(look.palette.background)));
    const sums = { line: new Float64Array(width), longest: new Float64Array(width), colour: new Uint8Array(width) };
    for (const part of parts) {
      const y = frame.y(part.track) - top;
      const [begin, end] = [y, y + frame.heightOf(part.track)].map((at) => Math.round(at * scale));
      const place = { pixels, width, height, begin, end, scale };
      if (many || part.crowded) this.paintCrowded(view, frame, part, place, sums, look);
      else if (this.gaps?.has(view.tracks[part.track])) this.paintBetween(view, frame, part, place, look);
    }
    context.putImageData(image, Math.round(frame.left * scale), Math.round(top * scale));
  }

  /** Paints a track with too many bars for single bars. */
  paintCrowded(view, frame, { track, from, to }, { pixels, width, height, begin: top, end, scale }, sums, look) {
    const { area, lanes = [] } = view.tracks[track];
    const { line, longest, colour } = sums;
    line.fill(0);
    longest.fill(0);
    this.cover(view, frame, from, to, look, { width, ...sums });
    if (lanes.length > 1) for (let x = 0; x < width; x += 1) line[x] /= lanes.length;
    const bottom = end - (frame.heightOf(track) > 4 ? Math.round(scale) : 0);
    const filled = this.gaps?.has(view.tracks[track]);
    const { palette, dim } = look;
    if (filled) paintGaps(pixels, width, this.gaps, lanes, frame, palette, { top, bottom, height, line, dim });
    const paintTrack = area || filled ? paintArea : paintShare;
    const tones = { line, colour, palette, filled: filled && !area };
    const place = [Math.max(top, 0), Math.min(bottom, height), top, bottom];
    paintTrack(pixels, width, ...place, tones);
    if (!this.gaps?.only) return;
    line.fill(0);
    this.coverAlone(view, frame, from, to, look, { width, line, colour });
    if (lanes.length > 1) for (let x = 0; x < width; x += 1) line[x] /= lanes.length;
    paintTrack(pixels, width, ...place, tones);
  }

  /** Adds up the fraction of each pixel in the only categories that are shown. */
  coverAlone(view, frame, from, to, { matches }, { width, line, colour }) {
    const { starts, durations } = this.tasks;
    const perSecond = width / (frame.to - frame.from || 1);
    for (const row of view.rows.subarray(from, to)) {
      const [part, tone] = matches && !matches[row] ? [0, 0] : this.gaps.chosenPart(row);
      if (!part) continue;
      const begin = (starts[row] - frame.from) * perSecond;
      const end = begin + durations[row] * perSecond;
      cover(line, begin, end, part);
      colour.fill(tone, Math.max(0, Math.floor(begin)), Math.max(0, Math.ceil(end)));
    }
  }

  /** Paints the time between single bars. */
  paintBetween(view, frame, { track }, { pixels, width, height, begin: top, end, scale }, { palette, dim }) {
    const inset = frame.heightOf(track) >= 10 ? Math.round(3 * scale) : Math.round(scale);
    const place = { top: top + inset - Math.round(scale), bottom: end - inset, height, line: null, dim };
    paintGaps(pixels, width, this.gaps, view.tracks[track].lanes, frame, palette, place);
  }

  /** Adds up the fraction of each pixel that tasks cover, and finds the colour of the longest task. */
  cover(view, frame, from, to, { colours, matches }, { width, line, longest, colour }) {
    const { starts, durations, failed } = this.tasks;
    const { rows, lit } = view;
    const faded = Boolean(this.gaps?.only);
    const perSecond = width / (frame.to - frame.from || 1);
    for (let at = from; at < to; at += 1) {
      const row = rows[at];
      const begin = (starts[row] - frame.from) * perSecond;
      const end = begin + durations[row] * perSecond;
      if (end < 0 || begin >= width) continue;
      // A highlighted task determines the colour, however short it is.
      const dim = faded || (matches ? !matches[row] : lit !== undefined && !lit[row]);
      const bad = !dim && failed !== null && failed[row] === 1;
      const tone = bad ? FAILED : dim ? colours[row] + DIM : colours[row];
      const weight = bad ? 1e6 : dim ? 1e-6 : 1;
      const first = Math.max(begin, 0) | 0;
      const last = Math.min(end, width - 1) | 0;
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

/** Returns whether the bars of a track would overlap. */
export function isCrowded({ area, lanes }) {
  return area || lanes?.length > 1;
}

/** Marks the bar of a failed task with a frame. */
export function paintFailed(context, x, y, width, height, palette) {
  context.fillStyle = palette.bad;
  context.fillRect(x, y, Math.max(width, 2), 3);
  context.fillRect(x, y, Math.min(2, width), height);
  if (width < 8 || height < 8) return;
  context.strokeStyle = palette.bad;
  context.lineWidth = 1.5;
  context.strokeRect(x + 0.75, y + 0.75, width - 2.5, height - 1.5);
}

/** Paints the bar of an unfinished task, with a jagged end. */
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

/** Paints a track with pixels whose shade shows the covered fraction of their time. */
function paintShare(pixels, width, top, bottom, _trackTop, _trackBottom, { line, colour, palette }) {
  if (bottom <= top) return;
  const begin = top * width;
  for (let x = 0; x < width; x += 1) {
    if (line[x] > 0)
      pixels[begin + x] = palette.shades[colour[x]][Math.min(SHADES, Math.ceil(line[x] * SHADES))];
  }
  for (let y = top + 1; y < bottom; y += 1) pixels.copyWithin(y * width, begin, begin + width);
}

/** Paints a track whose height is the number of running tasks, or for `filled` the fraction of busy threads. */
function paintArea(pixels, width, top, bottom, trackTop, trackBottom, { line, colour, palette, filled }) {
  let highest = 1;
  if (!filled) for (let x = 0; x < width; x += 1) highest = Math.max(highest, line[x]);
  const room = trackBottom - trackTop;
  for (let x = 0; x < width; x += 1) {
    if (line[x] <= 0) continue;
    const tone = palette.shades[colour[x]][SHADES];
    const high = Math.max(1, Math.round(Math.min(line[x] / highest, 1) * room));
    for (let y = Math.max(top, trackBottom - high); y < bottom; y += 1) pixels[y * width + x] = tone;
  }
}

/**
 * Paints the time that bars do not cover. The height of a category is its fraction of a pixel's time. `line`
 * has the fraction of bars, which are below, or is null if bars are painted on top.
 */
function paintGaps(pixels, width, gaps, lanes, frame, palette, { top, bottom, height, line, dim }) {
  const [held, ...around] = gaps.heldIn(lanes, frame, width);
  const idle = gaps.idle(lanes[0], frame, width);
  const room = bottom - top;
  const codes = [...gaps.around, ...idle.map(([code]) => code)];
  const faint = dim && gaps.only === null;
  const tonesOf = ({ colour, busy }) => palette.gapTones(colour, busy, faint);
  const tones = codes.map((code) => (gaps.shows(code) ? tonesOf(gaps.swatches[code]) : palette.nothing));
  // Steps of 5 instead of 1, modulo 6, reverse the direction of the hatching.
  const ways = codes.map((code) => (gaps.swatches[code].back ? 5 : 1));
  const shares = [...around, ...idle.map(([, each]) => each)];
  for (let x = 0; x < width; x += 1) {
    const free = Math.max(0, 1 - held[x]);
    const total = free + around[0][x] + around[1][x] + around[2][x];
    const bars = line && line[x] > 0 ? Math.max(1, Math.round(Math.min(line[x], 1) * room)) : 0;
    if (total < 0.004 || bars >= room) continue;
    const perShare = (room - bars) / total;
    let [shown, y] = [0, bottom - bars];
    for (let at = 0; at < shares.length && y > top; at += 1) {
      shown += at < around.length ? shares[at][x] : shares[at][x] * free;
      const until = Math.max(top, bottom - bars - Math.round(shown * perShare));
      for (; y > until; y -= 1) {
        if (y > 0 && y <= height) pixels[(y - 1) * width + x] = tones[at][(x + ways[at] * y) % 6 < 2 ? 1 : 0];
      }
    }
  }
}
