// Coordinates of times and tracks in a canvas.

/** Pixels: width of the titles of tracks, and height of the ruler. */
export const [GUTTER, RULER] = [184, 24];

/** The position of the tracks in a canvas, and the visible time. */
export class Frame {
  left; top; width; height; from; to; trackHeight; scroll; pinned;

  /** `pinned`: the height of a first track that does not scroll, or 0 without one. */
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

  /** Returns the y coordinate of a track. Fractions are within the track. */
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

  /** Returns the y coordinate of the region of a track, which is pinned or scrolls. */
  topOf(track) {
    return this.top + (this.isPinned(track) ? 0 : this.pinned);
  }

  /** Returns the regions of the canvas, pinned or not, with their visible tracks. */
  regions(count) {
    const { top, height, pinned } = this;
    const last = Math.min(count - 1, this.track(top + height - 1));
    const first = this.track(top + pinned);
    const scrolled = Array.from({ length: Math.max(0, last + 1 - first) }, (_, at) => first + at);
    const region = { top: top + pinned, height: height - pinned, tracks: scrolled };
    return pinned ? [{ top, height: pinned, tracks: [0] }, region] : [region];
  }

  /** Returns the visible tracks. */
  seen(count) {
    return this.regions(count).flatMap(({ tracks }) => tracks);
  }
}
