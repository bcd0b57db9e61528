// Which time is where in a canvas.

/** Pixels of the titles left of the tracks, and of the ruler above them. */
export const [GUTTER, RULER] = [184, 24];

/** Where in a canvas the tracks are, and which time is where. */
export class Frame {
  left; top; width; height; from; to; trackHeight; scroll;
  /** @type {number[]} */ staying;

  /** `staying`: the heights of the first tracks, which stay in place while the others scroll. */
  constructor({ left, top, width, height, from, to, trackHeight, scroll, staying = [] }) {
    Object.assign(this, { left, top, width, height, from, to, trackHeight, scroll, staying });
    this.perSecond = width / (to - from || 1);
    /** The height of those that stay. */
    this.pinned = staying.reduce((sum, high) => sum + high, 0);
  }

  x(time) {
    return this.left + (time - this.from) * this.perSecond;
  }

  time(x) {
    return this.from + (x - this.left) / this.perSecond;
  }

  /** Where a track begins; its middle, for one and a half. */
  y(track) {
    const { staying } = this;
    if (track >= staying.length)
      return this.top + this.pinned + (track - staying.length) * this.trackHeight - this.scroll;
    const whole = Math.floor(track);
    const above = staying.slice(0, whole).reduce((sum, high) => sum + high, 0);
    return this.top + above + (track - whole) * staying[whole];
  }

  track(y) {
    let below = y - this.top;
    if (below < 0) return -1;
    for (const [track, high] of this.staying.entries()) {
      if (below < high) return track;
      below -= high;
    }
    return this.staying.length + Math.floor((below + this.scroll) / this.trackHeight);
  }

  heightOf(track) {
    return this.staying[track] ?? this.trackHeight;
  }

  /** Where the tracks begin that a track is one of: those that stay, or those that scroll. */
  topOf(track) {
    return this.top + (track < this.staying.length ? 0 : this.pinned);
  }

  /** The parts of the canvas that stay and scroll, with the tracks that are seen there, of so many. */
  regions(count) {
    const { top, height, pinned, staying } = this;
    const last = Math.min(count - 1, this.track(top + height - 1));
    const first = this.track(top + pinned);
    const between = (from, end) => Array.from({ length: Math.max(0, end - from) }, (_, at) => from + at);
    return [
      { top, height: pinned, tracks: between(0, Math.min(staying.length, count)) },
      { top: top + pinned, height: height - pinned, tracks: between(first, last + 1) },
    ].filter((region) => region.height > 0);
  }

  /** The tracks that are seen, of so many. */
  seen(count) {
    return this.regions(count).flatMap(({ tracks }) => tracks);
  }
}
