// The plan of the run: boxes of what it computed, what they took of the threads, and what they handed on.

import { swatch, swatchesOf } from "../accounting.js";
import { byId, findAll, make, radios, svg } from "../dom.js";
import { counted, formatBytes, formatSeconds, formatShare, shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";
import { plainLegend } from "../timeline/legend.js";
import { blocksOf, levelsOf, planOf, usualLevel } from "./boxes.js";
import { layOut } from "./layout.js";

/** Pixels: a box, between boxes, and between levels, where the sizes of what is handed on stand. */
const [BROAD, HIGH, GAP, BETWEEN, SLIM] = [256, 76, 24, 44, 16];
/** A picture of more computations than this has the longest alone. */
const MOST_BLOCKS = 12;
const WORDS = { node: "layer", line: "line", step: "step", function: "function" };

export class PlanPicture {
  /** The boxes whose task runs are lit. */
  chosen = [];
  /** Whether a row is of these; null: none are. */
  has = null;

  constructor(page, nodeOfRow) {
    this.page = page;
    this.nodeOfRow = nodeOfRow;
    const { tables, timeline } = page.facts;
    const { plan: table, "plan-edges": edges } = tables;
    if (!table?.columns?.[0]?.values.length || !edges?.columns) return;
    this.classes = timeline.gaps.classes.filter(({ busy }) => busy);
    this.plan = planOf(table, edges, this.classes);
    this.whole = sumOf(this.plan.nodes.map(({ seconds }) => seconds));
    byId("plan-section").hidden = false;
    const usual = usualLevel(this.plan);
    const levels = Object.fromEntries(levelsOf(this.plan).map((level) => [level, WORDS[level]]));
    byId("plan-by").append(...radios("plan-by", levels, usual, (level) => this.show(level)));
    this.show(usual);
  }

  show(level) {
    this.level = level;
    const blocks = blocksOf(this.plan, level);
    const secondsOf = ({ boxes }) => sumOf(boxes.map(({ seconds }) => seconds));
    const longest = [...blocks].sort((one, other) => secondsOf(other) - secondsOf(one)).slice(0, MOST_BLOCKS);
    const shown = blocks.filter((block) => longest.includes(block));
    this.most = Math.max(0, ...shown.flatMap(({ boxes }) => boxes.map(({ seconds }) => seconds)));
    const largest = Math.max(0, ...shown.flatMap(({ links }) => links.map(({ size }) => size || 0)));
    byId("plan").replaceChildren(...shown.map((block) => this.figure(block, secondsOf(block), largest)));
    const left = blocks.filter((block) => !shown.includes(block));
    byId("plan-left").textContent = left.length
      ? `${counted(sumOf(left.map(({ computations }) => computations.length)), "shorter computation")}, ${formatSeconds(
          sumOf(left.map(secondsOf)),
        )} of thread time in all: not drawn.`
      : "";
    const used = this.classes.filter((_, at) => this.plan.nodes.some(({ spent }) => spent[at] > 0));
    const swatches = swatchesOf(used);
    byId("plan-legend").replaceChildren(
      ...plainLegend(used.map(({ name }) => ({ name, swatch: swatch(swatches.get(name)) }))),
    );
    if (this.chosen.length) this.choose([]);
  }

  /** A computation, or several that are alike. */
  figure({ boxes, links, computations }, seconds, largest) {
    const ghosts = new Map(links.filter(({ from }) => !boxes.includes(from)).map(({ from }) => [from, { of: from }]));
    const own = links.map((link) => ({ ...link, from: ghosts.get(link.from) ?? link.from }));
    const found = layOut([...ghosts.values(), ...boxes], own, { wide: BROAD, gap: GAP, slim: SLIM });
    const [width, height] = [found.width, found.levels * (HIGH + BETWEEN) - BETWEEN];
    const drawing = make("div", { class: "plan-drawing" }, this.linksOf(found, width, height, largest));
    drawing.style.width = `${width}px`;
    drawing.style.height = `${height}px`;
    for (const { box, x, level } of found.boxes) {
      const element = box.of ? ghost(box.of) : this.box(box);
      element.style.left = `${x - BROAD / 2}px`;
      element.style.top = `${level * (HIGH + BETWEEN)}px`;
      drawing.append(element);
    }
    const [first, count] = [computations[0], computations.length];
    const title = count > 1 ? `Computation ${first} and ${count - 1} alike` : `Computation ${first}`;
    const tasks = counted(sumOf(boxes.map((box) => box.tasks)), "task run");
    const about = ` ${tasks}, ${formatSeconds(seconds)} of thread time`;
    return make("figure", { class: "plan-figure" }, make("figcaption", {}, make("b", {}, title), about), drawing);
  }

  linksOf({ links }, width, height, largest) {
    const picture = svg("svg", { width, height, "aria-hidden": "true" });
    const texts = [];
    for (const { link, points } of links) {
      const places = points.map(([middle, level]) => [middle, level * (HIGH + BETWEEN)]);
      const way = places.slice(1).map((place, at) => wayTo(places[at], place, at > 0));
      const thick = largest > 0 && link.size > 0 ? 1.25 + 5 * Math.sqrt(link.size / largest) : 1.25;
      const about = { d: `M${places[0][0]},${places[0][1] + HIGH}${way.join("")}`, "stroke-width": thick };
      picture.append(svg("path", { ...about, class: link.path ? "on-path" : "" }));
      const fans = links.filter((one) => one.link.from === link.from).length > 1;
      const [one, other, share] = fans ? [...places.slice(-2), 0.72] : [...places.slice(0, 2), 0.28];
      const x = one[0] + (other[0] - one[0]) * ease(share) + thick / 2 + 4;
      const at = { x, y: one[1] + HIGH + BETWEEN * share };
      if (link.size > 0) texts.push(svg("text", { ...at, dy: "0.35em" }, formatBytes(link.size)));
    }
    picture.append(...texts);
    return picture;
  }

  /** A box: functions, line and its text, tasks and seconds, a bar of the classes of these. */
  box(box) {
    const { functions, lines, texts, steps, spent, seconds, tasks, failed, again, unfinished, path } = box;
    const bar = make("span", { class: "stack" });
    bar.style.width = `${this.most > 0 ? Math.max((seconds / this.most) * 100, 1) : 0}%`;
    for (const [at, one] of this.classes.entries()) {
      const part = swatch(one, "i");
      part.style.width = `${(spent[at] / seconds) * 100}%`;
      if (spent[at] > 0) bar.append(part);
    }
    const told = [
      ...(failed ? [make("b", { class: "bad" }, `${failed} failed`)] : []),
      ...(unfinished ? [make("b", {}, `${unfinished} unfinished`)] : []),
      ...(again ? [make("b", { class: "again" }, `${again} again`)] : []),
    ];
    const classes = this.classes.map(({ name }, at) => [name, spent[at]]).filter(([, one]) => one > 0);
    const title = [
      functions.join(", "),
      ...steps.map((step) => `Step ${step}`),
      ...lines.map((line, at) => `${line}  ${texts[at] ?? ""}`),
      `${counted(tasks, "task run")}, ${formatSeconds(seconds)} of thread time (${formatShare(seconds / this.whole)})`,
      ...classes.map(([name, one]) => `${name}: ${formatSeconds(one)}`),
      ...(again ? [`${counted(again, "task run")} made a result once more`] : []),
      ...(path > 0 ? [`On the critical path: ${formatSeconds(path)}`] : []),
    ];
    const kind = `plan-box${failed ? " failed" : ""}${path > 0 ? " on-path" : ""}`;
    const onclick = (event) => this.onClick(box, event.shiftKey);
    const built = lines.join(", ") || steps.join(", ");
    const layers = this.level === "node" && box.nodes.length > 1 ? `${counted(box.nodes.length, "layer")} · ` : "";
    const figures = `${layers}${counted(tasks, "task")} · ${formatSeconds(seconds)} `;
    const element = make(
      "button",
      { type: "button", class: kind, "aria-pressed": "false", title: visible(title.join("\n")), onclick },
      make("strong", {}, shortened(functions.join(" · "), 60)),
      make("span", { class: "built" }, make("em", {}, shortened(built, 40)), ` ${shortened(texts.at(-1) ?? "", 90)}`),
      make("span", { class: "took" }, figures, ...told),
      bar,
    );
    elementOf.set(box, element);
    return element;
  }

  onClick(box, adds) {
    const others = this.chosen.filter((one) => one !== box);
    const kept = adds ? others : [];
    const takesAway = this.chosen.includes(box) && (adds || !others.length);
    this.choose(takesAway ? kept : [...kept, box]);
  }

  /** Lights the task runs of boxes alone; none: those of all. */
  choose(boxes) {
    this.chosen = boxes;
    const nodes = new Set(boxes.flatMap((box) => box.nodes.map(({ at }) => at)));
    this.has = nodes.size ? (row) => nodes.has(this.nodeOfRow[row]) : null;
    for (const element of findAll(".plan-box", byId("plan"))) element.setAttribute("aria-pressed", "false");
    for (const box of boxes) elementOf.get(box)?.setAttribute("aria-pressed", "true");
    this.page.light();
  }

  /** What is chosen, in words; empty: nothing. */
  get told() {
    const words = ({ functions, lines }) => [functions, lines].map((names) => names.join(", ")).filter(Boolean);
    return this.chosen.map((box) => words(box).join(" of "));
  }
}

/** The elements of boxes. */
const elementOf = new Map();

/** What another computation made. */
function ghost({ functions, nodes }) {
  const from = `from computation ${nodes[0].computation}`;
  const name = make("strong", {}, shortened(functions.join(" · "), 60));
  return make("div", { class: "plan-box ghost" }, name, make("span", {}, from));
}

function ease(share) {
  return share * share * (3 - 2 * share);
}

/** The way of a link from one level to the next; past a level it goes straight down. */
function wayTo([x0, y0], [x1, y1], passes) {
  const [begin, end] = [y0 + HIGH, y1];
  const middle = (begin + end) / 2;
  return `${passes ? `V${begin}` : ""}C${x0},${middle} ${x1},${middle} ${x1},${end}`;
}
