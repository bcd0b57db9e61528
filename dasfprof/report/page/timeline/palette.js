// Colours of the page, as CSS and as pixels.

/** The place in a palette of what has no colour of its own. */
export const OTHER = 7;
/** The place in the shades of what failed, and how much further those of dimmed colours are. */
export const FAILED = 16;
export const DIM = 32;
export const SHADES = 32;
export const DARK = matchMedia("(prefers-color-scheme: dark)");
const palettes = new Map();

/** Colours of the page, for the light or the dark scheme, as CSS and as 32-bit pixels. */
class Palette {
  constructor(dark) {
    const style = getComputedStyle(document.documentElement);
    /** A property of the style, which has a light and a dark colour. */
    const colour = (name) => style.getPropertyValue(name).match(/#\w+/g)[Number(dark)];
    /** Of what ran, then of classes of time. */
    this.series = Array.from({ length: 16 }, (_, at) => colour(`--series-${at}`));
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
    const dim = this.rgb.map((one) => mixed(background, one, 0.16));
    this.dimSeries = dim.map((one) => `rgb(${one.join(" ")})`);
    /** Pixels of each colour, and `DIM` further of each dimmed one, by how full they are. */
    this.shades = [];
    for (const [at, one] of [...this.rgb.entries(), ...dim.map((other, place) => [place + DIM, other])]) {
      this.shades[at] = Array.from({ length: SHADES + 1 }, (_, full) =>
        pixelOf(mixed(background, one, 0.3 + (0.7 * full) / SHADES)),
      );
    }
    this.shades[FAILED] = Array(SHADES + 1).fill(pixelOf(rgbOf(this.bad)));
    this.gaps = new Map();
    /** The tones of what is not to be seen. */
    this.nothing = [0, 0].fill(pixelOf(background));
    this.inks = this.rgb.map(([r, g, b]) => (r * 0.3 + g * 0.59 + b * 0.11 > 140 ? "#14171c" : "#fff"));
  }

  /** Two pixels' colours for a class of time between task runs: of busy threads they are alike. */
  gapTones(colour, busy, dim) {
    const name = `${colour} ${busy} ${dim}`;
    if (!this.gaps.has(name)) {
      const of = (share) => pixelOf(mixed(rgbOf(this.background), this.rgb[colour], dim ? share * 0.6 : share));
      this.gaps.set(name, busy ? [of(0.55), of(0.55)] : [of(0.2), of(0.5)]);
    }
    return this.gaps.get(name);
  }
}

/** The palette of the scheme that is in force. */
export function currentPalette() {
  const dark = DARK.matches;
  palettes.set(dark, palettes.get(dark) ?? new Palette(dark));
  return palettes.get(dark);
}

export function rgbOf(hex) {
  return [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));
}

export function mixed(from, to, share) {
  return from.map((value, at) => Math.round(value + (to[at] - value) * share));
}

/** @param {number[]} rgb */
export function pixelOf([r, g, b]) {
  return ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0;
}
