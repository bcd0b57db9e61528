// Where what is selected is described: beside the timeline, or beneath it in a narrow window. What was
// selected stays in sight.

import { byId } from "../dom.js";
import { formatSeconds, visible } from "../format.js";
import { showDetails } from "./details.js";
import { showGap } from "./gap_panel.js";
import { tracksOfRows } from "./views.js";

/** From this width on the panel stands beside the chart, as dock.css has it. */
const BESIDE = matchMedia("(min-width: 1280px)");
/** Minimum height in pixels of a panel beneath the chart, and its maximum as a share of the window. */
const [LOWEST, HIGHEST] = [200, 0.42];
/** Pixels around what is to be seen. */
const ROOM = 8;

export class Dock {
  page; panel;

  constructor(page) {
    Object.assign(this, { page, panel: byId("details") });
    addEventListener("resize", () => this.fit());
    this.fit();
  }

  /** Gives a panel beneath the chart the room that the window has for it. */
  fit() {
    const free = innerHeight - this.ceiling - this.page.timeline.root.offsetHeight - 2 * ROOM;
    const high = Math.min(Math.max(free, LOWEST), HIGHEST * innerHeight);
    this.panel.style.maxHeight = BESIDE.matches ? "" : `${high}px`;
  }

  /** Where the part of the window begins that nothing lies over: beneath the bar of sections. */
  get ceiling() {
    return byId("contents").offsetHeight;
  }

  /** Describes a task run; -1: nothing. `scroll`: whether the page goes where it is. */
  showTask(row, { scroll }) {
    const { tasks, flames, timeline, drawer } = this.page;
    const select = (other) => timeline.select(other, { reveal: true });
    showDetails(this.panel, { tasks, row, flames, select, about: (name) => drawer.open(name) });
    if (scroll && row >= 0) this.keepInSight(tracksOfRows(timeline.view, tasks.count)[row]);
    const words = () => [tasks.functionName(row), formatSeconds(tasks.durations[row]), `on ${tasks.workerName(row)}`];
    byId("said").textContent = row < 0 ? "" : visible(words().join(", "));
  }

  /** Describes a time between task runs. */
  showGap(gap) {
    const { tasks, gaps, client, timeline } = this.page;
    if (!tasks.whole) return;
    showGap(this.panel, { gap, gaps, tasks, client, close: () => timeline.select(-1) });
    this.keepInSight(timeline.view.tracks.findIndex(({ lanes }) => lanes?.includes(gap.lane)));
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
    let [begin, end] = [canvas.top, canvas.bottom];
    if (end - begin > bottom - top) {
      // As many tracks beside it as there is room for.
      const frame = timeline.frame();
      const [y, high] = track < 0 ? [0, 0] : [frame.y(track), frame.heightOf(track)];
      const around = track < 0 ? 0 : Math.max(0, Math.min((bottom - top - high) / 2, 3 * high));
      [begin, end] = [canvas.top + y - around, canvas.top + y + high + around];
    }
    const by = begin < top ? begin - top : Math.max(0, end - bottom);
    if (by) scrollBy(0, by);
  }
}
