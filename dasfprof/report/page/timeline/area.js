// An area of the timeline: a time on some tracks, and the sums of what is in it.

import { swatch } from "../accounting.js";
import { byId, make } from "../dom.js";
import { counted, formatCount, formatSeconds, formatShare, shortened, visible } from "../format.js";
import { overlap, sumOf } from "../numbers.js";
import { clockText, ticks } from "./marks.js";
import { byDuration } from "./tasks.js";
import { seenIn } from "./views.js";
/** @import { Tasks } from "./tasks.js" */

/** Rows of each table of sums. */
const AREA_ROWS = 8;
/** A task run in the area, and one that is lit besides. */
const [SEEN, LIT] = [1, 2];

export class Area {
  page; pane;

  /** `page` has the timeline, its gaps and which runs are lit. */
  constructor(page, pane) {
    Object.assign(this, { page, pane });
  }

  /** Tells what is between two times on the tracks from a first to a last one; null: nothing is chosen. */
  show(area) {
    this.page.timeline.showArea(area);
    this.page.address?.note();
    this.pane.hidden = area === null;
    this.pane.replaceChildren();
    if (area === null) return;
    const sums = new AreaSums(this.page, area);
    const { step } = ticks(area.from, area.to, 1000, 20);
    const lit = this.page.matches ? " of those that are lit" : "";
    const [from, to] = [area.from, area.to].map((time) => clockText(time, step));
    const tracks = counted(area.last - area.first + 1, "lane");
    const title = make("h3", {}, `${from} to ${to}, ${tracks}: ${counted(sums.count, "task run")}${lit}`);
    const close = { type: "button", class: "close", "aria-label": "Close", onclick: () => this.show(null) };
    const head = make("header", {}, title, make("button", close, "✕"));
    this.pane.append(head, make("div", { class: "sums" }, ...this.tables(sums)));
    byId("said").textContent = title.textContent;
  }

  tables(sums) {
    const { tasks, gaps } = this.page;
    const runs = ["Task runs", "In it", "p50", "p95", "Longest"];
    const named = (names) => ({ code, figures, longest }) => [
      shortened(names[code], 32),
      ...figures.slice(0, -1),
      ...figures.slice(-1).map((text) => this.leading(text, longest)),
    ];
    const functions = sums.functions.map(named(tasks.facts.functions));
    const workers = sums.workers.map(named(tasks.facts.workers));
    const whole = sumOf(sums.classes.map(({ seconds }) => seconds));
    const others = sumOf(sums.others);
    const classes = sums.classes.map(({ code, seconds }) => [
      make("span", {}, swatch(gaps.swatches[code]), visible(gaps.names[code])),
      formatSeconds(seconds),
      formatShare(seconds / whole),
      ...(others ? [formatShare(sums.others[code] / others)] : []),
    ]);
    const labels = ["Class", "Thread time", "Share", ...(others ? ["Share elsewhere"] : [])];
    return [
      areaTable("classes-in", labels, classes, classes.length),
      areaTable("functions-in", ["Function", ...runs], functions),
      areaTable("workers-in", ["Worker", ...runs], workers),
    ];
  }

  /** A text that leads to a task run. */
  leading(text, row) {
    const onclick = () => this.page.timeline.select(row, { reveal: true });
    return make("button", { type: "button", class: "link", onclick, title: "Select it" }, text);
  }
}

/** What the task runs and gaps in an area sum up to, the most first. */
class AreaSums {
  /** @type {Tasks} */ tasks;
  from; to;

  constructor({ tasks, timeline, gaps, matches }, { from, to, first, last }) {
    Object.assign(this, { tasks, from, to });
    const { view } = timeline;
    const classes = new Float64Array(gaps.names.length);
    /** Seconds by class of all other threads in the same time. */
    this.others = new Float64Array(gaps.names.length);
    for (const [at, track] of view.tracks.entries()) {
      if ((at >= first && at <= last) || !gaps.has(track)) continue;
      for (const lane of track.lanes) gaps.seconds(lane, from, to, this.others);
    }
    this.seen = new Uint8Array(tasks.count);
    this.count = 0;
    for (let track = first; track <= last; track += 1) {
      const threads = gaps.has(view.tracks[track]);
      if (threads) for (const lane of view.tracks[track].lanes) gaps.seconds(lane, from, to, classes);
      this.mark(view, track, matches, threads ? null : (row) => gaps.addRun(row, from, to, classes));
    }
    this.classes = [...classes.keys()]
      .filter((code) => classes[code] > 0)
      .map((code) => ({ code, seconds: classes[code] }))
      .sort((one, other) => other.seconds - one.seconds);
    this.ordered = this.inOrder();
    const workerOfTrack = Uint32Array.from(tasks.tracks, ({ worker }) => worker);
    this.functions = this.by(tasks.facts.functions.length, (row) => tasks.functionOfKey[tasks.keys[row]]);
    this.workers = this.by(tasks.facts.workers.length, (row) => workerOfTrack[tasks.trackOfRow[row]]);
  }

  /** Marks the task runs of a track that are in the area, and counts those that are lit; calls `each` with all. */
  mark(view, track, matches, each) {
    const { seen, from, to } = this;
    const { starts, durations } = this.tasks;
    const [begin, end] = seenIn(view, this.tasks, track, from, to);
    for (let at = begin; at < end; at += 1) {
      const row = view.rows[at];
      if (seen[row] || starts[row] + durations[row] < from) continue;
      const lit = !matches || matches[row];
      seen[row] = lit ? LIT : SEEN;
      if (lit) this.count += 1;
      if (each) each(row);
    }
  }

  /** The lit task runs, the shortest first. */
  inOrder() {
    const { seen, tasks, count } = this;
    const [rows, order] = [new Uint32Array(count), byDuration(tasks)];
    for (let at = 0, next = 0; next < count; at += 1) if (seen[order[at]] === LIT) rows[next++] = order[at];
    return rows;
  }

  /** The groups of the task runs by one of so many codes, that with the most seconds first. */
  by(most, code) {
    const { seen, ordered, from, to } = this;
    const { count, starts, durations } = this.tasks;
    const [sizes, seconds] = [new Uint32Array(most), new Float64Array(most)];
    const codes = new Uint32Array(count);
    for (let row = 0; row < count; row += 1) {
      if (seen[row] !== LIT) continue;
      const own = code(row);
      codes[row] = own;
      sizes[own] += 1;
      seconds[own] += overlap(starts[row], starts[row] + durations[row], from, to);
    }
    const found = [...sizes.keys()].filter((own) => sizes[own] > 0);
    const groups = found.sort((one, other) => seconds[other] - seconds[one]);
    const shown = groups.slice(0, AREA_ROWS);
    const members = new Array(most).fill(null);
    for (const own of shown) members[own] = new Uint32Array(sizes[own]);
    const counts = new Uint32Array(most);
    for (let at = 0; at < ordered.length; at += 1) {
      const own = codes[ordered[at]];
      if (members[own]) members[own][counts[own]++] = ordered[at];
    }
    return groups.map((own) => {
      if (!members[own]) return { code: own, figures: [] };
      const middle = [0.5, 0.95, 1].map((share) => formatSeconds(this.quantile(members[own], share)));
      const figures = [formatCount(sizes[own]), formatSeconds(seconds[own]), ...middle];
      return { code: own, figures, longest: members[own].at(-1) };
    });
  }

  /** The duration below which a share of task runs lies that are in its order, as NumPy's. */
  quantile(ordered, share) {
    const { durations } = this.tasks;
    const place = (ordered.length - 1) * share;
    const low = Math.floor(place);
    const below = durations[ordered[low]];
    if (place === low) return below;
    return below + (durations[ordered[low + 1]] - below) * (place - low);
  }
}

function areaTable(name, labels, rows, most = AREA_ROWS) {
  const cell = (value, at) => (at ? make("td", {}, value) : make("th", { scope: "row" }, value));
  const head = make("tr", {}, ...labels.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.slice(0, most).map((row) => make("tr", {}, ...row.map(cell)));
  const more = rows.length - body.length;
  if (more > 0) body.push(make("tr", {}, make("th", { scope: "row" }, `and ${formatCount(more)} more`)));
  return make("table", { id: name }, head, ...body);
}
