// Sums of a selected area of the timeline: a time on some tracks.

import { swatch } from "../accounting.js";
import { byId, closeButton, make, tableOf } from "../dom.js";
import { counted, formatCount, formatSeconds, formatShare, shortened, visible } from "../format.js";
import { overlap, sumOf } from "../numbers.js";
import { clockText, ticks } from "./marks.js";
import { categoriesOf } from "./tip.js";
import { seenIn } from "./views.js";

/** Maximum number of functions that are listed. */
const AREA_ROWS = 8;

export class Area {
  page; pane;

  constructor(page, pane) {
    Object.assign(this, { page, pane });
  }

  /** Shows the sums of an area, or hides them for null. */
  show(area) {
    const { timeline, matches } = this.page;
    timeline.showArea(area);
    this.pane.hidden = area === null;
    this.pane.replaceChildren();
    if (area === null) return;
    const sums = this.sums(area);
    const { step } = ticks(area.from, area.to, 1000, 20);
    const [from, to] = [area.from, area.to].map((time) => clockText(time, step));
    const count = sumOf([...sums.functions.values()].map((group) => group.count));
    const lit = matches ? " of those highlighted" : "";
    const tracks = counted(area.last - area.first + 1, "track");
    const title = make("h3", {}, `${from} to ${to}, ${tracks}: ${counted(count, "task run")}${lit}`);
    const head = make("header", {}, title, closeButton(() => this.show(null)));
    this.pane.append(head, make("div", { class: "sums" }, this.classes(sums), this.functions(sums)));
    byId("said").textContent = title.textContent;
  }

  classes({ classes }) {
    const { gaps } = this.page;
    const total = sumOf(classes);
    const rows = categoriesOf(classes).map((code) => [
      make("span", {}, swatch(gaps.swatches[code]), visible(gaps.names[code])),
      formatSeconds(classes[code]),
      formatShare(classes[code] / total),
    ]);
    return tableOf({ id: "classes-in", class: "plain" }, ["Category", "Thread time", "Share"], rows);
  }

  functions({ functions }) {
    const { tasks, timeline } = this.page;
    const groups = [...functions].sort(([, one], [, other]) => other.seconds - one.seconds);
    const rows = groups.slice(0, AREA_ROWS).map(([code, { count, seconds, longest }]) => {
      const onclick = () => timeline.select(longest, { reveal: true });
      const button = { type: "button", class: "link", onclick, title: "Select this task run" };
      const duration = make("button", button, formatSeconds(tasks.durations[longest]));
      return [shortened(tasks.facts.functions[code], 32), formatCount(count), formatSeconds(seconds), duration];
    });
    if (groups.length > AREA_ROWS) rows.push([`and ${formatCount(groups.length - AREA_ROWS)} more`]);
    return tableOf({ id: "functions-in", class: "plain" }, ["Function", "Task runs", "Time in area", "Longest"], rows);
  }

  /** Returns the seconds of an area by category, and its highlighted task runs by function. */
  sums({ from, to, first, last }) {
    const { tasks, timeline: { view }, gaps, matches } = this.page;
    const { starts, durations, count } = tasks;
    const classes = new Float64Array(gaps.names.length);
    const functions = new Map();
    const seen = new Uint8Array(count);
    for (let track = first; track <= last; track += 1) {
      const threads = gaps.has(view.tracks[track]);
      if (threads) for (const lane of view.tracks[track].lanes) gaps.seconds(lane, from, to, classes);
      const [begin, end] = seenIn(view, tasks, track, from, to);
      for (let at = begin; at < end; at += 1) {
        const row = view.rows[at];
        if (seen[row] || starts[row] + durations[row] < from) continue;
        seen[row] = 1;
        if (!threads) gaps.addRun(row, from, to, classes);
        if (matches && !matches[row]) continue;
        const code = tasks.functionOf(row);
        const group = functions.get(code) ?? { count: 0, seconds: 0, longest: row };
        group.count += 1;
        group.seconds += overlap(starts[row], starts[row] + durations[row], from, to);
        if (durations[row] > durations[group.longest]) group.longest = row;
        functions.set(code, group);
      }
    }
    return { classes, functions };
  }
}
