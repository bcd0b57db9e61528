// The drawer of a function: durations, slowest task runs, workers, lines and source.

import { absence, byId, closeButton, make, meter, tableOf } from "../dom.js";
import { lineList, sourceTable } from "../flame/sources.js";
import { counted, formatCell, formatCount, formatSeconds, shortened, visible } from "../format.js";
import { median, sumOf } from "../numbers.js";
import { histogramChart } from "./histogram.js";
/** @import { Flames } from "../flame/flames.js" */
/** @import { Tasks } from "../timeline/tasks.js" */

const SLOWEST = 10;
const WORKERS_SHOWN = 24;

/** A button that opens the drawer of a function. */
export function functionButton(name, about, attributes = {}) {
  const onclick = () => about(name);
  const title = "Show details of this function";
  return make("button", { type: "button", class: "link", title, onclick, ...attributes }, shortened(name, 60));
}

export class Drawer {
  dialog; timeline;
  /** @type {Tasks} */ tasks;
  /** @type {Flames} */ flames;

  constructor(dialog, { tasks, flames, timeline }) {
    Object.assign(this, { dialog, tasks, flames, timeline });
    dialog.addEventListener("close", () => {
      // In a notebook's frame, the page has no path.
      if (this.name !== null) history.replaceState(null, "", this.address || "#");
      this.name = null;
    });
    // A click on the page next to the drawer closes it.
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    this.name = null;
  }

  /** Opens the drawer that a link names, and returns whether the link names nothing else. */
  follows(link) {
    if (!link.has("about")) {
      if (this.name !== null) this.close(location.hash);
      return false;
    }
    this.open(link.get("about"));
    return link.size === 1;
  }

  /** Opens the drawer of a function, or of a name without task runs. */
  open(name) {
    const code = this.tasks.facts.functions.indexOf(name);
    const rows = Array.from(this.tasks.rows.filter((row) => this.tasks.functionOf(row) === code));
    if (this.name === null) {
      const about = new URLSearchParams(location.hash.slice(1)).has("about");
      this.address = about ? "#" : location.hash;
    }
    this.name = name;
    history.replaceState(null, "", `#${new URLSearchParams({ about: name })}`);
    this.dialog.replaceChildren(this.head(name), ...this.parts(name, rows));
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
  }

  close(address) {
    this.address = address;
    this.dialog.close();
  }

  head(name) {
    const title = make("h2", { id: "function-title" }, shortened(name, 200));
    return make("header", {}, title, closeButton(() => this.dialog.close()));
  }

  parts(name, rows) {
    if (!rows.length) return [absence("This report has no task runs of this function.")];
    const ended = rows.filter((row) => !this.tasks.isOpen(row));
    const durations = Float64Array.from(ended, (row) => this.tasks.durations[row]).sort();
    return [
      this.figures(rows, durations),
      ...(ended.length ? [make("h3", {}, "Durations"), histogramChart(durations)] : []),
      make("h3", {}, "Slowest task runs"),
      this.slowest(rows),
      make("h3", {}, "By worker"),
      this.byWorker(rows),
      ...this.lines(name),
      ...this.code(name),
    ];
  }

  figures(rows, durations) {
    const { tasks } = this;
    const sum = sumOf(rows.map((row) => tasks.durations[row]));
    const cpu = sumOf(rows.map((row) => tasks.cpu[row] || 0));
    const isKnown = rows.some((row) => Number.isFinite(tasks.cpu[row]));
    const unfinished = rows.length - durations.length;
    const failed = rows.filter((row) => tasks.stateName(row) === "erred").length;
    const quantile = (share) => durations[Math.min(durations.length - 1, Math.floor(share * durations.length))];
    const facts = [
      ["Task runs", formatCount(rows.length)],
      ["Failed", failed ? formatCount(failed) : ""],
      ["Unfinished", unfinished ? formatCount(unfinished) : ""],
      ["Total time", formatSeconds(sum)],
      ["CPU time", isKnown ? formatSeconds(cpu) : "unknown"],
      ["Median", durations.length ? formatSeconds(median(durations)) : "unknown"],
      ["95th percentile", durations.length ? formatSeconds(quantile(0.95)) : "unknown"],
    ];
    const part = ([label, text]) => make("div", {}, make("dt", {}, label), make("dd", {}, text));
    return make("dl", { class: "figures" }, ...facts.filter(([, text]) => text).map(part));
  }

  slowest(rows) {
    const { tasks } = this;
    const slow = [...rows].sort((one, other) => tasks.durations[other] - tasks.durations[one]);
    const items = slow.slice(0, SLOWEST).map((row) => {
      const select = () => {
        this.close(this.address);
        byId("timeline-section").scrollIntoView();
        this.timeline.select(row, { reveal: true });
      };
      const key = shortened(tasks.keyText(tasks.keys[row]), 48);
      const about = `${key} · ${shortened(tasks.workerName(row), 24)} · at ${formatCell(tasks.starts[row], 2)} s`;
      const duration = formatSeconds(tasks.durations[row]);
      const button = make("button", { type: "button", class: "link", onclick: select }, duration);
      return make("li", {}, button, make("small", {}, ` ${about}`));
    });
    return make("ol", { class: "slowest" }, ...items);
  }

  byWorker(rows) {
    const { tasks } = this;
    const workers = Map.groupBy(rows, (row) => tasks.workerName(row));
    const listed = [...workers].map(([worker, workerRows]) => {
      const durations = workerRows.map((row) => tasks.durations[row]);
      return { worker, count: durations.length, sum: sumOf(durations), middle: median(durations) };
    });
    listed.sort((one, other) => other.sum - one.sum);
    const body = listed.slice(0, WORKERS_SHOWN).map(({ worker, count, sum, middle }) => {
      const bar = meter(sum / (listed[0].sum || 1));
      return [shortened(worker, 40), formatCount(count), formatSeconds(sum), bar, formatSeconds(middle)];
    });
    const more = listed.length - body.length;
    const others = more > 0 ? [absence(`and ${counted(more, "more worker")}`)] : [];
    const labels = ["Worker", "Task runs", "Total time", "", "Median"];
    return make("div", {}, tableOf({ class: "plain of-workers" }, labels, body), ...others);
  }

  lines(name) {
    if (!this.flames.sampled) return [];
    const lines = this.flames.linesOfFunction(name);
    const title = make("h3", {}, "Hot lines");
    if (!lines.length) return [title, absence("There are no samples of this function.")];
    const graph = () => {
      this.close(this.address);
      this.flames.show("function", name);
      byId("flame-section").scrollIntoView();
    };
    return [title, lineList(lines), make("button", { type: "button", onclick: graph }, "Show in flame graph")];
  }

  /** Returns the source of the functions that its tasks call, with the sampled seconds of lines. */
  code(name) {
    return this.tasks.codeOf(name).flatMap(([place, source, file, first]) => {
      const title = make("h3", {}, `Code: ${visible(place)}`);
      if (!source) return [title];
      const lines = source.replace(/\n$/, "").split("\n");
      const spent = this.flames.sampled ? this.flames.linesWithin(name, { file, first, lines }) : [];
      return [title, sourceTable({ first, lines }, spent)];
    });
  }
}
