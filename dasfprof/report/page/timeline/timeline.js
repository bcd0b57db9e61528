// The timeline: the tracks of a view between two times.

import { inNextFrame } from "../dom.js";
import { rowColours } from "./colours.js";
import { Frame, GUTTER, RULER } from "./frame.js";
import { Gestures } from "./gestures.js";
import { clip, fitCanvas, paintGrid, paintRuler, paintTitles } from "./marks.js";
import { isCrowded, Painter } from "./painter.js";
import { currentPalette, DARK } from "./palette.js";
import { paintPath, segmentAt } from "./path.js";
import { paintSelection } from "./selection.js";
import { Tip } from "./tip.js";
import { firstFrom, hierarchyView, seenIn, tracksOfRows, usuallyOpen } from "./views.js";

const MIN_SPAN = 2e-6;
const TRACKS_HEIGHT = [96, 430];
const TRACK_HEIGHT = [5, 26];
/** Pixels: the critical path stays readable above many tracks. */
const PATH_HEIGHT = 30;

export class Timeline {
  /**
   * `events` has the callbacks `selected(row, how)` and `moved(from, to)`, and optionally `pointed(time)`
   * (null if the pointer leaves), `step(name)`, `gap(gap)`, and `chosen(area)` with `dragsChoose()`, which
   * returns whether a drag without Shift selects an area.
   */
  constructor(tasks, root, events) {
    this.tasks = tasks;
    this.events = events;
    this.painter = new Painter(tasks);
    this.root = root;
    this.canvas = root.querySelector("canvas.picture");
    this.overlay = root.querySelector("canvas.overlay");
    this.tip = new Tip(this, root.querySelector(".tip"));
    this.opened = usuallyOpen(tasks);
    /** Ordered times of a finding, or null for the full run. */
    this.marked = null;
    this.from = 0;
    /** The end of the axis. */
    this.end = tasks.span || 1;
    /** The time at which a line is drawn, or null. */
    this.cursor = null;
    this.to = this.end;
    this.scroll = 0;
    this.selected = -1;
    /** The selected time between task runs, see `Gaps.at`, or null. */
    this.gap = null;
    /** The selected time and tracks, or null. */
    this.area = null;
    this.hovered = -1;
    this.matches = null;
    this.colourBy = "function";
    /** The steps above the tracks, or null. */
    this.band = null;
    /** Paints the timeline with the next frame. */
    this.draw = inNextFrame(() => this.paint());
    new Gestures(this, this.overlay).listen();
    new ResizeObserver(() => this.view && this.resize()).observe(root);
    DARK.addEventListener("change", () => this.draw());
  }

  show(view) {
    this.view = view;
    if (this.area) this.events.chosen?.(null);
    this.scroll = 0;
    this.resize();
  }

  colour(by) {
    this.colourBy = by;
    this.colours = rowColours(this.tasks, by);
    this.draw();
  }

  /** Shows other task runs, on an axis that ends at a time. */
  replace(tasks, end) {
    Object.assign(this, { tasks, end, painter: new Painter(tasks), from: 0, to: end });
  }

  /** Draws a line at a time, or no line for null. */
  point(time) {
    this.cursor = time;
    paintSelection(this);
  }

  /** Frames an area, or none for null. */
  showArea(area) {
    this.area = area;
    paintSelection(this);
  }

  /** Returns the visible time on all tracks as an area. */
  get visibleArea() {
    return { from: this.from, to: this.to, first: 0, last: this.view.tracks.length - 1 };
  }

  /** Returns the area between two points of the canvas. */
  areaBetween([x0, y0], [x1, y1]) {
    const frame = this.frame();
    const within = (x) => Math.min(Math.max(frame.time(x), this.from), this.to);
    const last = this.view.tracks.length - 1;
    const track = (y) => Math.min(Math.max(frame.track(Math.max(y, frame.top)), 0), last);
    const [first, end] = [Math.min(y0, y1), Math.max(y0, y1)].map(track);
    return { from: within(Math.min(x0, x1)), to: within(Math.max(x0, x1)), first, last: end };
  }

  highlight(matches) {
    this.matches = matches;
    this.draw();
  }

  select(row, { reveal = false, scroll = true } = {}) {
    this.selected = row;
    this.gap = null;
    this.hover(-1);
    if (reveal && row >= 0) this.reveal(row);
    this.draw();
    this.events.selected(row, { scroll });
  }

  /** Selects a time between task runs, see `Gaps.at`, or none for null. */
  selectGap(gap) {
    this.select(-1);
    this.gap = gap;
    if (gap) this.events.gap?.(gap);
  }

  /** Moves and scrolls the timeline so that a task run is visible. */
  reveal(row) {
    const start = this.tasks.starts[row];
    const end = start + this.tasks.durations[row];
    const span = this.to - this.from;
    if (start < this.from || end > this.to || (end - start) * 400 < span) {
      const near = Math.min(span, Math.max((end - start) * 12, this.end / 2000, MIN_SPAN));
      const wanted = Math.max(near, (end - start) * 1.5);
      this.move((start + end) / 2 - wanted / 2, (start + end) / 2 + wanted / 2);
    }
    const track = tracksOfRows(this.view, this.tasks.count)[row];
    if (track < this.firstScrolled) return;
    const top = this.topOf(track);
    const minimum = top + this.trackHeight - (this.tracksHeight - this.pinned);
    this.scrollTo(Math.min(top, Math.max(this.scroll, minimum)));
  }

  move(from, to) {
    const span = Math.min(Math.max(to - from, MIN_SPAN), this.end);
    // If the time becomes longer or shorter, its middle stays.
    const begin = (from + to) / 2 - span / 2;
    this.from = Math.min(Math.max(begin, 0), this.end - span);
    this.to = this.from + span;
    this.hover(-1);
    this.draw();
    this.events.moved(this.from, this.to);
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const span = Math.min(Math.max((this.to - this.from) * factor, MIN_SPAN), this.end);
    const share = (around - this.from) / (this.to - this.from);
    const from = Math.min(Math.max(around - share * span, 0), this.end - span);
    this.move(from, from + span);
  }

  get showsAll() {
    return this.to - this.from >= this.end * 0.999999;
  }

  showFullRun() {
    this.move(0, this.end);
  }

  /** Marks times, a list of [from, to] or null, and moves the timeline to them. */
  mark(spans) {
    this.marked = spans;
    if (!spans) return this.showFullRun();
    const [begin, end] = [spans[0][0], spans.at(-1)[1]];
    const room = Math.max((end - begin) * 0.25, MIN_SPAN, this.end / 200);
    this.move(begin - room, end + room);
  }

  /** Scrolls to the first track with a highlighted task run. */
  revealLit() {
    const { view, tasks, matches } = this;
    if (!matches) return this.scrollTo(0);
    const isLit = (_, track) => {
      const [first, end] = seenIn(view, tasks, track, this.from, this.to);
      return view.rows.subarray(first, end).some((row) => matches[row]);
    };
    const track = view.tracks.findIndex(isLit);
    if (track < this.firstScrolled) return;
    const top = this.topOf(track);
    this.scrollTo(top + this.trackHeight > this.tracksHeight - this.pinned ? top : 0);
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.move(this.from + by, this.to + by);
  }

  /** The steps above the tracks, unless the tracks are steps. */
  get shownBand() {
    return this.view.byStep ? null : this.band;
  }

  /** The y coordinate of the first track. */
  get top() {
    return RULER + (this.shownBand?.height ?? 0);
  }

  /** The height of the critical path's track, which does not scroll, or 0 without one. */
  get pinned() {
    return this.view.path ? PATH_HEIGHT : 0;
  }

  get firstScrolled() {
    return this.view.path ? 1 : 0;
  }

  /** Returns the y coordinate of a track within the tracks that scroll. */
  topOf(track) {
    return (track - this.firstScrolled) * this.trackHeight;
  }

  scrollTo(scroll) {
    const maximum = Math.max(0, this.topOf(this.view.tracks.length) - this.tracksHeight + this.pinned);
    this.scroll = Math.min(Math.max(scroll, 0), maximum);
    this.draw();
  }

  resize() {
    const { length: tracks } = this.view.tracks;
    const room = TRACKS_HEIGHT[1] - this.pinned;
    const minimum = this.view.tracks.some((track) => track.area) ? 20 : TRACK_HEIGHT[0];
    this.trackHeight = Math.min(Math.max(Math.floor(room / Math.max(tracks, 1)), minimum), TRACK_HEIGHT[1]);
    const wanted = this.topOf(tracks) + this.pinned;
    this.tracksHeight = Math.min(Math.max(wanted, TRACKS_HEIGHT[0]), TRACKS_HEIGHT[1]);
    this.width = this.root.clientWidth;
    this.height = this.tracksHeight + this.top;
    this.root.style.height = `${this.height}px`;
    for (const canvas of [this.canvas, this.overlay]) fitCanvas(canvas, this.width, this.height);
    this.scrollTo(this.scroll);
  }

  frame() {
    const { top, from, to, trackHeight, scroll, pinned, tracksHeight: height } = this;
    const width = Math.max(1, this.width - GUTTER);
    return new Frame({ left: GUTTER, top, width, height, from, to, trackHeight, scroll, pinned });
  }

  paint() {
    if (!this.view || !this.colours) return;
    const context = this.canvas.getContext("2d", { alpha: false });
    const frame = this.frame();
    const palette = currentPalette();
    context.fillStyle = palette.background;
    context.fillRect(0, 0, this.width, this.height);
    clip(context, frame.left, frame.top, frame.width, frame.height);
    this.painter.paint(context, this.view, frame, this.colours, this.matches, palette);
    if (this.view.path) paintPath(context, this.view.path, frame, this.colours, palette);
    context.restore();
    paintGrid(context, frame, palette);
    paintRuler(context, frame, palette);
    this.shownBand?.paint(context, frame, palette, this.colourBy);
    paintTitles(context, this.view, frame, palette);
    paintSelection(this, palette);
  }

  /** Returns the row at a point of the canvas, or -1 if there is none within two pixels. */
  rowAt(x, y) {
    const frame = this.frame();
    const track = frame.track(y);
    if (x < frame.left || y < frame.top || track < 0 || track >= this.view.tracks.length) return -1;
    if (isCrowded(this.view.tracks[track]) || !this.colours) return -1;
    const segment = this.segmentAt(x, y);
    if (segment >= 0) return this.view.path.rows[segment] < this.tasks.count ? this.view.path.rows[segment] : -1;
    const slack = 2 / frame.perSecond;
    const time = frame.time(x);
    const [from, to] = seenIn(this.view, this.tasks, track, time - slack, time + slack);
    let [nearest, distance] = [-1, slack];
    for (let at = to - 1; at >= from && to - at < 5000; at -= 1) {
      const row = this.view.rows[at];
      const start = this.tasks.starts[row];
      const away = Math.max(start - time, time - start - this.tasks.durations[row], 0);
      if (away < distance || (away === 0 && nearest < 0)) [nearest, distance] = [row, away];
      if (distance === 0) break;
    }
    return nearest;
  }

  /** Returns the index of the critical path's segment at a point, or -1. */
  segmentAt(x, y) {
    const frame = this.frame();
    if (!this.view.path || y < frame.top || frame.track(y) !== 0) return -1;
    return segmentAt(this.view.path, frame.time(x));
  }

  zoomTo(row) {
    const { starts, durations } = this.tasks;
    const room = Math.max(durations[row] * 0.3, MIN_SPAN);
    this.move(starts[row] - room, starts[row] + durations[row] + room);
  }

  click(x, y) {
    const track = this.view.tracks[this.frame().track(y)];
    const row = this.rowAt(x, y);
    const step = this.shownBand?.at(this.frame(), x, y);
    if (step) return this.events.step?.(step.name);
    if (row < 0 && track?.branch !== undefined && y > this.top) this.toggle(track.branch);
    else if (row >= 0) this.select(row);
    else this.selectGap(this.events.gap ? this.tip.gapAt(x, y) : null);
  }

  /** Expands or collapses the tracks of a step or function. */
  toggle(branch) {
    if (!this.opened.delete(branch)) this.opened.add(branch);
    const { scroll } = this;
    this.show(hierarchyView(this.tasks, this.opened));
    this.scrollTo(scroll);
  }

  /** Outlines a task run and shows its tooltip. For -1, the tooltip shows what is at the point. */
  hover(row, x = -1, y = -1) {
    const changed = this.hovered !== row;
    this.hovered = row;
    if (changed) paintSelection(this);
    this.tip.show(row, x, y);
  }

  /** Selects the next or previous task run of the track, or the nearest one of another track. */
  step(by, tracks) {
    const { tasks, view } = this;
    if (!tasks.count) return;
    const current = this.selected >= 0 ? tracksOfRows(view, tasks.count)[this.selected] : -1;
    const time = current >= 0 ? tasks.starts[this.selected] : this.from;
    let track = Math.max(current, 0) + tracks;
    const way = tracks < 0 ? -1 : 1;
    while (view.tracks[track] && view.offsets[track] === view.offsets[track + 1]) track += way;
    if (!view.tracks[track]) return;
    const last = view.offsets[track + 1] - 1;
    let nearest = firstFrom(view, tasks, track, time);
    // Several task runs may start at the same time.
    for (let at = nearest; current >= 0 && at <= last && tasks.starts[view.rows[at]] === time; at += 1) {
      if (view.rows[at] === this.selected) nearest = at;
    }
    const at = Math.min(Math.max(nearest + (current >= 0 ? by : 0), view.offsets[track]), last);
    this.select(view.rows[at], { reveal: true });
  }
}
