// Which time is where in a canvas.

/** Pixels of the titles left of the tracks, and of the ruler above them. */
export const [GUTTER, RULER] = [184, 24];

/** Where in a canvas the tracks are, and which time is where. */
export class Frame {
  left; top; width; height; from; to; trackHeight; scroll; pinned;

  /** `pinned`: the height of a first track that stays in place while the others scroll; 0: there is none. */
  constructor({ left, top, width, height, from, to, trackHeight, scroll = 0, pinned = 0 }) {
    Object.assign(this, { left, top, width, height, from, to, trackHeight, scroll, pinned });
    this.perSecond = width / (to - from || 1);
  }

  x(time) {
    return this.left + (time - this.from) * this.perSecond;
  }

  time(x) {
    return this.from + (x - this.left) / this.perSecond;
  }

  isPinned(track) {
    return this.pinned > 0 && track < 1;
  }

  /** Where a track begins; its middle, for one and a half. */
  y(track) {
    if (this.isPinned(track)) return this.top + track * this.pinned;
    const first = this.pinned ? 1 : 0;
    return this.top + this.pinned + (track - first) * this.trackHeight - this.scroll;
  }

  track(y) {
    const below = y - this.top - this.pinned;
    if (below < 0) return y < this.top ? -1 : 0;
    return (this.pinned ? 1 : 0) + Math.floor((below + this.scroll) / this.trackHeight);
  }

  heightOf(track) {
    return this.isPinned(track) ? this.pinned : this.trackHeight;
  }

  /** Where the tracks begin that a track is one of: the pinned one, or those that scroll. */
  topOf(track) {
    return this.top + (this.isPinned(track) ? 0 : this.pinned);
  }

  /** The parts of the canvas that stay and scroll, with the tracks that are seen there, of so many. */
  regions(count) {
    const { top, height, pinned } = this;
    const last = Math.min(count - 1, this.track(top + height - 1));
    const first = this.track(top + pinned);
    const scrolled = Array.from({ length: Math.max(0, last + 1 - first) }, (_, at) => first + at);
    const region = { top: top + pinned, height: height - pinned, tracks: scrolled };
    return pinned ? [{ top, height: pinned, tracks: [0] }, region] : [region];
  }

  /** The tracks that are seen, of so many. */
  seen(count) {
    return this.regions(count).flatMap(({ tracks }) => tracks);
  }
}
