// Tracks of the transfers that workers received, from link_data.py.

import { make } from "../dom.js";
import { counted, formatBytes, formatCount, formatSeconds, shortened, visible, withPrefix } from "../format.js";
import { sumOf } from "../numbers.js";
import { LABEL_WIDTH, paintFailed } from "./painter.js";
import { TIP_LINES } from "./tip.js";
import { packed } from "./views.js";

/** Minimum pixels of a transfer that shows its source. */
const SOURCE_WIDTH = 110;

export class Transfers {
  facts; workers; starts; durations; sizes; sources; receivers; failed;

  constructor(facts, workers) {
    Object.assign(this, { facts, workers });
  }

  async read(columns) {
    Object.assign(this, await columns.group("transfers"));
  }

  /** Returns the tracks of a worker, as many as it had transfers at a time, or a single one. */
  tracksOf(worker, single) {
    const received = [...this.receivers.keys()].filter((at) => this.receivers[at] === worker);
    if (!received.length) return [];
    const bytes = sumOf(received.map((at) => this.sizes[at] || 0));
    const [count, all] = [this.starts.length, this.facts.all];
    const left = all > count ? `. Shown are the longest ${formatCount(count)} of ${formatCount(all)}` : "";
    const name = visible(this.workers[worker]);
    const hint = `${name}: received ${counted(received.length, "transfer")}, ${formatBytes(bytes)}${left}`;
    return (single ? [received] : packed(this, received)).map((transfers, at) => {
      return { title: at ? "" : "\u2003transfers", short: "", hint, area: false, group: worker, transfers };
    });
  }

  paint(context, { transfers }, y, height, frame, palette) {
    context.font = `${Math.min(11, height - 4)}px system-ui, sans-serif`;
    context.textBaseline = "middle";
    const high = Math.max(height - 3, 2);
    for (const at of transfers) {
      const x = Math.max(frame.x(this.starts[at]), frame.left - 2);
      const end = Math.min(frame.x(this.starts[at] + this.durations[at]), frame.left + frame.width + 2);
      if (end < frame.left || x > frame.left + frame.width) continue;
      const width = Math.max(end - x, 0.75);
      // Transfers have a frame, since colours are for task runs.
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

  /** Returns lines of a tooltip about the transfers at a time, or up to `slack` from it. Null without any. */
  linesAt({ transfers }, time, slack) {
    const shown = transfers.filter((at) => {
      const start = this.starts[at];
      return start - slack <= time && time <= start + this.durations[at] + slack;
    });
    if (!shown.length) return null;
    return shown.slice(0, TIP_LINES).flatMap((at) => {
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
