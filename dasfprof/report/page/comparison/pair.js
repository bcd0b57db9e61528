// Two timelines under one axis, with one window, one cursor and one selection.

import { choice, fill, find, findAll } from "../dom.js";
import { counted, formatCount, formatSeconds, shortened, visible } from "../format.js";
import { median, sumOf } from "../numbers.js";
import { pathLegend, seriesSwatch } from "../timeline/colours.js";
import { plainLegend } from "../timeline/legend.js";
import { OTHER } from "../timeline/palette.js";
import { criticalView } from "../timeline/path.js";
import { Timeline } from "../timeline/timeline.js";
import { flattenView } from "../timeline/views.js";
import { html } from "../vendor/lit-html.js";
import { onAxis, stepAxis, wallAxis } from "./axis.js";
import { placesByLabel, secondsByLabel, SIDES } from "./names.js";

const PAIR_VIEWS = { threads: "Threads", critical: "Critical path" };

export class Pair {
  /** `runs`: before and after, each with `name` and `tasks`, whose keys are read. */
  constructor(root, runs, names) {
    this.runs = runs;
    this.names = names;
    this.tasks = runs.map((run) => run.tasks);
    this.seconds = this.tasks.map((tasks, side) => secondsByLabel(names, SIDES[side], tasks));
    this.ranks = rankedLabels(this.seconds);
    fill(
      root,
      html`${this.tools()}
        <ul class="legend">${this.legend()}</ul>
        ${runs.map((run, side) => this.stage(run, side))}
        <output class="chosen" aria-live="polite"></output>`,
    );
    this.chosen = find(".chosen", root);
    this.stages = findAll(".plots", root);
    this.timelines = this.tasks.map(
      (tasks, side) =>
        new Timeline(tasks, find(".timeline", this.stages[side]), {
          selected: (row) => this.onSelected(side, row),
          moved: (from, to) => this.other(side)?.follow(from, to),
          pointed: (time) => this.timelines.forEach((timeline) => timeline.point(time)),
        }),
    );
    for (const timeline of this.timelines) {
      timeline.follow = (from, to) => {
        if (timeline.from !== from || timeline.to !== to) timeline.move(from, to);
      };
    }
    this.show("wall", "threads");
  }

  other(side) {
    return this.timelines?.[1 - side];
  }

  tools() {
    const steps = this.tasks.every((tasks) => tasks.steps);
    const axes = { wall: "Wall time", step: steps ? "Step by step" : "Function by function" };
    const refresh = () => this.refresh();
    const first = () => this.timelines[0];
    const whole = () => first().showWholeRun();
    return html`<div class="tools">
      ${choice("Axis", "pair-axis", axes, refresh)} ${choice("View", "pair-view", PAIR_VIEWS, refresh)}
      <span class="buttons">
        <button type="button" aria-label="Zoom out of both" @click=${() => first().zoom(2)}>−</button>
        <button type="button" aria-label="Zoom into both" @click=${() => first().zoom(0.5)}>+</button>
        <button type="button" aria-label="Show the whole runs" @click=${whole}>Whole runs</button>
      </span>
    </div>`;
  }

  stage({ name, tasks }, side) {
    const label = `Timeline of the run ${SIDES[side]}`;
    return html`<div class="plots" data-side=${SIDES[side]}>
      <h3>${SIDES[side] === "before" ? "Before" : "After"}: ${shortened(name, 90)}</h3>
      <ul class="legend path-legend" hidden>${plainLegend(pathLegend(tasks.path))}</ul>
      <div class="timeline">
        <canvas class="picture" aria-hidden="true"></canvas>
        <canvas class="overlay" tabindex="0" role="application" aria-label=${label}></canvas>
        <div class="tip" hidden></div>
      </div>
    </div>`;
  }

  refresh() {
    const checked = (name) => find(`input[name=${name}]:checked`).value;
    this.show(checked("pair-axis"), checked("pair-view"));
  }

  show(axis, view) {
    const { whole, places, ruler } =
      axis === "wall" ? wallAxis(this.tasks) : stepAxis(this.tasks, this.names);
    for (const [side, timeline] of this.timelines.entries()) {
      const tasks = onAxis(this.tasks[side], places[side]);
      timeline.putOn(tasks, whole, ruler);
      timeline.colours = this.coloursOf(side);
      timeline.show(view === "critical" ? criticalView(tasks) : flattenView(tasks));
      find(".path-legend", this.stages[side]).hidden = view !== "critical";
    }
  }

  coloursOf(side) {
    const tasks = this.tasks[side];
    const ofCode = Uint8Array.from(tasks.facts.functions, (name) =>
      Math.min(this.ranks.get(this.names.label(SIDES[side], name)) ?? OTHER, OTHER),
    );
    return Uint8Array.from({ length: tasks.count }, (_, row) => ofCode[tasks.functionOf(row)]);
  }

  legend() {
    const shown = [...this.ranks.keys()].slice(0, OTHER);
    const others = this.ranks.size - shown.length;
    const entry = (label, rank) => {
      const choose = () => this.light(this.lit === label ? null : label);
      const text = html`${seriesSwatch(rank)}${shortened(label, 40)}`;
      return html`<li><button type="button" @click=${choose}>${text}</button></li>`;
    };
    const rest = others > 0 ? html`<li>${seriesSwatch(OTHER)}${counted(others, "other")}</li>` : "";
    return [...shown.map(entry), rest];
  }

  onSelected(side, row) {
    if (row < 0) return this.light(null);
    const other = this.other(side);
    if (other.selected >= 0) {
      other.selected = -1;
      other.draw();
    }
    this.light(this.names.label(SIDES[side], this.tasks[side].functionName(row)));
  }

  /** Lights a function, by its label, in both runs, and says what it took; null: all are lit. */
  light(label) {
    this.lit = label;
    for (const [side, timeline] of this.timelines.entries()) {
      const tasks = this.tasks[side];
      const code =
        label === null
          ? undefined
          : placesByLabel(this.names, SIDES[side], tasks.facts.functions).get(label);
      const flags = () => Uint8Array.from({ length: tasks.count }, (_, row) => Number(tasks.functionOf(row) === code));
      timeline.highlight(label === null ? null : flags());
    }
    this.chosen.textContent = label === null ? "" : visible(this.told(label));
  }

  told(label) {
    const parts = this.seconds.map((seconds, side) => {
      const own = seconds.get(label);
      if (!own) return `${SIDES[side]} it did not run`;
      const times = `${formatCount(own.length)} × ${formatSeconds(median(own))} (median)`;
      return `${SIDES[side]} ${times}, ${formatSeconds(sumOf(own))} in all`;
    });
    return `${label}: ${parts.join("; ")}`;
  }
}

/** The labels of functions, those that took most in both runs first, each with its place. */
function rankedLabels(seconds) {
  const totals = new Map();
  for (const side of seconds)
    for (const [label, own] of side) totals.set(label, (totals.get(label) ?? 0) + sumOf(own));
  const labels = [...totals].sort((one, other) => other[1] - one[1]).map(([label]) => label);
  return new Map(labels.map((label, rank) => [label, rank]));
}
