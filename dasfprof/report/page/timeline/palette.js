// Colours of the page, as CSS and as pixels.

/** Index of the colour of everything without a separate colour. */
export const OTHER = 7;
/** Number of colours: of functions, workers and steps, then of categories of thread time. */
const COLOURS = 21;
/** Index of the shades of failed task runs, and distance to the indices of dimmed colours. */
export const [FAILED, DIM] = [30, 32];
/** Number of shades of a colour. */
export const SHADES = 32;
export const DARK = matchMedia("(prefers-color-scheme: dark)");
const palettes = new Map();

/** Colours of the page, for the light or the dark scheme, as CSS and as 32-bit pixels. */
class Palette {
  constructor(dark) {
    const style = getComputedStyle(document.documentElement);
    /** Returns the light or dark colour of a property of the style. */
    const colour = (name) => style.getPropertyValue(name).match(/#\w+/g)[Number(dark)];
    this.series = Array.from({ length: COLOURS }, (_, at) => colour(`--series-${at}`));
    this.background = colour("--card");
    this.band = colour("--band");
    this.text = colour("--text");
    this.faint = colour("--faint");
    this.line = colour("--line");
    this.accent = colour("--accent");
    this.bad = colour("--bad");
    this.warn = colour("--warn");
    this.needs = colour("--needs");
    this.needed = colour("--needed");
    this.rgb = this.series.map(rgbOf);
    const background = rgbOf(this.background);
    const dim = this.rgb.map((rgb) => mixed(background, rgb, 0.16));
    this.dimSeries = dim.map((rgb) => `rgb(${rgb.join(" ")})`);
    /** Pixels of each colour, and of each dimmed colour at an index that is `DIM` larger, by coverage. */
    this.shades = [];
    for (const [at, rgb] of [...this.rgb.entries(), ...dim.map((other, place) => [place + DIM, other])]) {
      this.shades[at] = Array.from({ length: SHADES + 1 }, (_, covered) =>
        pixelOf(mixed(background, rgb, 0.3 + (0.7 * covered) / SHADES)),
      );
    }
    this.shades[FAILED] = Array(SHADES + 1).fill(pixelOf(rgbOf(this.bad)));
    this.gaps = new Map();
    /** The tones of categories that are hidden. */
    this.nothing = [0, 0].fill(pixelOf(background));
    this.inks = this.rgb.map(([r, g, b]) => (r * 0.3 + g * 0.59 + b * 0.11 > 140 ? "#14171c" : "#fff"));
  }

  /** Returns the two colours of a hatched category of idle time, or one colour twice for busy threads. */
  gapTones(colour, busy, dim) {
    const name = `${colour} ${busy} ${dim}`;
    if (!this.gaps.has(name)) {
      const tone = (share) => pixelOf(mixed(rgbOf(this.background), this.rgb[colour], dim ? share * 0.6 : share));
      this.gaps.set(name, busy ? [tone(0.55), tone(0.55)] : [tone(0.2), tone(0.5)]);
    }
    return this.gaps.get(name);
  }
}

/** Returns the palette of the current colour scheme. */
export function currentPalette() {
  const dark = DARK.matches;
  palettes.set(dark, palettes.get(dark) ?? new Palette(dark));
  return palettes.get(dark);
}

export function rgbOf(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

function mixed(from, to, share) {
  return from.map((value, at) => Math.round(value + (to[at] - value) * share));
}

/** @param {number[]} rgb */
export function pixelOf([r, g, b]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
