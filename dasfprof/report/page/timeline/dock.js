// The panel of the selection: next to the timeline, or below it in a narrow window. The selection stays visible.

import { byId } from "../dom.js";
import { formatSeconds, visible } from "../format.js";
import { showDetails } from "./details.js";
import { showGap } from "./gap_panel.js";
import { tracksOfRows } from "./views.js";

/** In windows of this width, the panel is next to the timeline, see dock.css. */
const BESIDE = matchMedia("(min-width: 1280px)");
/** Minimum pixels of a panel below the timeline, and its maximum as a fraction of the window. */
const [LOWEST, HIGHEST] = [200, 0.42];
/** Pixels around the selection. */
const ROOM = 8;

export class Dock {
  page; panel;

  constructor(page) {
    Object.assign(this, { page, panel: byId("details") });
    addEventListener("resize", () => this.fit());
    this.fit();
  }

  /** Limits the height of a panel below the timeline to the free part of the window. */
  fit() {
    const free = innerHeight - this.ceiling - this.page.timeline.root.offsetHeight - 2 * ROOM;
    const high = Math.min(Math.max(free, LOWEST), HIGHEST * innerHeight);
    this.panel.style.maxHeight = BESIDE.matches ? "" : `${high}px`;
  }

  /** The height of the bar of sections, which covers the top of the window. */
  get ceiling() {
    return byId("contents").offsetHeight;
  }

  /** Shows a task run, or nothing for -1. `scroll`: whether the page scrolls to it. */
  showTask(row, { scroll }) {
    const { tasks, flames, timeline, drawer } = this.page;
    const select = (other) => timeline.select(other, { reveal: true });
    showDetails(this.panel, { tasks, row, flames, select, about: (name) => drawer.open(name) });
    byId("said").textContent = "";
    if (row < 0) return;
    if (scroll) this.keepInSight(tracksOfRows(timeline.view, tasks.count)[row]);
    const facts = [tasks.functionName(row), formatSeconds(tasks.durations[row]), `on ${tasks.workerName(row)}`];
    byId("said").textContent = visible(facts.join(", "));
  }

  /** Shows a time between task runs. */
  showGap(gap) {
    const { tasks, gaps, client, timeline } = this.page;
    if (!tasks.complete) return;
    showGap(this.panel, { gap, gaps, tasks, client, close: () => timeline.select(-1) });
    this.keepInSight(timeline.view.tracks.findIndex(({ lanes }) => lanes?.includes(gap.lane)));
    byId("said").textContent = visible(`${gap.title}, ${tasks.trackTitle(gap.lane).worker}`);
  }

  /** Scrolls the page just far enough to show all tracks, or else one track and its neighbours. */
  keepInSight(track) {
    if (this.panel.hidden) return;
    this.fit();
    const { timeline } = this.page;
    const covered = (BESIDE.matches ? byId("filtered") : this.panel).offsetHeight;
    const [top, bottom] = [this.ceiling + ROOM, innerHeight - covered - ROOM];
    const canvas = timeline.overlay.getBoundingClientRect();
    let [begin, end] = [canvas.top, canvas.bottom];
    if (end - begin > bottom - top) {
      // With as many neighbours as fit.
      const frame = timeline.frame();
      const [y, high] = track < 0 ? [0, 0] : [frame.y(track), frame.heightOf(track)];
      const around = track < 0 ? 0 : Math.max(0, Math.min((bottom - top - high) / 2, 3 * high));
      [begin, end] = [canvas.top + y - around, canvas.top + y + high + around];
    }
    const by = begin < top ? begin - top : Math.max(0, end - bottom);
    if (by) scrollBy(0, by);
  }
}
