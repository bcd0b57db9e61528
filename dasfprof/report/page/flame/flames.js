// The flame graphs of a run: tasks by function, step and worker, the client, and event loops.

import { absence, breathe, byId, find, make, radios } from "../dom.js";
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

  /** Shows a view, and zooms to a group if one is named. */
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
      chosen: (call) => this.showLines(tree, call),
    });
    const { samples, omitted } = tree.view;
    const left = omitted ? `; without ${counted(omitted, "short call")}` : "";
    byId("flame-about").textContent = `${counted(samples, "sample")}, ${formatSeconds(tree.view.seconds)}${left}`;
    this.search();
    const zoomed = this.groupOf(tree, group);
    if (zoomed) this.graph.zoom(zoomed);
    else this.showLines(tree, null);
  }

  /** Whether any task was sampled. */
  get sampled() {
    return this.facts.lines.places.length > 0;
  }

  /** Returns the sampled lines of user code in a task run, the longest first. */
  linesOfRun(row) {
    const { rows, places } = this.runLines;
    const lines = [];
    for (let at = lastAtMost(rows, row); at >= 0 && rows[at] === row; at -= 1)
      lines.push({ ...this.places[places[at]], ...spentAt(this.runLines, at) });
    return lines.sort((one, other) => other.seconds - one.seconds);
  }

  /** Returns the sampled lines of user code in the task runs of a function, the longest first. */
  linesOfFunction(name) {
    const { functions } = this.facts.lines;
    const lines = Object.hasOwn(functions, name) ? functions[name] : [];
    return lines.map(([place, ...numbers]) => {
      const spent = SPENT.map((part, at) => [part, numbers[at] ?? NaN]);
      return { ...this.places[place], ...Object.fromEntries(spent) };
    });
  }

  /** Returns the sampled lines of a source in the task runs of a function, with the time of their calls. */
  linesWithin(name, { file, first, lines }) {
    const tree = this.trees.get("function");
    const byLine = new Map();
    const isInSource = ({ line }) => line >= first && line < first + lines.length;
    const add = (call) => {
      const sampled = this.nameOf(tree, call.at)[1] === file ? linesAt(tree, call.at) : [];
      if (!sampled.some(isInSource)) return call.calls.forEach(add);
      for (const spent of sampled) {
        const sum = byLine.get(spent.line);
        if (!sum) byLine.set(spent.line, { ...spent });
        else for (const part of SPENT) sum[part] += spent[part];
      }
    };
    this.groupOf(tree, name)?.calls.forEach(add);
    return [...byLine.values()];
  }

  /** Returns the outermost call of a group, or undefined. */
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
    const text = byId("flame-search").value;
    const { count, seconds } = this.graph.find(text);
    const share = formatShare(seconds / this.tree.view.seconds);
    byId("flame-found").textContent = text && `${counted(count, "call")}, ${formatSeconds(seconds)} (${share})`;
  }

  /** Shows the lines of the call to which the graph is zoomed. */
  showLines(tree, call) {
    const root = byId("flame-frame");
    byId("flame-whole").disabled = call === null;
    if (call === null) return root.replaceChildren(absence("Click a call to see its lines."));
    const [name, file] = this.nameOf(tree, call.at);
    const title = visible(this.title(tree, call).slice(name.length + 1));
    root.replaceChildren(
      make("h3", {}, shortened(name, 200)),
      make("p", {}, `${title}; ${formatSeconds(tree.own[call.at])} without the calls that it makes.`),
      ...(file ? [lineTable(this.sources, file, linesAt(tree, call.at))] : []),
    );
  }
}

const SPENT = ["seconds", "computing", "core", "lock", "uncertain"];

/**
 * Returns the seconds of a call or line by activity. `before` is a prefix of the columns' names.
 *
 * @returns {any}
 */
function spentAt(columns, at, before = "") {
  return Object.fromEntries(SPENT.map((name) => [name, columns[before + name][at]]));
}

/** Returns the sampled lines of a call, with the time of the calls that they make. */
function linesAt(tree, at) {
  const lines = [];
  for (let place = tree.first_lines[at]; place < tree.first_lines[at + 1]; place += 1)
    lines.push({ line: tree.lines[place], ...spentAt(tree, place, "line_") });
  return lines;
}
