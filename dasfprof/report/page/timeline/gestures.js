// Wheel, pointer and keyboard of the timeline.

import { GUTTER } from "./frame.js";

/** Maximum milliseconds and pixels between the clicks of a double click. */
const [TWICE_MS, TWICE_PIXELS] = [500, 5];

export class Gestures {
  constructor(timeline, surface) {
    this.timeline = timeline;
    this.surface = surface;
    this.scrolledAt = -Infinity;
    /** Time and position of the last click. */
    this.clicked = { at: -Infinity, x: 0, y: 0 };
  }

  listen() {
    const { surface } = this;
    addEventListener("scroll", () => (this.scrolledAt = performance.now()), { passive: true });
    surface.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    surface.addEventListener("pointerdown", (event) => this.onPress(event));
    surface.addEventListener("pointermove", (event) => this.onHover(event));
    surface.addEventListener("pointerleave", () => {
      this.timeline.hover(-1);
      this.timeline.events.pointed?.(null);
    });
    surface.addEventListener("keydown", (event) => this.onKey(event));
    // The first click may move the timeline, so that the second click hits something else.
    addEventListener("dblclick", (event) => {
      if (this.timeline.selected >= 0 && this.isSecond(event)) this.timeline.zoomTo(this.timeline.selected);
    });
  }

  onWheel(event) {
    // Scrolling of the page must not become zooming when the timeline comes under the pointer.
    if (performance.now() - this.scrolledAt < 300) return;
    const { timeline } = this;
    const sideways = event.shiftKey ? event.deltaX || event.deltaY : event.deltaX;
    if (event.shiftKey || Math.abs(sideways) > Math.abs(event.deltaY)) {
      timeline.pan(sideways / 800);
    } else if (event.altKey) {
      timeline.scrollTo(timeline.scroll + event.deltaY);
    } else {
      if (timeline.showsAll && event.deltaY > 0) return;
      const pixels = event.deltaY * (event.deltaMode ? 16 : 1);
      const factor = Math.exp(Math.min(Math.max(pixels, -240), 240) * 0.0028);
      timeline.zoom(factor, timeline.frame().time(event.offsetX));
    }
    event.preventDefault();
  }

  /** A drag moves the time, or selects an area. A click selects a task run. */
  onPress(event) {
    if (event.button !== 0) return;
    const { timeline, surface } = this;
    surface.focus({ preventScroll: true });
    surface.setPointerCapture(event.pointerId);
    const { from, to, scroll } = timeline;
    const chooses = timeline.events.chosen && (event.shiftKey || timeline.events.dragsChoose());
    let dragged = false;
    const drag = (moved) => {
      const [x, y] = [moved.offsetX - event.offsetX, moved.offsetY - event.offsetY];
      dragged ||= Math.hypot(x, y) > 4;
      if (!dragged) return;
      if (chooses) {
        const ends = [event, moved].map(({ offsetX, offsetY }) => [offsetX, offsetY]);
        return timeline.showArea(timeline.areaBetween(...ends));
      }
      const by = (x / timeline.frame().width) * (to - from);
      timeline.move(from - by, to - by);
      timeline.scrollTo(scroll - y);
    };
    const drop = () => {
      surface.removeEventListener("pointermove", drag);
      if (!dragged) this.click(event);
      else if (chooses) timeline.events.chosen(timeline.area);
    };
    surface.addEventListener("pointermove", drag);
    surface.addEventListener("pointerup", drop, { once: true });
  }

  /** Selects a task run, unless this is the second click of a double click. */
  click(event) {
    if (this.isSecond(event)) return;
    this.clicked = { at: event.timeStamp, x: event.clientX, y: event.clientY };
    this.timeline.click(event.offsetX, event.offsetY);
  }

  isSecond({ timeStamp, clientX, clientY }) {
    const { at, x, y } = this.clicked;
    return timeStamp - at < TWICE_MS && Math.hypot(clientX - x, clientY - y) < TWICE_PIXELS;
  }

  onHover(event) {
    const { timeline, surface } = this;
    if (event.buttons) return timeline.hover(-1);
    const row = timeline.rowAt(event.offsetX, event.offsetY);
    timeline.hover(row, event.offsetX, event.offsetY);
    const time = timeline.frame().time(event.offsetX);
    timeline.events.pointed?.(event.offsetX >= GUTTER ? time : null);
    const track = timeline.view?.tracks[timeline.frame().track(event.offsetY)];
    surface.title = row < 0 && event.offsetX < GUTTER && track ? track.hint : "";
    surface.style.cursor = row >= 0 || track?.branch !== undefined ? "pointer" : "grab";
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = this.actions[event.key];
    if (!act) return;
    act(event.shiftKey);
    event.preventDefault();
  }

  get actions() {
    const { timeline, timeline: { selected, painter, events } } = this;
    const tracks = (by) => () =>
      timeline.selected >= 0 ? timeline.step(0, by) : timeline.scrollTo(timeline.scroll + by * 60);
    return {
      ArrowLeft: (far) => timeline.pan(far ? -0.8 : -0.15),
      ArrowRight: (far) => timeline.pan(far ? 0.8 : 0.15),
      "+": () => timeline.zoom(0.7),
      "-": () => timeline.zoom(1 / 0.7),
      Home: () => timeline.showFullRun(),
      Enter: () => selected < 0 && timeline.step(1, 0),
      f: () => selected >= 0 && timeline.zoomTo(selected),
      m: () => timeline.events.chosen?.(timeline.visibleArea),
      ".": () => timeline.step(1, 0),
      ",": () => timeline.step(-1, 0),
      ArrowDown: tracks(1),
      ArrowUp: tracks(-1),
      g: () => selected >= 0 && painter.gaps && events.gap && timeline.selectGap(painter.gaps.after(selected)),
      Escape: () => timeline.select(-1),
    };
  }
}
