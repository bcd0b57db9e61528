// The ruler, the titles of tracks, and arrows.

import { RULER } from "./frame.js";

export function fitCanvas(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * scale), Math.round(height * scale)];
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  if (canvas.width !== wide || canvas.height !== high)
    Object.assign(canvas, { width: wide, height: high });
  canvas.getContext("2d").setTransform(scale, 0, 0, scale, 0, 0);
}

/** Limits painting to a rectangle, until the state of the context is restored. */
export function clip(context, x, y, width, height) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
}

/** Returns round times between two times, at least `apart` pixels from each other. */
export function ticks(from, to, width, apart) {
  const minimum = ((to - from) / Math.max(width, 1)) * apart;
  const power = 10 ** Math.floor(Math.log10(minimum));
  const isEnough = (seconds) => seconds >= minimum;
  let step = [1, 2, 5, 10].map((times) => times * power).find(isEnough);
  if (step > 30) step = [60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400].find(isEnough) ?? step;
  const times = [];
  for (let at = Math.ceil(from / step); at * step <= to; at += 1) times.push(at * step);
  return { step, times };
}

/** Returns a time since the start of the run, with the precision of the ruler's steps. */
export function clockText(seconds, step) {
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

/** Returns the same, rounded down, for the end of the visible time. */
export function endText(seconds, step) {
  const places = Math.min(Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), 6);
  const unit = step >= 60 ? 60 : 10 ** -places;
  return clockText(Math.floor(seconds / unit + 1e-6) * unit, step);
}

export function paintRuler(context, frame, palette) {
  const { step, times } = ticks(frame.from, frame.to, frame.width, 92);
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const time of times) {
    const x = Math.round(frame.x(time)) + 0.5;
    context.fillStyle = palette.line;
    context.fillRect(x - 0.5, 0, 1, RULER - 2);
    context.fillStyle = palette.faint;
    context.fillText(clockText(time, step), x + 4, 11);
  }
}

/** Paints lines at the ruler's times. */
export function paintGrid(context, frame, palette) {
  context.fillStyle = palette.faint;
  context.globalAlpha = 0.22;
  for (const time of ticks(frame.from, frame.to, frame.width, 92).times)
    context.fillRect(Math.round(frame.x(time)), frame.top, 1, frame.height);
  context.globalAlpha = 1;
}

export function paintTitles(context, view, frame, palette) {
  context.fillStyle = palette.background;
  context.fillRect(0, 0, frame.left, frame.top + frame.height);
  clip(context, 0, frame.top, frame.left - 8, frame.height);
  context.textBaseline = "middle";
  for (const track of frame.seen(view.tracks.length)) {
    if (!beginsGroup(view, track) || frame.heightOf(track) < 14) continue;
    const y = Math.round(frame.y(track)) - 1;
    context.fillStyle = palette.line;
    if (y >= frame.topOf(track)) context.fillRect(0, y, frame.left, 1);
  }
  for (const { track, title, y } of titledTracks(view, frame)) {
    context.fillStyle = palette.text;
    context.font = `${view.tracks[track].strong ? 600 : 400} 12px system-ui, sans-serif`;
    const fits = context.measureText(title).width < frame.left - 8;
    context.fillText(fits ? title : view.tracks[track].short || title, 0, y);
  }
  context.restore();
  context.fillStyle = palette.faint;
  if (frame.pinned) context.fillRect(0, frame.top + frame.pinned - 1, frame.left + frame.width, 1);
  paintScroll(context, view, frame, palette);
}

/** Returns whether a track is the first of its worker, step or function. */
function beginsGroup({ tracks }, track) {
  return track === 0 || tracks[track - 1].group !== tracks[track].group;
}

/** Returns the titles that fit: the track, the text and the middle of its line. */
function titledTracks(view, frame) {
  const titled = [];
  let free = -Infinity;
  for (const track of frame.seen(view.tracks.length)) {
    const { title: full, short } = view.tracks[track];
    const low = frame.heightOf(track) < 14;
    const title = low ? (short ?? full) : full;
    const y = Math.max(frame.y(track) + frame.heightOf(track) / 2, frame.topOf(track) + 7);
    if (!title || y - free < (low ? 16 : 14)) continue;
    titled.push({ track, title, y });
    free = y;
  }
  return titled;
}

/** Paints a scroll bar if some tracks are not visible. */
function paintScroll(context, view, frame, palette) {
  const total = (view.tracks.length - Number(frame.pinned > 0)) * frame.trackHeight;
  const room = frame.height - frame.pinned;
  if (total <= room) return;
  const high = Math.max(12, (room / total) * room);
  const y = frame.top + frame.pinned + (frame.scroll / (total - room)) * (room - high);
  context.fillStyle = palette.faint;
  context.fillRect(frame.left + frame.width - 4, y, 4, high);
}

/** Paints an arrow to the right, or up or down if its ends are closer than the length of its head. */
export function paintArrow(context, x0, y0, x1, y1, colour, dashes) {
  const head = Math.min(7, x1 - x0);
  const bend = (x1 - head - x0) / 2;
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineWidth = 1.5;
  context.setLineDash(dashes);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - head - bend, y1, x1 - head, y1);
  context.stroke();
  context.setLineDash([]);
  context.beginPath();
  context.moveTo(x1, y1);
  const way = head < 7 && y1 !== y0 ? Math.sign(y1 - y0) * 7 : 0;
  context.lineTo(way ? x1 - 4 : x1 - 7, way ? y1 - way : y1 - 4);
  context.lineTo(way ? x1 + 4 : x1 - 7, way ? y1 - way : y1 + 4);
  context.fill();
}
