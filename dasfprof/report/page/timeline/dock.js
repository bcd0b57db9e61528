// Where what is selected tells of itself: beside the timeline, or beneath it in a window without the
// room for that. What was selected stays in sight.

import { byId } from "../dom.js";
import { formatSeconds, visible } from "../format.js";
import { showDetails } from "./details.js";
import { showGap } from "./gap_panel.js";
import { tracksOfRows } from "./views.js";

/** From this width on the panel stands beside the chart, as page.css has it. */
const BESIDE = matchMedia("(min-width: 1280px)");
/** Pixels: of the panel at first, at least, and what it leaves to the chart; of a step by keyboard. */
const [USUAL, NARROWEST, CHART, STEP] = [400, 280, 480, 24];
/** Pixels that a panel beneath the chart has at least, and the share of the window that it has at most. */
const [LOWEST, HIGHEST] = [200, 0.42];
/** Pixels around what is to be seen. */
const ROOM = 8;

export class Dock {
  page; panel; edge;

  constructor(page) {
    Object.assign(this, { page, panel: byId("details"), edge: byId("dock-edge") });
    this.width = USUAL;
    this.edge.addEventListener("pointerdown", (event) => this.drag(event));
    this.edge.addEventListener("keydown", (event) => this.onKey(event));
    addEventListener("resize", () => this.fit());
    this.fit();
  }

  /** The widest that the panel may be. */
  get widest() {
    return Math.max(NARROWEST, byId("stage").clientWidth - CHART);
  }

  /** Makes the panel so wide, within what the chart needs. */
  resize(width) {
    this.width = Math.round(Math.min(Math.max(width, NARROWEST), this.widest));
    byId("stage").style.setProperty("--dock", `${this.width}px`);
    const told = { valuenow: this.width, valuemin: NARROWEST, valuemax: this.widest };
    for (const [name, value] of Object.entries(told)) this.edge.setAttribute(`aria-${name}`, String(value));
  }

  /** Gives the panel the room that the window has for it. */
  fit() {
    this.resize(this.width);
    const free = innerHeight - this.ceiling - this.page.timeline.root.offsetHeight - 2 * ROOM;
    const high = Math.min(Math.max(free, LOWEST), HIGHEST * innerHeight);
    this.panel.style.maxHeight = BESIDE.matches ? "" : `${high}px`;
  }

  drag(event) {
    if (event.button !== 0) return;
    const { edge } = this;
    edge.setPointerCapture(event.pointerId);
    const [from, width] = [event.clientX, this.width];
    const move = (moved) => this.resize(width + from - moved.clientX);
    edge.addEventListener("pointermove", move);
    const drop = () => edge.removeEventListener("pointermove", move);
    for (const end of ["pointerup", "pointercancel"]) edge.addEventListener(end, drop, { once: true });
    event.preventDefault();
    edge.focus();
  }

  onKey(event) {
    const { width, widest } = this;
    const wanted = {
      ArrowLeft: width + STEP,
      ArrowRight: width - STEP,
      Home: NARROWEST,
      End: widest,
    }[event.key];
    if (wanted === undefined) return;
    this.resize(wanted);
    event.preventDefault();
  }

  /** Where the part of the window begins that nothing lies over: beneath the bar of sections. */
  get ceiling() {
    return byId("contents").offsetHeight;
  }

  /** Tells of a task run; -1: of nothing. `scroll`: whether the page goes where it is. */
  showTask(row, { scroll }) {
    const { tasks, flames, timeline, drawer } = this.page;
    const select = (other) => timeline.select(other, { reveal: true });
    const about = (name) => drawer.open(name);
    showDetails(this.panel, { tasks, row, flames, select, about });
    if (scroll && row >= 0) this.keepInSight(tracksOfRows(timeline.view, tasks.count)[row]);
    const told = () => [tasks.functionName(row), formatSeconds(tasks.durations[row]), `on ${tasks.workerName(row)}`];
    byId("said").textContent = row < 0 ? "" : visible(told().join(", "));
  }

  /** Tells of a time between task runs. */
  showGap(gap) {
    const { tasks, gaps, client, flames, timeline } = this.page;
    if (!tasks.whole) return;
    const flame = () => {
      flames.limit(client, gap.from, gap.to);
      byId("flame-section").scrollIntoView();
    };
    showGap(this.panel, { gap, gaps, tasks, client, close: () => timeline.select(-1), flame });
    const { view } = timeline;
    this.keepInSight(view.tracks.findIndex(({ lanes }) => lanes?.includes(gap.lane)));
    byId("said").textContent = visible(`${gap.title}, ${tasks.trackTitle(gap.lane).worker}`);
  }

  /** Scrolls the page no further than it takes to see the tracks, or at least one. */
  keepInSight(track) {
    if (this.panel.hidden) return;
    this.fit();
    const { timeline } = this.page;
    const covered = (BESIDE.matches ? byId("filtered") : this.panel).offsetHeight;
    const [top, bottom] = [this.ceiling + ROOM, innerHeight - covered - ROOM];
    const canvas = timeline.overlay.getBoundingClientRect();
    const [begin, end] =
      canvas.height <= bottom - top ? [canvas.top, canvas.bottom] : this.boundsOf(track, canvas, bottom - top);
    const by = begin < top ? begin - top : Math.max(0, end - bottom);
    if (by) scrollBy(0, by);
  }

  /** Where in the window a track is, with as many beside it as there is room for. */
  boundsOf(track, canvas, room) {
    const { timeline } = this.page;
    if (track < 0) return [canvas.top, canvas.top + room];
    const frame = timeline.frame();
    const [y, high] = [canvas.top + frame.y(track), frame.heightOf(track)];
    const around = Math.max(0, Math.min((room - high) / 2, 3 * high));
    return [y - around, y + high + around];
  }
}
