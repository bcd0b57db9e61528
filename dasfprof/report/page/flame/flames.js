// The flame graphs of a run: its tasks by function, step and worker, its client, its event loops.

import { breathe, byId, find, make, radios } from "../dom.js";
import { counted, formatSeconds, formatShare, shortened, visible } from "../format.js";
import { lastAtMost } from "../numbers.js";
import { FlameGraph, treeOf } from "./graph.js";
import { dressSpent, lineTable, spentWords } from "./sources.js";
/** @import { Columns } from "../data.js" */

export class Flames {
  facts; sources; tree;
  /** @type {Columns} */ columns;

  constructor(facts, columns, sources) {
    Object.assign(this, { facts, columns, sources });
    this.trees = new Map();
    byId("flame-absent").hidden = facts.views.length > 0;
    byId("flame-parts").hidden = facts.views.length === 0;
    const titles = Object.fromEntries(facts.views.map(({ name, title }) => [name, title]));
    byId("flame-view").append(...radios("flame", titles, facts.views[0]?.name, (name) => this.show(name)));
    this.places = facts.lines.places.map(([file, line, name]) => ({ file, line, name }));
    byId("flame-search").addEventListener("input", () => this.search());
    byId("flame-whole").addEventListener("click", () => this.graph.zoom(null));
  }

  async read() {
    this.names = (await this.columns.group("flames")).names;
    for (const view of this.facts.views) {
      const tree = await this.columns.group(`flame-${view.name}`);
      this.trees.set(view.name, { ...tree, calls: treeOf(tree.depths), view });
      await breathe();
    }
    this.runLines = await this.columns.group("run-lines");
    if (this.facts.views.length) this.show(this.facts.views[0].name);
  }

  /** Shows a view; zooms to a group of it, if one is named. */
  show(name, group = null) {
    const tree = this.trees.get(name);
    this.tree = tree;
    find(`input[name=flame][value=${name}]`).checked = true;
    this.graph = new FlameGraph(byId("flame"), {
      calls: tree.calls,
      seconds: ({ at }) => tree.seconds[at],
      name: ({ at }) => this.nameOf(tree, at)[0],
      title: (call) => this.title(tree, call),
      dress: (element, call) => this.dress(element, tree, call),
      chosen: (call) => this.tellOf(tree, call),
    });
    const { samples, omitted } = tree.view;
    const left = omitted ? `; ${counted(omitted, "brief call")} left out` : "";
    byId("flame-about").textContent = `${counted(samples, "sample")}, ${formatSeconds(tree.view.seconds)}${left}`;
    this.search();
    const wanted = this.groupOf(tree, group);
    if (wanted) this.graph.zoom(wanted);
    else this.tellOf(tree, null);
  }

  /** Whether any task was sampled. */
  get sampled() {
    return this.facts.lines.places.length > 0;
  }

  /** The lines of the user's code at which a task run was, the longest first. */
  linesOfRun(row) {
    const { rows, places } = this.runLines;
    const lines = [];
    for (let at = lastAtMost(rows, row); at >= 0 && rows[at] === row; at -= 1)
      lines.push({ ...this.places[places[at]], ...spentAt(this.runLines, at) });
    return lines.sort((one, other) => other.seconds - one.seconds);
  }

  /** The lines of the user's code at which the task runs of a function were, the longest first. */
  linesOfFunction(name) {
    const { functions } = this.facts.lines;
    const found = Object.hasOwn(functions, name) ? functions[name] : [];
    return found.map(([place, ...numbers]) => {
      const spent = SPENT.map((part, at) => [part, numbers[at] ?? NaN]);
      return { ...this.places[place], ...Object.fromEntries(spent) };
    });
  }

  /** The lines of what a source is of, where a function's tasks called it, with what it calls. */
  linesWithin(name, { file, first, lines }) {
    const tree = this.trees.get("function");
    const byLine = new Map();
    const isIt = ({ line }) => line >= first && line < first + lines.length;
    const add = (call) => {
      const own = this.nameOf(tree, call.at)[1] === file ? linesAt(tree, call.at) : [];
      if (!own.some(isIt)) return call.calls.forEach(add);
      for (const one of own) {
        const sum = byLine.get(one.line);
        if (!sum) byLine.set(one.line, { ...one });
        else for (const part of SPENT) sum[part] += one[part];
      }
    };
    this.groupOf(tree, name)?.calls.forEach(add);
    return [...byLine.values()];
  }

  /** The call that stands for a group; undefined: there is none. */
  groupOf(tree, group) {
    return tree?.calls.find((call) => !call.caller && this.nameOf(tree, call.at)[0] === group);
  }

  nameOf(tree, at) {
    return this.names[tree.functions[at]];
  }

  title(tree, call) {
    const [name, file] = this.nameOf(tree, call.at);
    const seconds = tree.seconds[call.at];
    const place = file ? ` (${file})` : "";
    const share = formatShare(seconds / tree.view.seconds);
    return `${name}${place}: ${formatSeconds(seconds)}, ${share}; ${spentWords(spentAt(tree, call.at))}`;
  }

  dress(element, tree, call) {
    const [, file, library] = this.nameOf(tree, call.at);
    const origin = !file ? "group" : library === "" ? "program" : library === "(Python)" ? "python" : "library";
    element.classList.add("spent-in", origin);
    dressSpent(element, spentAt(tree, call.at));
  }

  search() {
    const wanted = byId("flame-search").value;
    const { count, seconds } = this.graph.find(wanted);
    const share = formatShare(seconds / this.tree.view.seconds);
    byId("flame-found").textContent =
      wanted === "" ? "" : `${counted(count, "call")}, ${formatSeconds(seconds)} (${share})`;
  }

  /** Shows the lines of the call that the graph is zoomed to. */
  tellOf(tree, call) {
    const root = byId("flame-frame");
    byId("flame-whole").disabled = call === null;
    if (call === null) {
      root.replaceChildren(make("p", { class: "absent" }, "Choose a call to see its lines."));
      return;
    }
    const [name, file] = this.nameOf(tree, call.at);
    const own = `${formatSeconds(tree.own[call.at])} in itself`;
    root.replaceChildren(
      make("h3", {}, shortened(name, 200)),
      make("p", {}, visible(this.title(tree, call).slice(name.length + 1)), `; ${own}.`),
      ...(file ? [lineTable(this.sources, file, linesAt(tree, call.at))] : []),
    );
  }
}

const SPENT = ["seconds", "computing", "core", "lock", "uncertain"];

/**
 * What seconds were spent with, by the columns of that, which may have a word before their names.
 *
 * @returns {any}
 */
function spentAt(columns, at, before = "") {
  return Object.fromEntries(SPENT.map((name) => [name, columns[before + name][at]]));
}

/** The lines at which a call was, with what was called from there. */
function linesAt(tree, at) {
  const lines = [];
  for (let place = tree.first_lines[at]; place < tree.first_lines[at + 1]; place += 1)
    lines.push({ line: tree.lines[place], ...spentAt(tree, place, "line_") });
  return lines;
}
