// The plan of the run: boxes of its layers, their thread time, and the data passed between them.

import { swatch } from "../accounting.js";
import { byId, chosenAfter, findAll, make, radios, svg } from "../dom.js";
import { counted, formatBytes, formatSeconds, formatShare, shortened, visible } from "../format.js";
import { sumOf } from "../numbers.js";
import { plainLegend } from "../timeline/legend.js";
import { blocksOf, levelsOf, planOf, usualLevel } from "./boxes.js";
import { layOut } from "./layout.js";

/** Pixels: width and height of a box, distances between boxes and between levels, width of a link. */
const [BROAD, HIGH, GAP, BETWEEN, SLIM] = [256, 76, 24, 44, 16];
/** Maximum number of computations that are drawn. */
const MOST_BLOCKS = 12;
const WORDS = { node: "layer", line: "line", step: "step", function: "function" };

export class PlanPicture {
  /** The boxes whose task runs are highlighted. */
  chosen = [];
  /** Returns whether a row belongs to them, or null if there are none. */
  has = null;

  constructor(page, nodeOfRow) {
    this.page = page;
    this.nodeOfRow = nodeOfRow;
    const { tables, timeline } = page.facts;
    const { plan: table, "plan-edges": edges } = tables;
    if (!table?.columns?.[0]?.values.length || !edges?.columns) return;
    this.classes = timeline.gaps.classes.filter(({ busy }) => busy);
    this.plan = planOf(table, edges, this.classes);
    this.total = sumOf(this.plan.nodes.map(({ seconds }) => seconds));
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
    this.longest = Math.max(0, ...shown.flatMap(({ boxes }) => boxes.map(({ seconds }) => seconds)));
    const largest = Math.max(0, ...shown.flatMap(({ links }) => links.map(({ size }) => size || 0)));
    byId("plan").replaceChildren(...shown.map((block) => this.figure(block, secondsOf(block), largest)));
    const left = blocks.filter((block) => !shown.includes(block));
    const count = counted(sumOf(left.map(({ computations }) => computations.length)), "shorter computation");
    const seconds = formatSeconds(sumOf(left.map(secondsOf)));
    byId("plan-left").textContent = left.length ? `Not shown: ${count}, ${seconds} of thread time.` : "";
    const used = this.classes.filter((_, at) => this.plan.nodes.some(({ spent }) => spent[at] > 0));
    const entries = used.map((category) => ({ name: category.name, swatch: swatch(category) }));
    byId("plan-legend").replaceChildren(...plainLegend(entries));
    if (this.chosen.length) this.choose([]);
  }

  /** Draws a computation, or several with the same structure. */
  figure({ boxes, links, computations }, seconds, largest) {
    const ghosts = new Map(links.filter(({ from }) => !boxes.includes(from)).map(({ from }) => [from, { of: from }]));
    const drawn = links.map((link) => ({ ...link, from: ghosts.get(link.from) ?? link.from }));
    const layout = layOut([...ghosts.values(), ...boxes], drawn, { wide: BROAD, gap: GAP, slim: SLIM });
    const [width, height] = [layout.width, layout.levels * (HIGH + BETWEEN) - BETWEEN];
    const drawing = make("div", { class: "plan-drawing" }, this.linksOf(layout, width, height, largest));
    drawing.style.width = `${width}px`;
    drawing.style.height = `${height}px`;
    for (const { box, x, level } of layout.boxes) {
      const element = box.of ? ghost(box.of) : this.box(box);
      element.style.left = `${x - BROAD / 2}px`;
      element.style.top = `${level * (HIGH + BETWEEN)}px`;
      drawing.append(element);
    }
    const [first, count] = [computations[0], computations.length];
    const title = count > 1 ? `Computation ${first} and ${count - 1} similar` : `Computation ${first}`;
    const tasks = counted(sumOf(boxes.map((box) => box.tasks)), "task run");
    const about = ` ${tasks}, ${formatSeconds(seconds)} of thread time`;
    return make("figure", { class: "plan-figure" }, make("figcaption", {}, make("b", {}, title), about), drawing);
  }

  linksOf({ links }, width, height, largest) {
    const picture = svg("svg", { width, height, "aria-hidden": "true" });
    const texts = [];
    for (const { link, points } of links) {
      const places = points.map(([middle, level]) => [middle, level * (HIGH + BETWEEN)]);
      const path = places.slice(1).map((place, at) => pathTo(places[at], place, at > 0));
      const thick = largest > 0 && link.size > 0 ? 1.25 + 5 * Math.sqrt(link.size / largest) : 1.25;
      const about = { d: `M${places[0][0]},${places[0][1] + HIGH}${path.join("")}`, "stroke-width": thick };
      picture.append(svg("path", { ...about, class: link.path ? "on-path" : "" }));
      const fans = links.filter((each) => each.link.from === link.from).length > 1;
      const [start, end, share] = fans ? [...places.slice(-2), 0.72] : [...places.slice(0, 2), 0.28];
      const x = start[0] + (end[0] - start[0]) * ease(share) + thick / 2 + 4;
      const at = { x, y: start[1] + HIGH + BETWEEN * share };
      if (link.size > 0) texts.push(svg("text", { ...at, dy: "0.35em" }, formatBytes(link.size)));
    }
    picture.append(...texts);
    return picture;
  }

  /** Creates a box with functions, line, tasks, seconds, and a bar of categories. */
  box(box) {
    const { functions, lines, texts, steps, spent, seconds, tasks, failed, again, unfinished, path } = box;
    const bar = make("span", { class: "stack" });
    bar.style.width = `${this.longest > 0 ? Math.max((seconds / this.longest) * 100, 1) : 0}%`;
    for (const [at, category] of this.classes.entries()) {
      const part = swatch(category, "i");
      part.style.width = `${(spent[at] / seconds) * 100}%`;
      if (spent[at] > 0) bar.append(part);
    }
    const problems = [
      ...(failed ? [make("b", { class: "bad" }, `${failed} failed`)] : []),
      ...(unfinished ? [make("b", {}, `${unfinished} unfinished`)] : []),
      ...(again ? [make("b", { class: "again" }, `${again} recomputed`)] : []),
    ];
    const classes = this.classes.map(({ name }, at) => [name, spent[at]]).filter(([, part]) => part > 0);
    const title = [
      functions.join(", "),
      ...steps.map((step) => `Step ${step}`),
      ...lines.map((line, at) => `${line}  ${texts[at] ?? ""}`),
      `${counted(tasks, "task run")}, ${formatSeconds(seconds)} of thread time (${formatShare(seconds / this.total)})`,
      ...classes.map(([name, part]) => `${name}: ${formatSeconds(part)}`),
      ...(again ? [`${counted(again, "task run")} recomputed a result`] : []),
      ...(path > 0 ? [`On the critical path: ${formatSeconds(path)}`] : []),
    ];
    const kind = `plan-box${failed ? " failed" : ""}${path > 0 ? " on-path" : ""}`;
    const onclick = (event) => this.choose(chosenAfter(this.chosen, box, event.shiftKey));
    const built = lines.join(", ") || steps.join(", ");
    const layers = this.level === "node" && box.nodes.length > 1 ? `${counted(box.nodes.length, "layer")} · ` : "";
    const figures = `${layers}${counted(tasks, "task")} · ${formatSeconds(seconds)} `;
    const element = make(
      "button",
      { type: "button", class: kind, "aria-pressed": "false", title: visible(title.join("\n")), onclick },
      make("strong", {}, shortened(functions.join(" · "), 60)),
      make("span", { class: "built" }, make("em", {}, shortened(built, 40)), ` ${shortened(texts.at(-1) ?? "", 90)}`),
      make("span", { class: "took" }, figures, ...problems),
      bar,
    );
    elementOf.set(box, element);
    return element;
  }

  /** Highlights only the task runs of boxes, or all for an empty list. */
  choose(boxes) {
    this.chosen = boxes;
    const nodes = new Set(boxes.flatMap((box) => box.nodes.map(({ at }) => at)));
    this.has = nodes.size ? (row) => nodes.has(this.nodeOfRow[row]) : null;
    for (const element of findAll(".plan-box", byId("plan"))) element.setAttribute("aria-pressed", "false");
    for (const box of boxes) elementOf.get(box)?.setAttribute("aria-pressed", "true");
    this.page.light();
  }

  /** Names of the chosen boxes. */
  get chosenNames() {
    const names = ({ functions, lines }) => [functions, lines].map((parts) => parts.join(", ")).filter(Boolean);
    return this.chosen.map((box) => names(box).join(" of "));
  }
}

/** The elements of boxes. */
const elementOf = new Map();

/** Creates the box of a result that another computation made. */
function ghost({ functions, nodes }) {
  const from = `from computation ${nodes[0].computation}`;
  const name = make("strong", {}, shortened(functions.join(" · "), 60));
  return make("div", { class: "plan-box ghost" }, name, make("span", {}, from));
}

function ease(share) {
  return share * share * (3 - 2 * share);
}

/** Returns the SVG path of a link from one level to the next. It is straight where it passes a level. */
function pathTo([x0, y0], [x1, y1], passes) {
  const [begin, end] = [y0 + HIGH, y1];
  const middle = (begin + end) / 2;
  return `${passes ? `V${begin}` : ""}C${x0},${middle} ${x1},${middle} ${x1},${end}`;
}
