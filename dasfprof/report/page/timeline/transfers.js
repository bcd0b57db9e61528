// Lanes of the transfers that workers received, from link_data.py.

import { make } from "../dom.js";
import { counted, formatBytes, formatCount, formatSeconds, shortened, visible, withPrefix } from "../format.js";
import { sumOf } from "../numbers.js";
import { LABEL_WIDTH, paintFailed } from "./painter.js";
import { TOLD_CLASSES } from "./tip.js";
import { packed } from "./views.js";

/** A transfer of so many pixels tells its source too. */
const SOURCE_WIDTH = 110;

export class Transfers {
  facts; workers; starts; durations; sizes; sources; receivers; failed;

  constructor(facts, workers) {
    Object.assign(this, { facts, workers });
  }

  async read(columns) {
    Object.assign(this, await columns.group("transfers"));
  }

  /** The lanes of a worker: as many as it had transfers at a time, or `one` with all of them. */
  lanesOf(worker, one) {
    const own = [...this.receivers.keys()].filter((at) => this.receivers[at] === worker);
    if (!own.length) return [];
    const bytes = sumOf(own.map((at) => this.sizes[at] || 0));
    const [count, all] = [this.starts.length, this.facts.all];
    const left = all > count ? `, the longest ${formatCount(count)} of all ${formatCount(all)}` : "";
    const name = visible(this.workers[worker]);
    const hint = `${name}: ${counted(own.length, "transfer")} in, ${formatBytes(bytes)}${left}`;
    return (one ? [own] : packed(this, own)).map((transfers, at) => {
      return { title: at ? "" : "\u2003transfers in", short: "", hint, area: false, group: worker, transfers };
    });
  }

  paint(context, { transfers }, y, height, frame, palette) {
    context.font = `${Math.min(11, height - 4)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const high = Math.max(height - 3, 2);
    let painted = -1;
    for (const at of transfers) {
      const x = Math.max(frame.x(this.starts[at]), frame.left - 2);
      const end = Math.min(frame.x(this.starts[at] + this.durations[at]), frame.left + frame.width + 2);
      // What adds nothing to a pixel that is painted is left out.
      if (end < frame.left || x > frame.left + frame.width || (end <= painted && end - x < 0.5)) continue;
      const width = Math.max(end - x, 0.75);
      painted = Math.max(painted, x + width);
      // Framed, as no task run is: colours are theirs.
      context.fillStyle = palette.faint;
      context.fillRect(x, y + 1, width, high);
      context.fillStyle = palette.band;
      if (width > 3 && high > 3) context.fillRect(x + 1, y + 2, width - 2, high - 2);
      if (this.failed[at]) paintFailed(context, x, y + 1, width, high, palette);
      if (width < LABEL_WIDTH || height < 14) continue;
      context.fillStyle = palette.text;
      const source = width < SOURCE_WIDTH ? "" : ` from ${this.facts.sources[this.sources[at]]}`;
      const text = `${formatBytes(this.sizes[at])}${source}`;
      context.fillText(shortened(text, Math.floor((width - 8) / 5.6)), x + 4, y + height / 2);
    }
  }

  /** What is told of a lane's transfers at a time, or no further from it than `slack`; null: there is none. */
  told({ transfers }, time, slack) {
    const there = transfers.filter((at) => {
      const start = this.starts[at];
      return start - slack <= time && time <= start + this.durations[at] + slack;
    });
    if (!there.length) return null;
    return there.slice(0, TOLD_CLASSES).flatMap((at) => {
      const [bytes, seconds] = [this.sizes[at], this.durations[at]];
      const speed = bytes > 0 && seconds > 0 ? `, ${withPrefix(bytes / seconds, "B/s")}` : "";
      const failed = this.failed[at] ? ", failed" : "";
      return [
        make("strong", {}, `from ${shortened(this.facts.sources[this.sources[at]], 60)}`),
        make("span", {}, `${formatBytes(bytes)} in ${formatSeconds(seconds)}${speed}${failed}`),
      ];
    });
  }
}
