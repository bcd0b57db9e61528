// The timeline: a window of time over the tracks of a view.

import { rowColours } from "./colours.js";
import { Frame, GUTTER, RULER } from "./frame.js";
import { Gestures } from "./gestures.js";
import { fitCanvas, paintGrid, paintOverview, paintRuler, paintTitles } from "./marks.js";
import { isCrowded, Painter } from "./painter.js";
import { currentPalette, DARK } from "./palette.js";
import { paintPath, segmentAt } from "./path.js";
import { paintSelection } from "./selection.js";
import { Tip } from "./tip.js";
import { firstFrom, hierarchyView, seenIn, tracksOfRows, usuallyOpen } from "./views.js";

const MIN_SPAN = 2e-6;
const TRACKS_HEIGHT = [96, 430];
const TRACK_HEIGHT = [5, 26];
/** The critical path stays readable above many tracks. */
const PATH_HEIGHT = 30;

export class Timeline {
  /**
   * `events` has `selected(row, how)`, `moved(from, to)`, with a band `step(name)`, and, if wanted,
   * `pointed(time)` (null: none) and `gap(gap)` and `chosen(area)`, with `dragsChoose()`: whether a drag chooses
   * an area also without Shift.
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
    /** The times that a finding speaks of, in their order; null: all of the run. */
    this.marked = null;
    this.from = 0;
    /** The end of the axis; the time at which a line is drawn, null: none. */
    this.whole = tasks.span || 1;
    this.cursor = null;
    this.to = this.whole;
    this.scroll = 0;
    this.selected = -1;
    /** The time between task runs that was clicked, see `Gaps.told`; null: none. */
    this.gap = null;
    /** The time and the tracks that were chosen; null: none. */
    this.area = null;
    this.hovered = -1;
    this.matches = null;
    this.colourBy = "function";
    /** The steps above the tracks; null: none are shown. */
    this.band = null;
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
  putOn(tasks, whole) {
    Object.assign(this, { tasks, whole, painter: new Painter(tasks), from: 0, to: whole });
  }

  /** Draws a line at a time; null: none. */
  point(time) {
    this.cursor = time;
    paintSelection(this);
  }

  /** Frames a time on some tracks; null: none. */
  showArea(area) {
    this.area = area;
    paintSelection(this);
  }

  /** A time on all tracks. */
  wholeTracks(from, to) {
    return { from, to, first: 0, last: this.view.tracks.length - 1 };
  }

  /** The area between two points of the canvas. */
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

  /** Selects a time between task runs, see `Gaps.told`; null: none. */
  selectGap(gap) {
    this.select(-1);
    this.gap = gap;
    if (gap) this.events.gap?.(gap);
  }

  /** Brings a task run into the window, and into the tracks that are seen. */
  reveal(row) {
    const start = this.tasks.starts[row];
    const end = start + this.tasks.durations[row];
    const span = this.to - this.from;
    if (start < this.from || end > this.to || (end - start) * 400 < span) {
      const near = Math.min(span, Math.max((end - start) * 12, this.whole / 2000, MIN_SPAN));
      const wanted = Math.max(near, (end - start) * 1.5);
      this.move((start + end) / 2 - wanted / 2, (start + end) / 2 + wanted / 2);
    }
    const track = tracksOfRows(this.view, this.tasks.count)[row];
    if (track < this.firstScrolled) return;
    const top = this.topOf(track);
    const least = top + this.trackHeight - (this.tracksHeight - this.pinned);
    this.scrollTo(Math.min(top, Math.max(this.scroll, least)));
  }

  move(from, to) {
    const { whole } = this;
    const span = Math.min(Math.max(to - from, MIN_SPAN), whole);
    // A window that was made longer or shorter than asked keeps its middle.
    const begin = (from + to) / 2 - span / 2;
    this.from = Math.min(Math.max(begin, 0), whole - span);
    this.to = this.from + span;
    this.hover(-1);
    this.draw();
    this.events.moved(this.from, this.to);
  }

  zoom(factor, around = (this.from + this.to) / 2) {
    const { whole } = this;
    const span = Math.min(Math.max((this.to - this.from) * factor, MIN_SPAN), whole);
    const share = (around - this.from) / (this.to - this.from);
    const from = Math.min(Math.max(around - share * span, 0), whole - span);
    this.move(from, from + span);
  }

  get showsAll() {
    return this.to - this.from >= this.whole * 0.999999;
  }

  showWholeRun() {
    this.move(0, this.whole);
  }

  /** Marks times, a list of [from, to] or null, and shows them with some room around them. */
  mark(spans) {
    this.marked = spans;
    if (!spans) return this.showWholeRun();
    const [begin, end] = [spans[0][0], spans.at(-1)[1]];
    const room = Math.max((end - begin) * 0.25, MIN_SPAN, this.whole / 200);
    this.move(begin - room, end + room);
  }

  /** Scrolls to the first track that has a lit task run in the window. */
  revealLit() {
    const { view, tasks, matches } = this;
    if (!matches) return this.scrollTo(0);
    for (let track = 0; track < view.tracks.length; track += 1) {
      const [first, end] = seenIn(view, tasks, track, this.from, this.to);
      for (let at = first; at < end; at += 1) {
        if (matches[view.rows[at]]) {
          const top = this.topOf(track);
          if (track < this.firstScrolled) return;
          if (top + this.trackHeight > this.tracksHeight - this.pinned) this.scrollTo(top);
          else this.scrollTo(0);
          return;
        }
      }
    }
  }

  pan(share) {
    const by = (this.to - this.from) * share;
    this.move(this.from + by, this.to + by);
  }

  /** The steps, where the tracks are not steps themselves. */
  get shownBand() {
    return this.view.byStep ? null : this.band;
  }

  /** Where the tracks begin. */
  get top() {
    return RULER + (this.shownBand?.height ?? 0);
  }

  /** The height of the critical path's track, which stays in place; 0: there is none. */
  get pinned() {
    return this.view.path ? PATH_HEIGHT : 0;
  }

  get firstScrolled() {
    return this.view.path ? 1 : 0;
  }

  /** Where a track begins among those that scroll. */
  topOf(track) {
    return (track - this.firstScrolled) * this.trackHeight;
  }

  scrollTo(scroll) {
    const most = Math.max(0, this.topOf(this.view.tracks.length) - this.tracksHeight + this.pinned);
    this.scroll = Math.min(Math.max(scroll, 0), most);
    this.draw();
  }

  resize() {
    const { length: tracks } = this.view.tracks;
    const room = TRACKS_HEIGHT[1] - this.pinned;
    const least = this.view.tracks.some((track) => track.area) ? 20 : TRACK_HEIGHT[0];
    this.trackHeight = Math.min(Math.max(Math.floor(room / Math.max(tracks, 1)), least), TRACK_HEIGHT[1]);
    const wanted = this.topOf(tracks) + this.pinned;
    this.tracksHeight = Math.min(Math.max(wanted, TRACKS_HEIGHT[0]), TRACKS_HEIGHT[1]);
    this.width = this.root.clientWidth;
    this.height = this.tracksHeight + this.top;
    this.root.style.height = `${this.height}px`;
    for (const canvas of [this.canvas, this.overlay]) fitCanvas(canvas, this.width, this.height);
    this.scrollTo(this.scroll);
  }

  frame() {
    return new Frame({
      left: GUTTER,
      top: this.top,
      width: Math.max(1, this.width - GUTTER),
      height: this.tracksHeight,
      from: this.from,
      to: this.to,
      trackHeight: this.trackHeight,
      scroll: this.scroll,
      pinned: this.pinned,
    });
  }

  /** Asks for a new picture with the next frame. */
  draw() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = null;
      this.paint();
    });
  }

  paint() {
    if (!this.view) return;
    const context = this.canvas.getContext("2d", { alpha: false });
    const frame = this.frame();
    const palette = currentPalette();
    context.fillStyle = palette.background;
    context.fillRect(0, 0, this.width, this.height);
    if (this.colours) {
      context.save();
      context.beginPath();
      context.rect(frame.left, frame.top, frame.width, frame.height);
      context.clip();
      this.painter.paint(context, this.view, frame, this.colours, this.matches, palette);
      if (this.view.path) paintPath(context, this.view.path, frame, this.colours, palette);
      context.restore();
      paintGrid(context, frame, palette);
    } else paintOverview(context, this.tasks, frame, palette);
    paintRuler(context, frame, palette);
    this.shownBand?.paint(context, frame, palette, this.colourBy);
    paintTitles(context, this.view, frame, palette);
    paintSelection(this, palette);
  }

  /** The row at a point of the canvas, -1 if there is none within two pixels. */
  rowAt(x, y) {
    const frame = this.frame();
    const track = frame.track(y);
    if (x < frame.left || y < frame.top || track < 0 || track >= this.view.tracks.length) return -1;
    if (isCrowded(this.view.tracks[track]) || !this.colours) return -1;
    if (this.segmentAt(x, y) >= 0) {
      const row = this.view.path.rows[this.segmentAt(x, y)];
      return row < this.tasks.count ? row : -1;
    }
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

  /** The place of the critical path's segment at a point, -1 if there is none. */
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
    if (step) return this.events.step(step.name);
    if (row < 0 && track?.branch !== undefined && y > this.top) this.toggle(track.branch);
    else if (row >= 0) this.select(row);
    else this.selectGap(this.events.gap ? this.tip.gapAt(x, y) : null);
  }

  /** Opens or closes the tracks of a step or function. */
  toggle(branch) {
    if (!this.opened.delete(branch)) this.opened.add(branch);
    const { scroll } = this;
    this.show(hierarchyView(this.tasks, this.opened));
    this.scrollTo(scroll);
  }

  /** Outlines a task run and tells of it; without one tells what is there instead. */
  hover(row, x = -1, y = -1) {
    const changed = this.hovered !== row;
    this.hovered = row;
    if (changed) paintSelection(this);
    this.tip.show(row, x, y);
  }

  /** Selects the next or last task of the track, or the nearest one of another track. */
  step(by, tracks) {
    const { tasks, view } = this;
    if (!tasks.count) return;
    const known = this.selected >= 0 ? tracksOfRows(view, tasks.count)[this.selected] : -1;
    const time = known >= 0 ? tasks.starts[this.selected] : this.from;
    let track = Math.max(known, 0) + tracks;
    const way = tracks < 0 ? -1 : 1;
    while (view.tracks[track] && view.offsets[track] === view.offsets[track + 1]) track += way;
    if (!view.tracks[track]) return;
    const rowOf = (at) => view.rows[at];
    const last = view.offsets[track + 1] - 1;
    let low = firstFrom(view, tasks, track, time);
    // Of several that start at one time, the selected one is where to step from.
    for (let at = low; known >= 0 && at <= last && tasks.starts[rowOf(at)] === time; at += 1) {
      if (rowOf(at) === this.selected) low = at;
    }
    const at = Math.min(Math.max(low + (known >= 0 ? by : 0), view.offsets[track]), last);
    this.select(rowOf(at), { reveal: true });
  }
}
