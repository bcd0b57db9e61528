// Two timelines with the same axis, visible time, cursor and selection.

import { make, radios } from "../dom.js";
import { counted, formatCount, formatSeconds, shortened, visible } from "../format.js";
import { median, sumOf } from "../numbers.js";
import { pathLegend, seriesSwatch } from "../timeline/colours.js";
import { plainLegend } from "../timeline/legend.js";
import { OTHER } from "../timeline/palette.js";
import { criticalView } from "../timeline/path.js";
import { Timeline } from "../timeline/timeline.js";
import { flattenView } from "../timeline/views.js";

export const SIDES = ["before", "after"];
const PAIR_VIEWS = { threads: "Threads", critical: "Critical path" };

export class Pair {
  /** `runs` has `name` and `tasks` of the runs before and after. */
  constructor(root, runs) {
    this.runs = runs;
    this.tasks = runs.map((run) => run.tasks);
    this.seconds = this.tasks.map(secondsByFunction);
    this.chosen = make("output", { class: "chosen", "aria-live": "polite" });
    this.legend = make("ul", { class: "legend" });
    this.stages = runs.map((run, side) => this.stage(run, side));
    root.replaceChildren(this.tools(), this.legend, ...this.stages, this.chosen);
    this.timelines = this.tasks.map(
      (tasks, side) =>
        new Timeline(tasks, this.stages[side].querySelector(".timeline"), {
          selected: (row) => this.onSelected(side, row),
          moved: (from, to) => this.follow(this.other(side), from, to),
          pointed: (time) => this.timelines.forEach((timeline) => timeline.point(time)),
        }),
    );
    this.ranks = rankedLabels(this.seconds);
    this.show("threads");
    this.showLegend();
  }

  other(side) {
    return this.timelines?.[1 - side];
  }

  follow(timeline, from, to) {
    if (timeline && (timeline.from !== from || timeline.to !== to)) timeline.move(from, to);
  }

  tools() {
    const choices = radios("pair-view", PAIR_VIEWS, "threads", (view) => this.show(view));
    const button = (text, label, act) =>
      make("button", { type: "button", "aria-label": label, onclick: act }, text);
    return make(
      "div",
      { class: "tools" },
      make("fieldset", { class: "choice" }, make("legend", {}, "View"), ...choices),
      make(
        "span",
        { class: "buttons" },
        button("−", "Zoom out of both", () => this.timelines[0].zoom(2)),
        button("+", "Zoom into both", () => this.timelines[0].zoom(0.5)),
        button("Full runs", "Show the full runs", () => this.timelines[0].showFullRun()),
      ),
    );
  }

  stage({ name, tasks }, side) {
    const overlay = {
      class: "overlay",
      tabindex: "0",
      role: "application",
      "aria-label": `Timeline of the run ${SIDES[side]}`,
    };
    return make(
      "div",
      { class: "plots", "data-side": SIDES[side] },
      make("h3", {}, `${SIDES[side] === "before" ? "Before" : "After"}: ${shortened(name, 90)}`),
      make("ul", { class: "legend path-legend", hidden: true }, ...plainLegend(pathLegend(tasks.path))),
      make(
        "div",
        { class: "timeline" },
        make("canvas", { class: "picture", "aria-hidden": "true" }),
        make("canvas", overlay),
        make("div", { class: "tip", hidden: true }),
      ),
    );
  }

  /** Shows both runs from their first submission. */
  show(view) {
    const bounds = this.tasks.map(boundsOf);
    const longest = Math.max(...bounds.map(([begin, end]) => end - begin)) || 1;
    for (const [side, timeline] of this.timelines.entries()) {
      const tasks = since(bounds[side][0], this.tasks[side]);
      timeline.replace(tasks, longest);
      timeline.colours = this.coloursOf(side);
      timeline.show(view === "critical" ? criticalView(tasks) : flattenView(tasks));
      this.stages[side].querySelector(".path-legend").hidden = view !== "critical";
    }
  }

  coloursOf(side) {
    const tasks = this.tasks[side];
    const ofCode = Uint8Array.from(tasks.facts.functions, (name) =>
      Math.min(this.ranks.get(name) ?? OTHER, OTHER),
    );
    return Uint8Array.from({ length: tasks.count }, (_, row) => ofCode[tasks.functionOf(row)]);
  }

  showLegend() {
    const shown = [...this.ranks.keys()].slice(0, OTHER);
    const entries = shown.map((label, rank) => {
      const onclick = () => this.light(this.lit === label ? null : label);
      const button = make("button", { type: "button", onclick }, seriesSwatch(rank), shortened(label, 40));
      return make("li", {}, button);
    });
    const others = this.ranks.size - shown.length;
    if (others > 0) entries.push(make("li", {}, seriesSwatch(OTHER), counted(others, "other")));
    this.legend.replaceChildren(...entries);
  }

  onSelected(side, row) {
    if (row < 0) return this.light(null);
    const other = this.other(side);
    if (other.selected >= 0) {
      other.selected = -1;
      other.draw();
    }
    this.light(this.tasks[side].functionName(row));
  }

  /** Highlights a function in both runs, and shows its time. Null highlights all. */
  light(label) {
    this.lit = label;
    for (const [side, timeline] of this.timelines.entries()) {
      const tasks = this.tasks[side];
      const code = tasks.facts.functions.indexOf(label);
      const flags = () => Uint8Array.from(tasks.rows, (row) => Number(tasks.functionOf(row) === code));
      timeline.highlight(label === null ? null : flags());
    }
    this.chosen.textContent = label === null ? "" : visible(this.summary(label));
  }

  summary(label) {
    const parts = this.seconds.map((bySide, side) => {
      const seconds = bySide.get(label);
      if (!seconds) return `${SIDES[side]} it did not run`;
      const times = `${formatCount(seconds.length)} × ${formatSeconds(median(seconds))} (median)`;
      return `${SIDES[side]} ${times}, ${formatSeconds(sumOf(seconds))} in total`;
    });
    return `${label}: ${parts.join("; ")}`;
  }
}

/** Returns the seconds of the successful task runs of each function. */
function secondsByFunction(tasks) {
  const succeeded = [...tasks.rows].filter((row) => tasks.stateName(row) === "memory");
  const byName = Map.groupBy(succeeded, (row) => tasks.functionName(row));
  return new Map([...byName].map(([name, rows]) => [name, rows.map((row) => tasks.durations[row])]));
}

/** Returns task runs with times since a time. `recorded` has the original ones. */
function since(begin, tasks) {
  const shifted = (times) => times.map((time) => time - begin);
  const path = { ...tasks.path, starts: shifted(tasks.path.starts) };
  return Object.assign(Object.create(tasks), { starts: shifted(tasks.starts), path, recorded: tasks });
}

/** Returns the times of the first submission and of the last end of a task. */
function boundsOf({ path, starts, durations }) {
  let [begin, end] = [path.starts[0] ?? Infinity, 0];
  for (let row = 0; row < starts.length; row += 1) {
    begin = Math.min(begin, starts[row]);
    end = Math.max(end, starts[row] + durations[row]);
  }
  return [Math.min(begin, end), end];
}

/** Returns the rank of each function's label by its time in both runs. */
function rankedLabels(seconds) {
  const totals = new Map();
  for (const side of seconds)
    for (const [label, durations] of side) totals.set(label, (totals.get(label) ?? 0) + sumOf(durations));
  const labels = [...totals].sort((one, other) => other[1] - one[1]).map(([label]) => label);
  return new Map(labels.map((label, rank) => [label, rank]));
}
