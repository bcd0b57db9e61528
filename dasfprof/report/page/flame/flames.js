// The flame graphs of a run: its tasks by function, step and worker, its client, its event loops.

import { breathe, byId, find, make } from "../dom.js";
import { counted, formatCell, formatSeconds, formatShare, shortened, visible } from "../format.js";
import { lastAtMost } from "../numbers.js";
import { FlameGraph, treeOf } from "./graph.js";
import { inTree } from "../timeline/client.js";
import { dressSpent, lineList, lineTable, spentWords } from "./sources.js";
/** @import { Columns } from "../data.js" */

export class Flames {
  facts; sources; tree;
  /** What is shown of the client, see `limit`; null: the whole run. */ limited = null;
  /** @type {Columns} */ columns;

  constructor(facts, columns, sources) {
    Object.assign(this, { facts, columns, sources });
    this.trees = new Map();
    byId("flame-absent").hidden = facts.views.length > 0;
    byId("flame-parts").hidden = facts.views.length === 0;
    const radios = facts.views.map(({ name, title }, at) => {
      const choice = { type: "radio", name: "flame", value: name, checked: at === 0 };
      const radio = make("input", { ...choice, onchange: () => this.show(name) });
      return make("label", {}, radio, make("span", {}, title));
    });
    byId("flame-view").append(...radios);
    this.places = facts.lines.places.map(([file, line, name]) => ({ file, line, name }));
    byId("flame-search").addEventListener("input", () => this.search());
    byId("flame-whole").addEventListener("click", () => this.graph.zoom(null));
    byId("flame-unlimited").addEventListener("click", () => this.show(this.tree.view.name));
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

  /** Shows the client's calls between two times alone. */
  limit(client, from, to) {
    const { calls } = this.trees.get("client");
    const { byCall, seconds } = client.staysWithin(from, to);
    const lines = client.linesWithin(from, to);
    this.show("client", null, { from, to, seconds, inCalls: inTree(calls, byCall), lines });
  }

  /** Shows a view; zooms to a group of it, if one is named; `limited`: a time of it, see `limit`. */
  show(name, group = null, limited = null) {
    const tree = this.trees.get(name);
    Object.assign(this, { tree, limited });
    find(`input[name=flame][value=${name}]`).checked = true;
    this.graph = new FlameGraph(byId("flame"), {
      calls: tree.calls,
      seconds: (call) => this.secondsOf(call),
      name: ({ at }) => this.nameOf(tree, at)[0],
      title: (call) => this.title(tree, call),
      dress: (element, call) => this.dress(element, tree, call),
      chosen: (call) => this.tellOf(tree, call),
    });
    const { samples, omitted } = tree.view;
    const left = omitted ? `; ${counted(omitted, "brief call")} left out` : "";
    const span = limited && [limited.from, limited.to].map((time) => formatCell(time, 2)).join(" to ");
    byId("flame-about").textContent = limited
      ? `The client from ${span} s, of which ${formatSeconds(limited.seconds)} were sampled`
      : `${counted(samples, "sample")}, ${formatSeconds(tree.view.seconds)}${left}`;
    byId("flame-unlimited").hidden = limited === null;
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

  /** The seconds of a call in what is shown. */
  secondsOf({ at }) {
    return this.limited ? this.limited.inCalls[at] : this.tree.seconds[at];
  }

  /** What they were spent with, which is told of the whole run alone. */
  spentOf(call) {
    return this.limited ? { seconds: this.secondsOf(call), computing: NaN } : spentAt(this.tree, call.at);
  }

  get whole() {
    return this.limited ? this.limited.seconds : this.tree.view.seconds;
  }

  nameOf(tree, at) {
    return this.names[tree.functions[at]];
  }

  title(tree, call) {
    const [name, file] = this.nameOf(tree, call.at);
    const seconds = this.secondsOf(call);
    const place = file ? ` (${file})` : "";
    const share = formatShare(seconds / this.whole);
    return `${name}${place}: ${formatSeconds(seconds)}, ${share}; ${spentWords(this.spentOf(call))}`;
  }

  dress(element, tree, call) {
    const [, file, library] = this.nameOf(tree, call.at);
    const origin = !file ? "group" : library === "" ? "program" : library === "(Python)" ? "python" : "library";
    element.classList.add("spent-in", origin);
    dressSpent(element, this.spentOf(call));
  }

  search() {
    const wanted = byId("flame-search").value;
    const { count, seconds } = this.graph.find(wanted);
    const share = formatShare(seconds / this.whole);
    byId("flame-found").textContent =
      wanted === "" ? "" : `${counted(count, "call")}, ${formatSeconds(seconds)} (${share})`;
  }

  /** Shows the lines of the call that the graph is zoomed to. */
  tellOf(tree, call) {
    const root = byId("flame-frame");
    byId("flame-whole").disabled = call === null;
    if (this.limited) return root.replaceChildren(make("h3", {}, "Lines of this time"), lineList(this.limited.lines));
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
